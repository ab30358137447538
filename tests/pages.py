"""Reads the examples of a page, so that a test can carry them out as a reader would.

A console block is a dialogue: lines after ``$`` are typed, the others are what comes back. ``…`` stands for anything on
its line, and for any lines where it stands alone. What is said above a block is not seen on the page:

    <!-- given: parked; a worker -->      a new folder and store, with run_1 in that state (tests/integration/given.py)
    <!-- file: look.py -->                the block below is this file
    <!-- not run: it does not end -->     and why not

A block with nothing above it goes on where the one before it has ended. A command after which nothing is shown may
print what it likes, and has to end with 0, unless ``$ echo $?`` follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_BLOCK = re.compile(r"((?:^<!-- [^\n]*? -->\n+)*)^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAID = re.compile(r"^<!-- (given|file|not run): (.+?) -->$", re.MULTILINE)


@dataclass(frozen=True)
class Typed:
    """A command, on how many lines ever, and what the page shows of its output."""

    command: str
    shown: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """A block of a page, which is a file's text or a dialogue."""

    line: int
    text: str
    file: str | None = None

    @property
    def dialogue(self) -> list[Typed]:
        """What is typed, in order."""
        typed: list[Typed] = []
        lines = iter(self.text.splitlines())
        for line in lines:
            if line.startswith("$ "):
                command = line[2:]
                while command.endswith("\\"):
                    command += "\n" + next(lines)
                typed.append(Typed(command, ()))
            elif typed:
                typed[-1] = Typed(typed[-1].command, (*typed[-1].shown, line))
            else:
                raise ValueError(f"line {self.line}: a console block begins with what is typed: $ …")
        return typed


@dataclass
class Story:
    """Blocks that belong together: what the first begins, the others go on with."""

    page: str
    given: str
    blocks: list[Block] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.page}:{self.blocks[0].line}"


def stories(page: Path) -> list[Story]:
    """The stories of a page, in order."""
    return list(_stories(page.name, page.read_text(encoding="utf-8")))


def _stories(name: str, text: str) -> Iterator[Story]:
    story: Story | None = None
    for found in _BLOCK.finditer(text):
        above, language, body = found.groups()
        said = dict(_SAID.findall(above))
        if "not run" in said or (language != "console" and "file" not in said):
            continue
        if "given" in said or story is None:
            if story is not None:
                yield story
            story = Story(name, said.get("given", "nothing"))
        line = text.count("\n", 0, found.start(3))
        story.blocks.append(Block(line, body, file=said.get("file")))
    if story is not None:
        yield story


def fits(shown: tuple[str, ...], printed: str) -> bool:
    """Whether what was printed is what the page shows."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n" for line in shown
    )
    lines = "".join(line.rstrip() + "\n" for line in printed.splitlines())
    return re.fullmatch(pattern, lines) is not None
