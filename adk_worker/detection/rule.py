"""What a rule of detection is: a pattern, and what makes a match of it a secret."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

FILLER: Final = "\ue000"
"""Stands for each character of a placeholder while text is searched, so that no rule looks into one.

A private-use character: no word, no white space, no quote; it ends every token.
"""


START: Final = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{2})|(?<=[0-9]m))"
"""Pattern: a token may begin here: not in mid-word, but behind escapes of JSON, of URLs and of terminals' colours."""


class Span(NamedTuple):
    """``text[start:end]`` is a secret. ``guessable`` says that a person may have chosen it."""

    start: int
    end: int
    guessable: bool


Locate = Callable[[re.Match[str]], tuple[int, int] | None]
"""Where in a match the secret is, or ``None`` if there is none."""


def whole(match: re.Match[str]) -> tuple[int, int]:
    """The group ``secret`` where the pattern has one that matched, else all of the match."""
    if "secret" in match.re.groupindex and match["secret"] is not None:
        return match.span("secret")
    return match.span()


@dataclass(frozen=True, slots=True)
class Rule:
    """Finds one kind of secret.

    :param kind: its name, for figures.
    :param shortest: no text with fewer characters has such a secret.
    :param hints: in lower case; a text without any of them has no such secret, and the pattern is not tried. Without
        hints it always is.
    :param resume: where a match was found to be no secret, go on searching behind it (the default) or behind its
        group of this name.
    """

    kind: str
    pattern: re.Pattern[str]
    hints: tuple[str, ...] = ()
    guessable: bool = True
    locate: Locate = whole
    resume: str | int = 0
    shortest: int = 0

    def may_occur(self, folded: str) -> bool:
        """Whether a text, given in lower case, can have this kind of secret."""
        if len(folded) < self.shortest:
            return False
        for hint in self.hints:
            if hint in folded:
                return True
        return not self.hints

    def find(self, text: str) -> Iterator[Span]:
        """Every secret of this kind, from left to right."""
        at = 0
        while (match := self.pattern.search(text, at)) is not None:
            found = self.locate(match)
            if found is not None and found[0] < found[1]:
                yield Span(*found, self.guessable)
            at = max(match.end(), found[1]) if found is not None else match.end(self.resume)
            if at <= match.start():  # an empty match of somebody's own pattern
                at = match.start() + 1
                if at > len(text):
                    return
