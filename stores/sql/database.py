"""One database as the stores use it: transactions on threads of its own, repeated where that is safe.

Each process makes its engine, its threads and its watch when it first needs them, so that a fork shares no connection.
Operations may be awaited from any event loop and any thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from adk_worker.errors import ConfigurationError
from adk_worker.urls import without_secrets
from stores.sql.failures import rolled_back, translated
from stores.sql.limits import Limits
from stores.sql.silence import SilenceWatch, Watched
from stores.sql.target import WRITES, SqlOptions, limits_of, make_engine, parse_url

T = TypeVar("T")

_TIMES: Final = 6
"""How often a transaction is begun that the database rolls back in favour of another."""
_WATCHED: Final = "adk_watched"


class Database:
    """Runs functions of a connection as transactions. ``target`` is a URL, or an engine of PostgreSQL's.

    An engine stays its owner's: its pool and its connections' settings are taken as they are, and it is not closed.

    :raises ConfigurationError: the URL, or the engine, cannot be used.
    """

    def __init__(self, target: str | Engine, options: SqlOptions) -> None:
        self._options = options
        self._given = target if isinstance(target, Engine) else None
        self._url = target.url if isinstance(target, Engine) else parse_url(target)
        self.dialect = self._url.get_backend_name()
        self.name = without_secrets(self._url.render_as_string(hide_password=False))
        """Which database, to be shown: without its password."""
        own_sessions = self._given is None and self.dialect == "postgresql"
        asked = limits_of(self._url, options) if own_sessions else Limits.TRANSACTION
        self.mark = None if asked is Limits.TRANSACTION else asked.value
        """What a session with its limits has as :data:`~stores.sql.limits.MARK`; ``None`` where none was asked for."""
        if self._given is not None and self.dialect != "postgresql":
            raise ConfigurationError(
                f"an engine of {self.dialect} cannot be used as it is: its connections need settings that the store "
                "makes itself. Give the URL."
            )
        self._by_process: dict[int, _Process] = {}
        self._making: dict[int, threading.Lock] = {}
        self._pool_of: int | None = None
        """The process that uses the given engine's pool."""

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run ``work`` as one transaction that commits when it returns, and rolls back when it raises.

        It may be run more than once, always from the start and after a complete rollback. Cancelling the awaiting
        coroutine stops nothing that has begun (F5).

        :raises StoreUnavailableError: no answer; nothing was written.
        :raises CommitUnknownError: the connection was lost in COMMIT.
        :raises SchemaVersionError: there are no such tables.
        """
        process = self._process()
        return await asyncio.get_running_loop().run_in_executor(process.threads, process.write, work)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run ``work``, which only reads; raises as :meth:`write` does.

        On PostgreSQL each statement of it reads for itself, without a transaction around them: what has to be of one
        moment is one statement.
        """
        process = self._process()
        return await asyncio.get_running_loop().run_in_executor(process.threads, process.read, work)

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Wrap what runs on a connection of a caller's, in a transaction of the caller's.

        Only the want of our tables is ours to tell there. Any other error of the driver's is the caller's, whose
        transaction it has ended.
        """
        try:
            yield
        except DBAPIError as error:
            told = translated(error, store="of that connection")
            if isinstance(told, ConfigurationError):
                raise told from error
            raise

    async def close(self) -> None:
        """Close this process's connections and end its threads."""
        process = self._by_process.pop(os.getpid(), None)
        if process is not None:
            await asyncio.to_thread(process.close)

    def _process(self) -> _Process:
        # What a parent has made stays in the dictionary, for a child must not even close it.
        pid = os.getpid()
        process = self._by_process.get(pid)
        if process is None:
            # Each process has a lock of its own: one that is held while another thread forks stays held in the copy.
            with self._making.setdefault(pid, threading.Lock()):
                process = self._by_process.get(pid)
                if process is None:
                    process = _Process(self._engine(pid), self._options, store=self.name)
                    self._by_process[pid] = process
        return process

    def _engine(self, pid: int) -> _Engine:
        if self._given is None:
            return _Engine(make_engine(self._url, self._options), owned=True)
        if self._pool_of not in {None, pid}:
            # A fork has copied the pool.
            self._given.dispose(close=False)
        self._pool_of = pid
        return _Engine(self._given, owned=False)


