"""Names that a store has to keep apart, and names that it has to refuse (T1)."""

from __future__ import annotations

from typing import Any

HOSTILE_RUNS: tuple[tuple[str, str], ...] = (
    ("a:b", "c"),
    ("a", "b:c"),
    ("a", "b"),
    ("a/b", "c"),
    ("a", "b/c"),
    ("acme", "run"),
    ("ACME", "run"),
    ("acme", "Run"),
    ("*", "*"),
    ("acme", "*"),
    ("%", "_"),
    ("_", "%"),
    ("acme", "ru_"),
    ("acme", "run/../run"),
    ("acme\\", "run"),
    ("acme", "{adk:001}"),
    ("acme", "'; DROP TABLE adk_runs; --"),
    ("acme", '"run"'),
    ("acme", "$1"),
    ("acme", ":run"),
    ("acme", "?"),
    ("acme", "1"),
    ("acme", "01"),
    ("acme", "1.0"),
    ("acme", "null"),
    ("acme", "a b"),
    ("acme", "a\u00a0b"),
    ("acme", "ab"),
    ("acme", "a\u200db"),
    ("acme", "caf\u00e9"),
    ("acme", "cafe\u0301"),
    ("acme", "stra\u00dfe"),
    ("acme", "strasse"),
    ("\u0645\u0631\u062d\u0628\u0627", "\u202eabc"),
    ("\U0001f9ed", "\U0001f469\u200d\U0001f680"),
    ("x" * 512, "y" * 512),
    ("x" * 512, "y" * 511),
    ("\U0001f600" * 128, "\u00e9" * 256),
)
"""Pairs of tenant and run id that are all legal and all different, however a store joins, folds or trims them."""

REFUSED_NAMES: tuple[Any, ...] = (
    "",
    " ",
    " a",
    "a ",
    "a\n",
    "a\nb",
    "\x00",
    "a\x00b",
    "a\x7fb",
    "\ud800",
    "x" * 513,
    "\u00e9" * 257,
    7,
    None,
    b"a",
)
"""What is no name, of a tenant as of a run."""
