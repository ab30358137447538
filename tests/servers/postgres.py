"""A PostgreSQL server for tests."""

from __future__ import annotations

import itertools
import secrets
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import psycopg2
from psycopg2 import sql

from tests.servers.binaries import find_postgres
from tests.servers.daemon import HOST, Daemon, ServerFailedError, as_user, free_port, make_folder, unprivileged_user
from tests.servers.orphans import OrphanGuard

_USER = "adk"

# A crash of the server's processes loses nothing with these, since what was written is in the kernel's hands; only a
# crash of the machine would. synchronous_commit stays on for that very reason: off loses commits with the process.
_FAST = {"fsync": "off", "full_page_writes": "off"}

_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    # Nobody's default and not a whole number of hours from UTC: a time that is read or written without its zone shows.
    "timezone": "Asia/Kathmandu",
    "log_timezone": "UTC",
    # The default waits for a checkpoint of a minute's length to end before a stop.
    "checkpoint_timeout": "1h",
}


class PostgresServer:
    """A cluster of its own. Give ``durable=True`` for the settings that a production server has (slower).

    ``url(database)`` is what libpq, and so psycopg2, takes. Start, stop, kill and restart keep port and data; ``close``
    ends the server and removes the data.
    """

    def __init__(
        self,
        *,
        durable: bool = False,
        settings: Mapping[str, str] | None = None,
        guard: OrphanGuard | None = None,
    ) -> None:
        programs = find_postgres()
        user = unprivileged_user()
        self.port = free_port()
        self._password = secrets.token_hex(12)
        self._folder = make_folder("adk-postgres-", owner=user, guard=guard)
        self._databases = itertools.count(1)
        self._templates: set[str] = set()
        self._initialise(programs, user)
        chosen = {**_SETTINGS, **({} if durable else _FAST), **(settings or {}), "port": str(self.port)}
        flags = [flag for name, value in chosen.items() for flag in ("-c", f"{name}={value}")]
        self._daemon = Daemon(
            [str(programs / "postgres"), "-D", str(self._folder / "data"), *flags],
            log=self._folder / "server.log",
            ready=self._answers,
            # "Fast" shutdown: clients are disconnected, not waited for.
            stop_signal=signal.SIGINT,
            user=user,
            # A killed postmaster's children notice within moments; until the last is gone, the data is not given out.
            passing="pre-existing shared memory block",
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
        """The postmaster's process id, None while the server is down."""
        return self._daemon.pid

    def start(self) -> None:
        """Start the server if it is down; returns once it answers."""
        self._daemon.start()

    def stop(self) -> None:
        """Stop the server in good order; connections are cut."""
        self._daemon.stop()

    def restart(self) -> None:
        """Stop the server and start it again, on the same port and data."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """SIGKILL to the postmaster. Its other processes notice and end by themselves; ``start`` waits for that."""
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

    def url(self, database: str = "postgres") -> str:
        """Return the address of a database, password included: ``postgresql://user:password@host:port/database``."""
        return f"postgresql://{_USER}:{self._password}@{HOST}:{self.port}/{database}"

    def execute(self, statement: str | sql.Composable, *, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement outside a transaction and return its rows, if it has any."""
        connection = psycopg2.connect(self.url(database), connect_timeout=60)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def create_database(self, *, template: str = "template1") -> str:
        """Make a database, empty or a copy of ``template``, and return its URL."""
        name = f"test_{next(self._databases)}"
        self.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template)))
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop the database with that URL; connections that are left to it are cut."""
        name = urlsplit(url).path.removeprefix("/")
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    @contextmanager
    def database(self, *, template: str = "template1") -> Iterator[str]:
        """Lend the URL of a database that exists for this block; the server may be restarted meanwhile."""
        url = self.create_database(template=template)
        try:
            yield url
        finally:
            self.start()
            self.drop_database(url)

    def template(self, name: str, prepare: Callable[[str], object]) -> str:
        """Make a database named ``name`` once, have ``prepare(url)`` fill it once, and return the name.

        For :meth:`create_database` and :meth:`database`: a copy of a migrated database takes milliseconds, a migration
        seconds. ``prepare`` must have closed its connections, since nobody may be connected to a template.
        """
        if name not in self._templates:
            self.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            prepare(self.url(name))
            self._templates.add(name)
        return name

    def connections(self, url: str) -> int:
        """Return how many clients are connected to the database with that URL."""
        name = urlsplit(url).path.removeprefix("/")
        counted = self.execute(
            sql.SQL("SELECT count(*) FROM pg_stat_activity WHERE datname = {}").format(sql.Literal(name))
        )
        return int(counted[0][0])

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg2.OperationalError:
            return False
        return True

    def _initialise(self, programs: Path, user: str | None) -> None:
        password = self._folder / "password"
        password.write_text(self._password)
        if user is not None:
            shutil.chown(password, user)
        # Checked in clear text, which is enough on loopback: each connection would pay for anything better.
        made = subprocess.run(
            [
                str(programs / "initdb"),
                f"--pgdata={self._folder / 'data'}",
                f"--username={_USER}",
                f"--pwfile={password}",
                "--auth=password",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
            ],
            check=False,
            capture_output=True,
            text=True,
            cwd=self._folder,
            **as_user(user),
        )
        password.unlink()
        if made.returncode != 0:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise ServerFailedError(f"initdb failed:\n{made.stdout}\n{made.stderr}")
