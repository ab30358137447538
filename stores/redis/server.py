"""One Redis as the stores use it: operations on threads of their own, repeated where that is safe.

Each process makes its client and its threads when it first needs them, so that a fork shares no connection. Operations
may be awaited from any event loop and any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any, Final, TypeVar

from redis import Redis, RedisCluster
from redis.cluster import ClusterNode
from redis.commands.core import Script
from redis.exceptions import ConnectionError as ServerConnectionError
from redis.exceptions import RedisError, ResponseError

from adk_worker.errors import CommitUnknownError, ConfigurationError, SchemaVersionError, StoreUnavailableError
from adk_worker.log import get_logger
from adk_worker.memory.data import RunKey
from adk_worker.urls import without_secrets
from stores.redis.data import RunData
from stores.redis.durability import Facts
from stores.redis.failures import FAILURES, moved_away, translated
from stores.redis.keys import BUCKETS, NUMBERS, Keys
from stores.redis.target import Client, RedisOptions, make_client, parse_url
from stores.redis.transaction import Applied, Transaction

T = TypeVar("T")

_log = get_logger(__name__)

FORMAT: Final = "1"
"""What ``{adk:NNN}:store`` has to say: the version of all keys and fields."""
UPGRADE: Final = "adk db upgrade"

_TIMES: Final = 200
"""How often an operation is begun that others overtake. Each time one of them has succeeded."""
_READING: Final = frozenset({"look", "lapsed"})


class Server:
    """Runs functions of :class:`~stores.redis.data.RunData` as transactions. ``target`` is a URL, or a client.

    A client stays its owner's: its pool and its connections' settings are taken as they are, and it is not closed. It
    has to decode responses, and should send nothing twice by itself.

    :raises ConfigurationError: the URL, or the client, cannot be used.
    """

    def __init__(self, target: str | Client, options: RedisOptions) -> None:
        self.options = options
        self._given = None if isinstance(target, str) else target
        if isinstance(target, str):
            self._url, self.options = parse_url(target, options)
            self.name = without_secrets(self._url)
            """Which Redis, to be shown: without its password."""
        else:
            self._url = ""
            self.name = type(target).__name__
            if not target.get_encoder().decode_responses:
                raise ConfigurationError("a client given to the store has to be made with decode_responses=True.")
        self._by_process: dict[int, Process] = {}

    @classmethod
    def of(cls, target: str | Client | Server, options: Mapping[str, Any]) -> Server:
        """The server behind ``target``, which may be one already."""
        return target if isinstance(target, Server) else cls(target, RedisOptions(**options))

    async def write(self, bucket: int, work: Callable[[RunData], T]) -> T:
        """Run ``work`` as one transaction in a bucket: what it changed is written once it returns, all or nothing.

        It may be run more than once, always on rows that were read anew. Cancelling the awaiting coroutine stops
        nothing that has begun (F5).

        :raises StoreUnavailableError: no answer; nothing was written.
        :raises CommitUnknownError: the answer to the write was lost.
        :raises SchemaVersionError: the store is empty, or of another format.
        """
        return await self.run(lambda process: process.transact(bucket, work))

    async def run(self, work: Callable[[Process], T]) -> T:
        """Run ``work`` on a thread of the store's; raises as :meth:`write` does."""
        process = self._process()

        def carry_out() -> T:
            result = work(process)
            process.make_up()
            return result

        return await asyncio.get_running_loop().run_in_executor(process.threads, carry_out)

    async def close(self) -> None:
        """Close this process's connections and end its threads."""
        process = self._by_process.pop(os.getpid(), None)
        if process is not None:
            await asyncio.to_thread(process.close)

    def blocking(self) -> Process:
        """This process's part, for whoever has no event loop."""
        return self._process()

    def _process(self) -> Process:
        # No lock, which a fork could copy while it is held: should two threads be here at once, the process of one is
        # dropped unused. What a parent has made stays in the dictionary, for a child must not even close it.
        pid = os.getpid()
        process = self._by_process.get(pid)
        if process is None:
            process = self._by_process.setdefault(pid, Process(self._given, self._url, self.options, self.name))
        return process


