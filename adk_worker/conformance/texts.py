"""JSON that a store has to give back as it came."""

from __future__ import annotations

from typing import Any

MEGABYTE = 1024 * 1024

TRICKY = "a\x00b \u0085\u2028 'quoted' \"twice\" \\u0000 \\ %s $1 :name \U0001f469\u200d\U0001f680 \u202eright-to-left"
"""One text with all that a driver, an encoding or a JSON column may trip over, NUL among it."""

CONTENTS: tuple[Any, ...] = (
    None,
    True,
    0,
    -1.5e-7,
    2**53,
    "",
    TRICKY,
    [],
    {},
    [[[]], [{}]],
    {"b": [1, 2.5, None], "a": {TRICKY: TRICKY, "": ""}},
    "\u00e9" * (MEGABYTE // 2),
)
"""JSON values, a megabyte among them."""
