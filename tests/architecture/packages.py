"""The packages that the wheel brings, and their modules."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("adk_worker", "stores", "tasks")


def modules() -> list[str]:
    """Return the dotted names of all modules of the three packages."""
    return sorted(_name(path) for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