class _Engine:
    """An engine, and the two that are derived from it: they share its pool, and listeners of theirs are not its own."""

    def __init__(self, engine: Engine, *, owned: bool) -> None:
        self.postgresql = engine.dialect.name == "postgresql"
        self.writer = engine.execution_options(**{WRITES: True})
        self.reader = engine.execution_options(**{WRITES: False})
        self._engine = engine
        self._owned = owned

    def on_connect(self, told: Callable[[Any, Any], None]) -> None:
        """Have ``told`` be called with each new connection, before all others, unless the pool is another's."""
        if self._owned and self.postgresql:
            event.listen(self._engine, "connect", told, insert=True)

    def close(self) -> None:
        """Close the pool, unless it is another's."""
        if self._owned:
            self._engine.dispose()


class _Process:
    """What one process has of a database."""

    def __init__(self, engine: _Engine, options: SqlOptions, *, store: str) -> None:
        self._engine = engine
        self._store = store
        self._watch = SilenceWatch(options.socket_timeout)
        self.threads = ThreadPoolExecutor(options.pool_size, thread_name_prefix="adk-store")
        # SQLite takes one write at a time, and whoever waits for another polls: within a process, stand in line.
        self._turn: AbstractContextManager[Any] = nullcontext() if engine.postgresql else threading.Lock()
        engine.on_connect(self._watch.connected)
        for derived in (engine.writer, engine.reader):
            event.listen(derived, "before_cursor_execute", _sending)
            event.listen(derived, "commit", _sending)

    def write(self, work: Callable[[Connection], T]) -> T:
        with self._turn:
            return self._until_done(self._engine.writer, work, commits=True)

    def read(self, work: Callable[[Connection], T]) -> T:
        return self._until_done(self._engine.reader, work, commits=False)

    def close(self) -> None:
        self.threads.shutdown()
        self._watch.close()
        self._engine.close()

    def _until_done(self, engine: Engine, work: Callable[[Connection], T], *, commits: bool) -> T:
        stale = False
        for left in reversed(range(_TIMES)):
            attempt = _Attempt(engine, commits=commits)
            try:
                return attempt.run(work, self._watch)
            except (DBAPIError, PoolTimeoutError) as error:
                if isinstance(error, DBAPIError) and left:
                    if rolled_back(error):
                        continue
                    # A pooled connection may have died unnoticed; its pool has been emptied by now. Once, and only
                    # where nothing can have been committed.
                    if not stale and attempt.was_stale(error):
                        stale = True
                        continue
                told = translated(error, store=self._store, committing=attempt.committing)
                if told is None:
                    raise
                raise told from error
        raise AssertionError("unreachable: the last attempt returns or raises")


class _Attempt:
    """One go at a transaction, and how far it came."""

    def __init__(self, engine: Engine, *, commits: bool) -> None:
        self._engine = engine
        self._commits = commits
        self._connected = False
        self._given_up = False
        self.committing = False

    def run(self, work: Callable[[Connection], T], watch: SilenceWatch) -> T:
        with watch.opening():
            opened = self._engine.connect()
        with opened as connection:
            self._connected = True
            if connection.dialect.name != "postgresql":
                return self._carry_out(work, connection)
            with self._watched(connection, watch), nullcontext() if self._commits else _without_begin(connection):
                return self._carry_out(work, connection)

    def _carry_out(self, work: Callable[[Connection], T], connection: Connection) -> T:
        result = work(connection)
        if self._commits:
            self.committing = True
            connection.commit()
        return result

    def was_stale(self, error: DBAPIError) -> bool:
        """Whether the connection was lost, before COMMIT, and not for its silence."""
        return self._connected and error.connection_invalidated and not self.committing and not self._given_up

    @contextmanager
    def _watched(self, connection: Connection, watch: SilenceWatch) -> Iterator[None]:
        info = connection.info
        with watch.over(connection.connection.fileno()) as watched:
            info[_WATCHED] = watched
            try:
                yield
            finally:
                self._given_up = watched.given_up
                del info[_WATCHED]


@contextmanager
def _without_begin(connection: Connection) -> Iterator[None]:
    """Have the driver send each statement alone: BEGIN and ROLLBACK would be two more round trips."""
    from psycopg2.extensions import TRANSACTION_STATUS_IDLE  # noqa: PLC0415 - of PostgreSQL's driver

    driver: Any = connection.connection.dbapi_connection
    if driver.get_transaction_status() != TRANSACTION_STATUS_IDLE:
        # An engine of the caller's may have begun one, to set something up.
        yield
        return
    driver.autocommit = True
    try:
        yield
    finally:
        if not driver.closed:
            driver.autocommit = False


def _sending(connection: Connection, *_: object) -> None:
    # The dictionary is the pooled connection's own; it is gone once that is found dead.
    watched: Watched | None = None if connection.invalidated else connection.info.get(_WATCHED)
    if watched is not None:
        watched.touch()
