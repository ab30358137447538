"""A Redis cluster for tests: three masters on loopback, each with a third of the slots."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import redis

from tests.servers.daemon import HOST, free_port
from tests.servers.orphans import OrphanGuard
from tests.servers.redis import RedisServer
from tests.waiting import wait_until

_SLOTS = 16_384
_NODES = 3


class RedisCluster:
    """Three servers that know each other; ``close`` removes all of them."""

    def __init__(self, *, settings: Mapping[str, str] | None = None, guard: OrphanGuard | None = None) -> None:
        self._bus = [free_port() for _ in range(_NODES)]
        # One password for all, as a client has only one.
        self._password = RedisServer.new_password()
        self.nodes = [
            RedisServer(
                settings={
                    "cluster-enabled": "yes",
                    "cluster-config-file": "nodes.conf",
                    "cluster-port": str(port),
                    # Longer than a busy machine keeps a node from answering: it would be taken for one that is away.
                    "cluster-node-timeout": "20000",
                    # A node that is away takes its own slots with it, and no others.
                    "cluster-require-full-coverage": "no",
                    "databases": "1",
                    **(settings or {}),
                },
                password=self._password,
                guard=guard,
            )
            for port in self._bus
        ]

    def __enter__(self) -> Self:
        with ExitStack() as started:
            for node in self.nodes:
                started.enter_context(node)
            self._join()
            started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The address of one node, as the stores take it."""
        return f"redis+cluster://:{self._password}@{HOST}:{self.nodes[0].port}/0"

    def empty(self) -> None:
        """Remove all data."""
        for node in self.nodes:
            with redis.Redis.from_url(node.url()) as client:
                client.flushall()

    def healthy(self) -> bool:
        """Whether every node that runs knows of all slots."""
        return all(self._settled(node) for node in self.nodes if node.pid is not None)

    def close(self) -> None:
        """Stop the nodes and remove their files."""
        with ExitStack() as closing:
            for node in self.nodes:
                closing.callback(node.close)

    def _join(self) -> None:
        share = -(-_SLOTS // _NODES)
        for number, node in enumerate(self.nodes):
            with redis.Redis.from_url(node.url()) as client:
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
                last = min((number + 1) * share, _SLOTS) - 1
                client.execute_command("CLUSTER ADDSLOTSRANGE", number * share, last)
                if number:
                    client.execute_command("CLUSTER MEET", HOST, self.nodes[0].port, self._bus[0])
        wait_until(self.healthy, within=60, what="the nodes to know each other")

    @staticmethod
    def _settled(node: RedisServer) -> bool:
        with redis.Redis.from_url(node.url()) as client:
            told = client.execute_command("CLUSTER INFO")
            said = told if isinstance(told, dict) else dict(line.split(":") for line in told.decode().split())
            return said["cluster_state"] == "ok" and int(said["cluster_slots_ok"]) == _SLOTS
