"""A Redis server for tests."""

from __future__ import annotations

import itertools
import secrets
import shutil
import signal
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import redis

from tests.servers.binaries import find_redis
from tests.servers.daemon import HOST, Daemon, free_port, make_folder
from tests.servers.orphans import OrphanGuard

_DATABASES = 64

_SETTINGS = {
    "bind": HOST,
    "databases": str(_DATABASES),
    # A restart finds the data again, and so does a start after a kill: what was answered was written before. Only a
    # crash of the machine would need the sync.
    "appendonly": "yes",
    "appendfsync": "no",
    "save": '""',
}


class RedisServer:
    """A server of its own. Start, stop, kill and restart keep port and data; ``close`` removes the data."""

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        password: str | None = None,
        guard: OrphanGuard | None = None,
    ) -> None:
        program = find_redis()
        self.port = free_port()
        self._password = password or self.new_password()
        self._folder = make_folder("adk-redis-", owner=None, guard=guard)
        self._next = itertools.cycle(range(_DATABASES))
        chosen = {**_SETTINGS, **(settings or {})}
        chosen |= {"dir": str(self._folder), "port": str(self.port), "requirepass": self._password}
        # A file, since every user of the machine can read a command line.
        config = self._folder / "redis.conf"
        config.write_text("".join(f"{name} {value}\n" for name, value in chosen.items()))
        self._daemon = Daemon(
            [str(program), str(config)],
            log=self._folder / "server.log",
            ready=self._answers,
            stop_signal=signal.SIGTERM,
            guard=guard,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @staticmethod
    def new_password() -> str:
        """Make up a password."""
        return secrets.token_hex(12)

    @property
    def pid(self) -> int | None:
        """The process id, None while the server is down."""
        return self._daemon.pid

    def start(self) -> None:
        """Start the server if it is down; returns once it answers."""
        self._daemon.start()

    def stop(self) -> None:
        """Stop the server in good order."""
        self._daemon.stop()

    def restart(self) -> None:
        """Stop the server and start it again, on the same port and data."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """SIGKILL."""
        self._daemon.kill()

    def close(self) -> None:
        """Stop the server and remove its files."""
        try:
            self.stop()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def log_tail(self, lines: int = 30) -> str:
        """Return the end of the server's log."""
        return self._daemon.log_tail(lines)

    def url(self, database: int = 0) -> str:
        """Return the address of a database: ``redis://:password@host:port/database``."""
        return f"redis://:{self._password}@{HOST}:{self.port}/{database}"

    def fresh_database(self) -> str:
        """Return the URL of a database that holds nothing.

        The databases are taken in turn, so that a straggler of the last test, which writes to its own, is not heard.
        """
        url = self.url(next(self._next))
        with redis.Redis.from_url(url) as client:
            client.flushdb()
        return url

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url(), socket_timeout=5, retry=None) as client:
                return bool(client.ping())
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
            return False
