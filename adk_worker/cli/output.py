"""What goes to the terminal, and where: answers to the standard output, everything about them to the standard error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from adk_worker.printable import printable_lines


def say(text: str) -> None:
    """Print an answer. The text has been made printable by whoever wrote it, line by line."""
    click.echo(text)


def note(text: str) -> None:
    """Print something about the answer, or about the want of one; escaped here, for errors quote what others wrote."""
    for line in printable_lines(text):
        click.echo(line, err=True)


def emit(answer: Mapping[str, Any]) -> None:
    """Print an answer as one line of JSON, in ASCII: nothing in it moves a terminal's cursor."""
    click.echo(json.dumps(answer, ensure_ascii=True, allow_nan=False))
