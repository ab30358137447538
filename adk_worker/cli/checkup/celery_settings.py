"""Celery's configuration as the deployment has it: what its own ``celeryconfig`` has made of the fleet's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from adk_worker.cli.checkup.finding import Finding, Level, Subject, fail, ok, unseen, warning
from adk_worker.errors import AdkError, ConfigurationError

_JSON: Final = frozenset({"json", "application/json"})
_VISIBILITY: Final = 3600.0
"""Redis' transport's own, s."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a setting has to be, and what else would mean."""

    name: str
    holds: Callable[[Any], bool]
    level: Level
    means: str
    todo: str = "leave it as tasks/config.py has it"


_RULES: Final = (
    _Rule(
        "accept_content",
        lambda value: set(value) <= _JSON,
        Level.FAIL,
        "whoever reaches the broker can have workers run what they like, for a pickle is code",
        "json alone",
    ),
    _Rule("task_serializer", lambda value: value in _JSON, Level.FAIL, "no worker takes such messages", "json"),
    _Rule(
        "task_reject_on_worker_lost",
        lambda value: not value,
        Level.FAIL,
        "a run that kills its worker is delivered again for ever; the reaper counts such deaths, and parks it",
    ),
    _Rule(
        "worker_cancel_long_running_tasks_on_connection_loss",
        lambda value: not value,
        Level.FAIL,
        "when the broker hiccups, calls in flight are cut off, and nobody knows of them whether they happened",
    ),
    _Rule(
        "task_time_limit",
        lambda value: value is None,
        Level.FAIL,
        "a worker's child is killed in the middle of a call, and nobody knows whether that happened",
        "ADK_ITERATION_TIMEOUT bounds an iteration",
    ),
    _Rule(
        "task_soft_time_limit",
        lambda value: value is None,
        Level.WARNING,
        "it ends iterations where nothing is prepared for that",
        "ADK_ITERATION_TIMEOUT bounds an iteration",
    ),
    _Rule(
        "worker_consumer",
        lambda value: value == "tasks.consumer:FleetConsumer",
        Level.WARNING,
        "a worker may end, or stand still, when the broker goes away with messages in hand",
    ),
    _Rule(
        "broker_connection_max_retries",
        lambda value: value is None,
        Level.WARNING,
        "a worker gives up on a broker that is away for long, and has to be started again by hand",
        "None: for ever",
    ),
    _Rule(
        "broker_connection_retry_on_startup",
        bool,
        Level.WARNING,
        "a worker that starts before its broker ends",
    ),
    _Rule("task_publish_retry", bool, Level.WARNING, "a message lost to a hiccup waits for the reaper"),
    _Rule(
        "worker_prefetch_multiplier",
        lambda value: value == 1,
        Level.WARNING,
        "what a worker hoards no idle worker can carry out, until the reaper publishes it again",
        "1",
    ),
    _Rule(
        "result_backend",
        lambda value: value is None or str(value).startswith("disabled"),
        Level.WARNING,
        "a second copy of what the store knows, which can only disagree with it",
        "None",
    ),
    _Rule("task_ignore_result", bool, Level.WARNING, "results are kept that nobody reads"),
    _Rule(
        "broker_pool_limit",
        bool,
        Level.WARNING,
        "connections to the broker are not bounded, or made anew for every message",
        "a number, such as Celery's own 10",
    ),
)


def celery_settings(subject: Subject) -> Iterator[Finding]:
    """Judge the configuration that the fleet's programs have."""
    from adk_worker.siblings import require_ours

    require_ours("tasks")
    if subject.settings.broker_url is None:
        return  # `broker` tells it
    try:
        conf, where = _effective(subject)
    except AdkError as error:
        yield unseen("celery", error)
        return
    told = [*_by_rule(conf), *_queues(conf), *_schedule(conf), *_transport(conf, subject), *_acks(conf, subject)]
    yield from told
    if not told:
        yield ok("celery", f"{where}: acknowledged early, one in hand for each slot, json alone, no results, no ETA")


