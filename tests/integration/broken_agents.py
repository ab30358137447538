"""A module of agents that does not import."""

from __future__ import annotations

raise RuntimeError("the price list is missing")
