"""Makes the store behind a URL, or brings it to this version: what ``adk db upgrade`` does, by scheme."""

from __future__ import annotations

from typing import Final, Protocol, cast

from adk_worker.errors import ConfigurationError
from stores.opening import known_schemes

_SQL: Final = frozenset({"postgres", "postgresql", "sqlite"})
_REDIS: Final = frozenset({"redis", "rediss"})


class Migrator(Protocol):
    """How one kind of store is made. Both raise ``ConfigurationError`` for a URL that they cannot use."""

    def upgrade(self, url: str) -> None:
        """Bring the store to this version; harmless if it is there."""
        ...

    def current(self, url: str) -> str | None:
        """The version that the store is at; ``None`` if it was never made."""
        ...


def migrator(url: str) -> Migrator:
    """What makes the store behind ``url``.

    :raises ConfigurationError: it is a store that somebody else's package brings, or one in memory.
    """
    scheme = url.strip().partition("://")[0].partition("+")[0].lower()
    if scheme in _REDIS:
        from stores.redis import migrate as redis  # noqa: PLC0415 - only the driver that is asked for

        return cast("Migrator", redis)
    if scheme in set(known_schemes()) - _SQL:
        raise ConfigurationError(
            f"adk db upgrade makes stores of PostgreSQL, SQLite and Redis. What a store of {scheme}:// needs before it "
            "can be used, the package that brings it says; adk db verify checks it."
        )
    from stores.sql import migrate as sql  # noqa: PLC0415 - the same

    return cast("Migrator", sql)
