"""The worker's log: our lines go through Celery's handlers, one ``key=value`` line each.

What is logged may come from a caller or a model; nothing of it can begin a line of its own, or be obeyed by a terminal.
"""

from __future__ import annotations

from typing import Any

import structlog
from structlog.typing import EventDict, ProcessorReturnValue, WrappedLogger

from adk_worker.printable import printable

_LINE = structlog.processors.LogfmtRenderer(key_order=["event"], bool_as_flag=False)


def configure_logging() -> None:
    """Send structlog's lines to the standard library's loggers, by the level that they are set to."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            _as_log_record,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _as_log_record(logger: WrappedLogger, name: str, event: EventDict) -> ProcessorReturnValue:
    """One line; a traceback stays the handler's to print, below it."""
    passed: dict[str, Any] = {}
    if event.get("exc_info"):
        passed["exc_info"] = event["exc_info"]
    event.pop("exc_info", None)
    below = event.pop("exception", None)
    # A "%" stays what it is: without arguments logging formats nothing.
    line = str(_LINE(logger, name, {key: _plain(value) for key, value in event.items()}))
    lines = [line] if below is None else [line, *map(printable, str(below).rstrip("\n").split("\n"))]
    return ("\n".join(lines),), passed


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | float) else printable(str(value))
