"""The tasks that carry runs on, ``adk.advance`` and ``adk.resume``: one message, one iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from celery import Celery
from celery.exceptions import Reject

from adk_worker.errors import UnreadableMessageError
from tasks.envelope import ADVANCE, RESUME, decode
from tasks.process import WorkerProcess
from tasks.untold import untold

_log = structlog.get_logger(__name__)


def add_advance(app: Celery, process: Callable[[], WorkerProcess]) -> None:
    """Register both tasks; ``process`` finds the worker process that runs them."""

    @app.task(name=ADVANCE, bind=True)
    def advance(self: Any, *args: Any, **kwargs: Any) -> str:
        return _carry_out(process, self.request.id, args, kwargs, recovery=False)

    @app.task(name=RESUME, bind=True)
    def resume(self: Any, *args: Any, **kwargs: Any) -> str:
        return _carry_out(process, self.request.id, args, kwargs, recovery=True)


def _carry_out(
    process: Callable[[], WorkerProcess], task_id: str, args: Any, kwargs: dict[str, Any], *, recovery: bool
) -> str:
    try:
        message = decode(args, kwargs, recovery=recovery)
    except UnreadableMessageError as error:
        _log.warning("message_unreadable", task_id=task_id, reason=error.reason)
        raise Reject(error.reason, requeue=False) from error
    with untold(task_id):
        return process().carry_out(message, label=task_id)
