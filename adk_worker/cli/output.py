"""What goes to the terminal, and where: answers to the standard output, everything about them to the standard error."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import select
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from adk_worker.printable import printable, printable_lines

_WIDE = 1_000
"""Columns where nobody looks at a terminal: a line of a pipe is a row, however long."""


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Have what somebody else's code prints meanwhile go where it belongs: it is no part of the answer."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def say(text: str) -> None:
    """Print an answer. The text has been made printable by whoever wrote it, line by line."""
    click.echo(text)


def check_reader() -> None:
    """Notice that nobody reads the answers any more, as the reader of a pipe that has seen enough.

    Who prints notices by itself. This is for who waits for something to print, and would wait for ever.

    :raises BrokenPipeError: the standard output is such a pipe.
    """
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):  # not a file, or closed
        return
    poll = select.poll()
    poll.register(output, 0)
    if any(happened & select.POLLERR for _, happened in poll.poll(0)):
        raise BrokenPipeError(errno.EPIPE, "nobody reads the standard output")


def note(text: str) -> None:
    """Print something about the answer, or why there is none; escaped here, for errors quote what others wrote."""
    for line in printable_lines(text):
        click.echo(line, err=True)


def emit(answer: Mapping[str, Any]) -> None:
    """Print an answer as one line of JSON, in ASCII: nothing in it moves a terminal's cursor."""
    click.echo(json.dumps(answer, ensure_ascii=True, allow_nan=False))


def grid(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[str] = ()) -> str:
    """A table without its last line break; each cell is escaped. ``right`` names the columns that are set to the right.

    On a terminal it fits into it; in a pipe a row is a line.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        made.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    width = Console().width if sys.stdout.isatty() else _WIDE
    written = io.StringIO()
    Console(file=written, width=width, force_terminal=False, markup=False, highlight=False, emoji=False).print(made)
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines())


def counted(number: int, noun: str) -> str:
    """So many of them: ``1 run``, ``2 runs``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
