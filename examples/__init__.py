"""Worked examples. Run them from the repository's top folder."""

from __future__ import annotations
