"""The kit's loggers: structlog's, which takes long to import, and so is imported with the first line that is logged.

An application configures structlog as it likes, before or after. A program of ours that only now and then has
something to log names what configures it (:func:`before_first_line`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


class _Logger:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        import structlog  # noqa: PLC0415 - what this module is about

        configured()
        return getattr(structlog.get_logger(self._name), method)


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger of that name."""
    return cast("FilteringBoundLogger", _Logger(name))


_waiting: list[Callable[[], None]] = []  # of this process, as structlog's own configuration is


def before_first_line(configure: Callable[[], None]) -> None:
    """Have ``configure`` called before the kit logs its first line; at once where structlog has been imported."""
    _waiting[:] = [configure]
    if used():
        configured()


def used() -> bool:
    """Whether anything in this process has imported structlog, and may log by itself."""
    return "structlog" in sys.modules


def configured() -> None:
    """See to it that the log is configured now, since something else than the kit is about to use it."""
    while _waiting:
        _waiting.pop()()
