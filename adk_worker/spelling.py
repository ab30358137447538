"""Names in the environment that look like settings and are none: nobody reads them, so their owner has to be told."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches

_ALIKE = 0.75
"""How alike two names have to be for one to be taken for the other misspelt."""


def strangers(environment: Iterable[str], known: Collection[str], *, prefix: str) -> Mapping[str, str | None]:
    """Each name with the prefix that is not known, and the known one that it was probably meant to be."""
    names = {name for name in environment if name.upper().startswith(prefix) and name.upper() not in known}
    return {name: _nearest(name.upper(), known) for name in sorted(names)}


def sentence(name: str, nearest: str | None) -> str:
    """What to say of one."""
    return f"{name} is no setting, and is not read" + (f"; was {nearest} meant?" if nearest else ".")


def _nearest(name: str, known: Collection[str]) -> str | None:
    found = get_close_matches(name, sorted(known), n=1, cutoff=_ALIKE)
    return found[0] if found else None
