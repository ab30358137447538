"""The broker, and who listens to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from adk_worker.cli.checkup.finding import Finding, Subject, ok, unseen, warning
from adk_worker.errors import AdkError, BrokerUnavailableError

if TYPE_CHECKING:
    from celery import Celery

_ANSWERS_WITHIN = 1.5
"""For how long workers may think about an answer, s. One that is busy in a pool of one (solo) gives none."""


def broker(subject: Subject) -> Iterator[Finding]:
    """Whether the broker answers, and what waits on it."""
    from adk_worker.siblings import require_ours
    from adk_worker.urls import without_secrets

    require_ours("tasks")
    from tasks.backlog import waiting
    from tasks.config import CONTROL_QUEUE, WORK_QUEUE

    settings = subject.settings
    try:
        url = without_secrets(settings.required_broker_url)
        quick = settings.model_copy(update={"socket_timeout": min(settings.socket_timeout, subject.patience)})
        found = waiting(quick, [WORK_QUEUE, CONTROL_QUEUE])
    except BrokerUnavailableError as error:
        yield replace(unseen("broker", error), found=f"{error.broker} does not answer: {error.reason}")
        return
    except AdkError as error:
        yield unseen("broker", error)
        return
    waits = ", ".join(f"{number} on {queue}" for queue, number in found.items())
    yield ok("broker", f"{url} answers; messages that wait: {waits}")


def workers(subject: Subject) -> Iterator[Finding]:
    """Which workers answer, and what they consume. A worker's answer is no proof, nor is its silence."""
    from adk_worker.siblings import require_ours

    require_ours("tasks")
    from celery import Celery

    from tasks.config import CONTROL_QUEUE, WORK_QUEUE, celery_config

    settings = subject.settings
    if settings.broker_url is None:
        return  # `broker` tells it
    try:
        settings = settings.model_copy(update={"socket_timeout": min(settings.socket_timeout, subject.patience)})
        app = Celery("adk", set_as_current=False, config_source=celery_config(settings))
        consumed = _asked(app, "active_queues")
    except Exception as error:  # noqa: BLE001 - whatever the broker or its driver says
        yield unseen("workers", error)
        return
    queues = {worker: {queue["name"] for queue in listed} for worker, listed in consumed.items()}
    for queue, todo in (
        (WORK_QUEUE, "start one: `celery -A tasks.app worker -Q adk`"),
        (
            CONTROL_QUEUE,
            "start one, if `sweeps` says so too: `celery -A tasks.app worker -Q adk.control`",
        ),
    ):
        of_queue = sorted(worker for worker, names in queues.items() if queue in names)
        if of_queue:
            yield ok("workers", f"{queue} is consumed by {', '.join(of_queue)}")
        else:
            yield warning("workers", f"no worker answers that consumes {queue}; a busy one may give no answer", todo)
    yield from _eta(app, sorted(queues))


def _eta(app: Celery, workers: list[str]) -> Iterator[Finding]:
    if not workers:
        return
    held = {worker: len(listed) for worker, listed in _asked(app, "scheduled", workers).items() if listed}
    if held:
        named = ", ".join(f"{worker} ({number})" for worker, number in sorted(held.items()))
        yield warning(
            "eta",
            f"workers hold messages with an ETA or a countdown: {named}. Redis delivers those twice past its "
            "visibility time-out",
            "the fleet sends none: see who else sends tasks to its queues, and give them a broker of their own",
        )
    else:
        yield ok("eta", "no worker holds a message with an ETA or a countdown")


def _asked(app: Celery, question: str, workers: list[str] | None = None) -> Mapping[str, Any]:
    with app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, timeout=app.conf.broker_connection_timeout)
        asking = app.control.inspect(
            destination=workers,
            timeout=_ANSWERS_WITHIN,
            connection=connection,
            limit=len(workers) if workers else None,
        )
        found: Mapping[str, Any] | None = getattr(asking, question)()
    return found or {}
