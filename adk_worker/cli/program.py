"""How every command ends: with an exit code, and without a traceback for an operator's mistake."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from adk_worker.cli.exits import ExitCode, code_of
from adk_worker.cli.output import note
from adk_worker.errors import AdkError

if TYPE_CHECKING:
    from adk_worker.cli.source import Source

T = TypeVar("T")


@dataclass(slots=True)
class Invocation:
    """What a command is called with, besides its command line; click's ``obj``.

    ``own_process`` says that the process is ours to set up: its log, and its path of modules.
    """

    source: Source
    own_process: bool = False
    debug: bool = False


def perform(command: click.Command, argv: Sequence[str] | None, *, prog: str, invocation: Invocation) -> int:
    """Carry out a command line, and return its exit code. Raises nothing, whatever goes wrong."""
    if invocation.own_process:
        _set_up(invocation)
    out = sys.stdout
    try:
        args = None if argv is None else list(argv)
        code = command.main(args=args, prog_name=prog, standalone_mode=False, obj=invocation)
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 - the edge of the program
        return _ended_by(error, debug=invocation.debug, out=out)
    return code if isinstance(code, int) else ExitCode.DONE


def _ended_by(error: BaseException, *, debug: bool, out: object) -> int:
    """Say what has to be said of the error that ended a command, and return the exit code. ``out`` was stdout."""
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        note("interrupted")
        return ExitCode.INTERRUPTED
    # Click exits by itself over a pipe that nobody reads, with something else for stdout. All others that exit are code
    # of somebody's that was run here.
    if isinstance(error, BrokenPipeError) or (isinstance(error, SystemExit) and sys.stdout is not out):
        # Python flushes once more as it ends, and would complain about the same pipe.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.NOBODY_READS
    if debug:
        traceback.print_exception(error)
    if isinstance(error, AdkError):
        note(f"error: {error}")
        return code_of(error)
    from adk_worker.results import text_of

    hint = "" if debug else " (--debug shows where)"
    note(f"error: {text_of(error)}{hint}")
    return ExitCode.SOFTWARE


def awaited(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a command's coroutine. Ctrl-C cancels it, so that it gives back what it holds, and is raised then."""
    import asyncio

    return asyncio.run(work())


def _set_up(invocation: Invocation) -> None:
    """Of the process that is ours: agents are found from the working folder, and the log keeps out of the output."""
    from adk_worker.log import before_first_line

    folder = os.getcwd()  # noqa: PTH109 - an entry of sys.path is a string
    if folder not in sys.path:
        sys.path.insert(0, folder)
    before_first_line(lambda: _configure_log(invocation))


def _configure_log(invocation: Invocation) -> None:
    import structlog

    def only_in_debugging(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if not invocation.debug and event.get("level") not in {"error", "critical"}:
            raise structlog.DropEvent
        return event

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            only_in_debugging,
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["level", "event"], bool_as_flag=False),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
