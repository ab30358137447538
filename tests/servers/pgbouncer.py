"""A PgBouncer for tests, in front of a PostgreSQL."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import psycopg2

from tests.servers.binaries import find_pgbouncer
from tests.servers.daemon import HOST, Daemon, free_port, make_folder, unprivileged_user
from tests.servers.orphans import OrphanGuard
from tests.servers.postgres import PostgresServer

_SETTINGS = {
    "listen_addr": HOST,
    "unix_socket_dir": "",
    "auth_type": "plain",
    "pool_mode": "transaction",
    "max_client_conn": "500",
    # Far fewer than there are clients, so that one connection serves many of them in turn, within one test.
    "default_pool_size": "4",
    # A server that went and came back is tried again at once.
    "server_login_retry": "0.2",
}


class PgBouncer:
    """A pooler of transactions, for all databases of ``server``; what it is told otherwise are ``settings``.

    ``port`` is where it reaches the server: the server's own by default, or that of a proxy in between.
    """

    def __init__(
        self,
        server: PostgresServer,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        guard: OrphanGuard | None = None,
    ) -> None:
        program = find_pgbouncer()
        user = unprivileged_user()
        self.port = free_port()
        self._server = server
        self._folder = make_folder("adk-pgbouncer-", owner=user, guard=guard)
        account = urlsplit(server.url())
        users = self._folder / "users.txt"
        users.write_text(f'"{account.username}" "{account.password}"\n')
        chosen = {**_SETTINGS, **(settings or {}), "listen_port": str(self.port), "auth_file": str(users)}
        config = self._folder / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n* = host={HOST} port={port or server.port}\n[pgbouncer]\n"
            + "".join(f"{name} = {value}\n" for name, value in chosen.items())
        )
        if user is not None:
            for file in (users, config):
                shutil.chown(file, user)
        self._daemon = Daemon(
            [str(program), str(config)],
            log=self._folder / "server.log",
            ready=self._answers,
            # At once, without waiting for clients to go.
            stop_signal=signal.SIGTERM,
            user=user,
            guard=guard,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The process id, None while it is down."""
        return self._daemon.pid

    def start(self) -> None:
        """Start it if it is down; returns once it answers for the server."""
        self._daemon.start()

    def stop(self) -> None:
        """Stop it; connections are cut."""
        self._daemon.stop()

    def restart(self) -> None:
        """Stop it and start it again, on the same port."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop it and remove its files."""
        try:
            self.stop()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def log_tail(self, lines: int = 30) -> str:
        """Return the end of its log."""
        return self._daemon.log_tail(lines)

    def url(self, url: str) -> str:
        """Lead a URL of the server through here, as libpq takes it."""
        there = urlsplit(url)
        return urlunsplit(there._replace(netloc=f"{there.username}:{there.password}@{HOST}:{self.port}"))

    def _answers(self) -> bool:
        try:
            psycopg2.connect(self.url(self._server.url()), connect_timeout=60).close()
        except psycopg2.OperationalError:
            return False
        return True