class Process:
    """What one process has of a Redis. All its methods block."""

    def __init__(self, given: Client | None, url: str, options: RedisOptions, store: str) -> None:
        self.options = options
        self.store = store
        self.not_renewed: set[RunKey] = set()
        """Of whose leases the log has said that they cannot be renewed, since the runs cannot be read."""
        self._owed: deque[RunData] = deque()
        """Transactions that are committed, and of which an account was not told."""
        self._made_up_after = 0.0
        self._url = url
        self._given = given
        self._client = given
        self._scripts: dict[str, Script] = {}
        self._making = threading.Lock()
        self.threads = ThreadPoolExecutor(options.pool_size, thread_name_prefix="adk-store")

    @property
    def client(self) -> Client:
        """The client; that of a cluster connects as it is made."""
        with self._making:
            if self._client is None:
                self._client = make_client(self._url, self.options)
            return self._client

    def transact(self, bucket: int, work: Callable[[RunData], T]) -> T:
        """See :meth:`Server.write`."""
        for _ in range(_TIMES):
            transaction = Transaction(self, bucket)
            data = RunData(transaction, self.options, around=self)
            result = work(data)
            match data.flush():
                case Applied.DONE:
                    self._follow(data)
                    return result
                case Applied.MOVED:
                    continue
        raise StoreUnavailableError(store=self.store, reason=f"others have overtaken one write {_TIMES} times")

    def _follow(self, data: RunData) -> None:
        try:
            data.follow()
        except StoreUnavailableError as error:
            # Whoever repeats the operation may be refused, since by now the run rests, or is another's.
            self._owed.append(data)
            raise CommitUnknownError(store=self.store, reason=error.reason) from error

    def make_up(self) -> None:
        """Book what accounts were not told, since they did not answer. Late or twice, it counts once."""
        while self._owed and time.monotonic() >= self._made_up_after:
            try:
                owed = self._owed.popleft()
            except IndexError:  # another thread has taken it
                return
            try:
                owed.follow()
            except StoreUnavailableError:
                self._owed.append(owed)
                self._made_up_after = time.monotonic() + self.options.socket_timeout
            except Exception as error:  # noqa: BLE001 - what was asked for is done, and its answer is somebody's
                # A damaged account, or a store that is another one by now. Its kind alone: the text may quote the row.
                _log.error("account_not_told", error=type(error).__name__)

    def numbered(self, key: str, *, above: int, limit: int) -> Sequence[tuple[str, int]]:
        """The names in a sorted set with a number above that, in order, and these numbers; up to ``limit``."""
        found = self.ask(
            lambda client: client.zrangebyscore(key, f"({above}", "+inf", start=0, num=limit, withscores=True),
            reading=True,
        )
        return [(name, int(number)) for name, number in found]

    def named(self, key: str, *, behind: str | None, limit: int) -> Sequence[str]:
        """The names in a sorted set of one score that come after that one, in order; up to ``limit``."""
        first = "-" if behind is None else f"({behind}"
        found: Sequence[str] = self.ask(
            lambda client: client.zrangebylex(key, first, "+", start=0, num=limit), reading=True
        )
        return found

    def call(self, script: str, keys: Sequence[str], arguments: Sequence[str | int | float] = ()) -> Any:
        """Run a script. A read is sent once more where its connection turned out to be dead."""
        return self.ask(
            lambda client: self._script(script)(keys=keys, args=arguments, client=client), reading=script in _READING
        )

    def ask(self, command: Callable[[Any], T], *, reading: bool) -> T:
        """Send what ``command`` sends, and translate what goes wrong."""
        for left in (reading, False):
            try:
                return command(self.client)
            except FAILURES as error:
                if moved_away(error):
                    self._reconnect()
                if left and isinstance(error, ServerConnectionError):
                    continue
                told = translated(error, store=self.store, writing=not reading)
                if told is None:
                    raise
                raise told from error
        raise AssertionError("unreachable: the last attempt returns or raises")

    def names(self, key: str) -> Sequence[str]:
        """The names in a sorted set, in order."""
        found: Sequence[str] = self.ask(lambda client: client.zrange(key, 0, -1), reading=True)
        return found

    def next_number(self) -> int:
        """The number of the next run. One that is then not used leaves a gap, which nobody minds."""
        try:
            number: int = self.ask(lambda client: client.incr(NUMBERS), reading=False)
        except CommitUnknownError as error:
            raise StoreUnavailableError(store=self.store, reason=error.reason) from error
        return number

    def highest_number(self, bucket: int) -> int:
        """The number of a bucket's newest run; 0 if it has none."""
        key = Keys(bucket).runs
        newest = self.ask(lambda client: client.zrevrange(key, 0, 0, withscores=True), reading=True)
        return int(newest[0][1]) if newest else 0

    def skip_numbers(self, *, up_to: int) -> None:
        """See to it that the next run's number is above ``up_to``."""
        stands = int(self.ask(lambda client: client.get(NUMBERS), reading=True) or 0)
        if stands < up_to:
            self.ask(lambda client: client.incrby(NUMBERS, up_to - stands), reading=False)

    def check(self, found: str | None) -> int:
        """Read what a bucket's ``store`` key says, and return the epoch.

        :raises SchemaVersionError: another format, or nothing: the store was never made, or has come back empty.
        """
        if found is None:
            raise SchemaVersionError(found=None, wanted=FORMAT, command=UPGRADE)
        version, _, epoch = found.partition(":")
        if version != FORMAT:
            raise SchemaVersionError(found=version, wanted=FORMAT, command=UPGRADE)
        return int(epoch)

    def place(self, bucket: int) -> str:
        """Which node of a cluster has a bucket, as far as is known; a single server has all of them."""
        key = Keys(bucket).store

        def place(client: Client) -> str:
            if not isinstance(client, RedisCluster):
                return self.store
            node: ClusterNode | None = client.get_node_from_key(key)  # type: ignore[no-untyped-call]
            return "nowhere" if node is None else node.name

        return self.ask(place, reading=True)

    def store_of(self, bucket: int) -> str | None:
        """What a bucket's ``store`` key says."""
        key = Keys(bucket).store
        found: str | None = self.ask(lambda client: client.get(key), reading=True)
        return found

    def said(self) -> Sequence[str | None]:
        """What every bucket's ``store`` key says, in the order of buckets, asked for at once: a server may be far."""

        def ask(client: Any) -> Sequence[str | None]:
            with client.pipeline(transaction=False) as pipe:
                for bucket in range(BUCKETS):
                    pipe.get(Keys(bucket).store)
                found: Sequence[str | None] = pipe.execute()
                return found

        return self.ask(ask, reading=True)

    def epoch(self, bucket: int) -> int:
        """Check that a bucket is one of this format's, and return its epoch; raises as :meth:`check` does."""
        return self.check(self.store_of(bucket))

    def masters(self, settings: Sequence[str]) -> Sequence[Facts]:
        """The server, or the masters of a cluster, as they describe themselves."""
        if not isinstance(self.client, RedisCluster):
            return [self._facts(self.client, self.store, settings)]
        nodes: Sequence[ClusterNode] = self.client.get_primaries()  # type: ignore[no-untyped-call]
        return [self._facts(self.client.get_redis_connection(node), node.name, settings) for node in nodes]

    def _facts(self, client: Redis, name: str, settings: Sequence[str]) -> Facts:
        try:
            said = self._told(client.info, "replication")
            told = self._told(client.config_get, *settings)
        except RedisError as error:
            raise translated(error, store=self.store) or error from error
        said = said or {}
        return Facts(name, str(said.get("role", "master")), int(said.get("connected_slaves", 0)), told)

    def _told(self, command: Callable[..., Any], *arguments: str) -> Mapping[str, Any] | None:
        try:
            answer: Mapping[str, Any] = command(*arguments)
        except ResponseError:
            # Not allowed, or not there, as with many whose Redis is run for them.
            return None
        return answer

    def close(self) -> None:
        """End it."""
        self.threads.shutdown()
        if self._client is not None and self._given is None:
            self._client.close()

    def _script(self, name: str) -> Script:
        if name not in self._scripts:
            text = files(__package__).joinpath(f"{name}.lua").read_text()
            self._scripts[name] = self.client.register_script(text)
        return self._scripts[name]

    def _reconnect(self) -> None:
        if isinstance(self._client, RedisCluster):
            with contextlib.suppress(*FAILURES):
                self._client.nodes_manager.initialize()
        elif isinstance(self._client, Redis):
            self._client.connection_pool.disconnect(inuse_connections=False)