def _effective(subject: Subject) -> tuple[Any, str]:
    from celery import Celery

    from tasks.config import celery_config

    ours = celery_config(subject.settings)
    app = Celery("adk", set_as_current=False, config_source=ours)
    if subject.celery_module is None:
        return app.conf, "the fleet's own configuration"
    app = Celery("adk", set_as_current=False)
    try:
        app.config_from_object(subject.celery_module)

        _ = app.conf.task_serializer
    except (Exception, SystemExit) as error:
        from adk_worker.results import text_of

        raise ConfigurationError(
            f"the configuration {subject.celery_module!r} does not import from here: {text_of(error)}. Name it as the "
            "workers have it: --config MODULE."
        ) from error
    return app.conf, f"{subject.celery_module} (--config)"


def _by_rule(conf: Any) -> Iterator[Finding]:
    for rule in _RULES:
        value = conf.get(rule.name)
        try:
            holds = rule.holds(value)
        except TypeError:
            holds = False
        if not holds:
            yield Finding("celery", rule.level, f"{rule.name} is {value!r}: {rule.means}", rule.todo)


def _queues(conf: Any) -> Iterator[Finding]:
    from tasks.config import CONTROL_QUEUE, WORK_QUEUE
    from tasks.envelope import ADVANCE, REAP, RESUME

    todo = "leave task_queues and task_routes as tasks/config.py has them"
    names = {getattr(queue, "name", queue) for queue in (conf.get("task_queues") or ())}
    for missing in sorted({WORK_QUEUE, CONTROL_QUEUE} - names):
        yield fail("celery", f"task_queues has no {missing}: what belongs there is taken by nobody", todo)
    routes = conf.get("task_routes")
    if not isinstance(routes, Mapping):
        yield warning("celery", f"task_routes is {type(routes).__name__}, which cannot be judged here", todo)
        return
    for task, queue in ((ADVANCE, WORK_QUEUE), (RESUME, WORK_QUEUE), (REAP, CONTROL_QUEUE)):
        found = routes.get(task)
        to = found.get("queue") if isinstance(found, Mapping) else found
        if to != queue:
            yield fail("celery", f"task_routes sends {task} to {to!r} and not to {queue!r}", todo)


def _schedule(conf: Any) -> Iterator[Finding]:
    from tasks.envelope import REAP

    todo = "add to beat_schedule, do not replace it: beat_schedule[…] = …"
    schedule = conf.get("beat_schedule") or {}
    entries = [entry for entry in schedule.values() if entry.get("task") == REAP]
    if not entries:
        yield fail("celery", f"beat_schedule has no {REAP}: a run whose worker dies is never taken up again", todo)
    for entry in entries:
        options = entry.get("options") or {}
        delayed = sorted({"eta", "countdown"} & options.keys())
        if delayed:
            yield fail("celery", f"{REAP} is sent with {' and '.join(delayed)}, which Redis delivers twice", todo)


def _transport(conf: Any, subject: Subject) -> Iterator[Finding]:
    options = conf.get("broker_transport_options") or {}
    url = str(subject.settings.broker_url or "")
    if url.startswith(("redis", "sentinel")) and not options.get("socket_timeout"):
        yield fail(
            "celery",
            "broker_transport_options has no socket_timeout: a publish to a broker that vanished waits for ever",
            "add to broker_transport_options, do not replace it",
        )
    if url.startswith(("amqp", "pyamqp")) and not options.get("confirm_publish"):
        yield warning(
            "celery",
            "confirm_publish is off: a message that RabbitMQ did not take is missed by nobody but the reaper",
            "add to broker_transport_options, do not replace it",
        )


def _acks(conf: Any, subject: Subject) -> Iterator[Finding]:
    settings = subject.settings
    url = str(settings.broker_url or "")
    options = conf.get("broker_transport_options") or {}
    redis = url.startswith(("redis", "sentinel"))
    visible = float(options.get("visibility_timeout", _VISIBILITY))
    longest = max(settings.lease_ttl, settings.iteration_timeout)
    if redis and visible <= longest:
        yield warning(
            "celery",
            f"visibility_timeout is {visible:g} s, and a message may be in hand for {longest:g} s (a lease's TTL, an "
            "iteration): it is delivered again meanwhile, to be refused",
            f"raise it above {longest:g} s, or leave it out",
        )
    if conf.get("task_acks_late"):
        again = (
            f"visibility_timeout, {visible:g} s, after a worker's death"
            if redis
            else "consumer_timeout of RabbitMQ, if an iteration takes longer than that"
        )
        yield warning(
            "celery",
            f"task_acks_late is on: a message comes again, to find its ticket spent ({again}); the reaper alone takes "
            "runs up",
            "leave it off",
        )
