"""Finds secrets in text (R3): by their shape, or by the name that stands before them.

What is found by shape stands in :mod:`~adk_worker.detection.shapes`; the pairs (``password=…``) in
:mod:`~adk_worker.detection.pairs`, which asks :mod:`~adk_worker.detection.names` about the name and
:mod:`~adk_worker.detection.values` about the value.

Every pattern runs in time linear in the text, whatever the text: repetitions are over one character class each and
possessive, or bounded; what follows a match is never scanned twice without a bound. No group is repeated possessively,
since Python before 3.11.5 gets those wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from adk_worker.detection.names import Named, named_by
from adk_worker.detection.pairs import PAIRS
from adk_worker.detection.rule import Rule, Span
from adk_worker.detection.shapes import SHAPES

RULES: tuple[Rule, ...] = (*SHAPES, *PAIRS)
"""All built-in rules."""

__all__ = ["RULES", "Named", "Rule", "Span", "named_by", "spans_in"]


def spans_in(text: str, rules: Sequence[Rule] = RULES) -> list[Span]:
    """Where ``text`` has secrets: spans in order that do not overlap.

    Findings that overlap become one span; it cannot be guessed if any part of it cannot.
    """
    folded = text.lower()
    return _merged(span for rule in rules if rule.may_occur(folded) for span in rule.find(text))


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = Span(last.start, max(last.end, span.end), last.guessable and span.guessable)
        else:
            merged.append(span)
    return merged
