"""The stores: where a fleet keeps its runs, leases, checkpoints, claims and transcripts."""

from __future__ import annotations

from stores.opening import ENTRY_POINTS, known_schemes, open_stores

__all__ = ["ENTRY_POINTS", "known_schemes", "open_stores"]
