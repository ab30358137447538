"""Text of other people's, as a terminal may show it: models, tools and callers write it, and some write to deceive.

A terminal obeys control characters: escape sequences move the cursor, recolour, rename windows and set clipboards.
Overrides of the writing direction and invisible characters make one name look like another. All of these are shown
escaped, as Python would write them, and nothing else is changed.
"""

from __future__ import annotations

import shlex
import unicodedata
from datetime import UTC, datetime


def printable(text: str, *, limit: int | None = None) -> str:
    """``text`` on one line: what a terminal would obey or hide is escaped, line breaks and tabs too.

    Longer texts than ``limit`` characters are cut, with the number of characters that are left out.
    """
    cut = "" if limit is None or len(text) <= limit else f" … and {len(text) - limit:,} characters more"
    return "".join(one if _shows(one) else _escaped(one) for one in text[:limit]) + cut


def printable_lines(text: str, *, limit: int | None = None) -> list[str]:
    """``text`` as lines, each as :func:`printable` shows it; all of them together have ``limit`` characters."""
    lines = text.replace("\r\n", "\n").split("\n")
    shown: list[str] = []
    left = limit
    for number, line in enumerate(lines):
        if left is not None and len(line) > left:
            rest = "\n".join(lines[number:])
            return [*shown, printable(rest.replace("\n", " "), limit=left)]
        shown.append(printable(line))
        left = None if left is None else left - len(line)
    return shown


def quoted(name: str) -> str:
    """A name as a shell takes it, and a terminal shows it."""
    return printable(shlex.quote(name))


def time_of(at: float) -> str:
    """Seconds since the epoch as people read them: in UTC, which is what the logs of all hosts agree on.

    A time that no calendar has, as of a grant for a million years, is told by its seconds.
    """
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return f"{at:.4g} s after 1970"


def _shows(character: str) -> bool:
    # Spaces of other widths are harmless; the separators of lines and paragraphs are not.
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
