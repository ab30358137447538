"""Makes the store behind a URL, or brings it to this version: what ``adk db upgrade`` does, by scheme."""

from __future__ import annotations

from typing import Protocol, cast


class Migrator(Protocol):
    """How one kind of store is made. Both raise ``ConfigurationError`` for a URL that they cannot use."""

    def upgrade(self, url: str) -> None:
        """Bring the store to this version; harmless if it is there."""
        ...

    def current(self, url: str) -> str | None:
        """The version that the store is at; ``None`` if it was never made."""
        ...


def migrator(url: str) -> Migrator:
    """What makes the store behind ``url``."""
    if url.strip().lower().startswith("redis"):
        from stores.redis import migrate as redis  # noqa: PLC0415 - only the driver that is asked for

        return cast("Migrator", redis)
    from stores.sql import migrate as sql  # noqa: PLC0415 - the same

    return cast("Migrator", sql)
