"""What Celery, and so Flower and its readers, is told of an error that leaves a task: its kind.

An error's text, and a traceback with it, may quote what no page is to show: a driver's repeats the row that the
database refused, prompt and all. Both stay in the worker's log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from adk_worker.errors import AdkError

_log = structlog.get_logger(__name__)


class TaskBrokenError(AdkError):
    """A task of the fleet ended in an error that nobody expected. ``kind`` is its class's name."""

    def __init__(self, *, kind: str, task_id: str) -> None:
        super().__init__(f"{kind}; the worker's log has it in full, as task_broken with task_id {task_id}.")
        self.kind = kind
        self.task_id = task_id


@contextmanager
def untold(task_id: str) -> Iterator[None]:
    """Log what the block raises, and raise what may be seen instead.

    :raises TaskBrokenError: the block raised.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is, its kind alone is told
        _log.exception("task_broken", task_id=task_id)
        raise TaskBrokenError(kind=type(error).__name__, task_id=task_id) from None
