"""The task that mends what got lost, ``adk.reap``; beat sends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery

from tasks.envelope import REAP
from tasks.process import WorkerProcess
from tasks.untold import untold


def add_reap(app: Celery, process: Callable[[], WorkerProcess]) -> None:
    """Register the task; ``process`` finds the worker process that runs it."""

    @app.task(name=REAP, bind=True)
    def reap(self: Any, **_: Any) -> str:
        with untold(self.request.id):
            report = process().reap()
        if report is None:
            return "store away"
        late = f", {report.expired} denied for want of an answer" if report.expired else ""
        afforded = f", {report.afforded} within budget again" if report.afforded else ""
        return f"{report.acted} lapsed{late}{afforded}, {report.unpublished} not published"
