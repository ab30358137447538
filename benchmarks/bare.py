"""The bare Celery chain: a task that does nothing and enqueues its successor.

What a fleet on Celery is measured against: nothing that is made of Celery tasks, one after another, can be faster. The
broker is Celery's own ``CELERY_BROKER_URL``. ``bare`` is Celery as it comes; ``observed`` sends the events that Flower
lives by, as a fleet does.

    celery -A benchmarks.bare:bare worker -Q bench.bare
"""

from __future__ import annotations

from typing import Any

from celery import Celery

DONE = "bench.done"
"""Where the last link of a chain goes, a queue that no worker consumes."""


def queue_of(app: Celery) -> str:
    """The queue on which the chains of ``app`` run."""
    return f"bench.{app.main}"


def start(app: Celery, *, hops: int) -> None:
    """Begin a chain of so many hops."""
    app.tasks["bench.hop"].apply_async((hops - 1,))


def _app(name: str, *, observed: bool) -> Celery:
    app = Celery(name, set_as_current=False)
    app.conf.update(
        task_default_queue=f"bench.{name}",
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        worker_send_task_events=observed,
        task_send_sent_event=observed,
        task_track_started=observed,
    )
    app.task(_hop, name="bench.hop", bind=True)
    return app


def _hop(task: Any, left: int) -> None:
    if left:
        task.apply_async((left - 1,))
    else:
        task.apply_async((0,), queue=DONE)


bare = _app("bare", observed=False)
observed = _app("observed", observed=True)
