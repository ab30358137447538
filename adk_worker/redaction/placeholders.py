"""Placeholders, ``[secret:1]``: what stands in a run's texts for each secret that was masked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

PLACEHOLDER: Final = re.compile(r"\[[ ]{0,2}secret[ ]{0,2}:[ ]{0,2}([0-9]+)[ ]{0,2}\]", re.IGNORECASE | re.ASCII)
"""A placeholder, with the spaces and capitals that a model may copy it with, too. The group is its number."""

_LONGEST_NUMBER: Final = 10
"""In digits. No placeholder of ours has a longer number."""


def placeholder(number: int) -> str:
    """The placeholder of that number."""
    return f"[secret:{number}]"


def number_of(match: re.Match[str]) -> int | None:
    """The number of a placeholder that was found; ``None`` for a text that only looks like one."""
    return int(match[1]) if len(match[1]) <= _LONGEST_NUMBER else None


def contains_placeholder(value: Any) -> bool:
    """Whether a text anywhere in ``value``, dict keys included, has a placeholder."""
    return next(matches_in(value), None) is not None


def placeholders_in(value: Any) -> tuple[str, ...]:
    """The placeholders anywhere in ``value``, as ``[secret:N]``, each once, in order of first occurrence."""
    return tuple(dict.fromkeys(f"[secret:{match[1]}]" for match in matches_in(value)))


def matches_in(value: Any) -> Iterator[re.Match[str]]:
    """Every placeholder in ``value``, dict keys included, in order."""
    if isinstance(value, str):
        yield from PLACEHOLDER.finditer(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from matches_in(key)
            yield from matches_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from matches_in(item)


def replaced(value: Any, new: Callable[[re.Match[str]], str]) -> Any:
    """A copy of ``value`` with each placeholder replaced by what ``new`` says, at any depth, in dict keys too."""
    if isinstance(value, str):
        return PLACEHOLDER.sub(new, value)
    if isinstance(value, dict):
        return {replaced(key, new): replaced(item, new) for key, item in value.items()}
    if isinstance(value, list | tuple):
        copied = [replaced(item, new) for item in value]
        return copied if isinstance(value, list) else tuple(copied)
    return value
