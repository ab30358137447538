"""A TCP proxy that injures the traffic between a client and a server.

It serves the moments that a test cannot wait for: a connection that dies, a server that is not reached, a network that
swallows everything, and the worst one, an answer that is lost after the server acted:

    with Proxy(server.port) as proxy:
        store = open_store(proxy.url(server.url("test")))
        fault = proxy.lose_answer(to=b"COMMIT")
        ...  # the client sends COMMIT, the server commits, and the client sees a lost connection
        fault.wait()

A fault is shown what a client has sent since the server's last answer, which is one request of PostgreSQL's and Redis'
clients as long as they wait for their answers. The proxy runs on a thread of its own: a test may block as it likes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

from tests.servers.daemon import HOST, free_port
from tests.servers.traffic import Effect, Fault, Match, Traffic

R = TypeVar("R")


class Proxy:
    """Listens on a free loopback port and carries connections to ``port``; a context manager.

    All switches have taken effect when they return. They may be used from any thread.
    """

    def __init__(self, port: int) -> None:
        self.port = 0
        self._traffic = Traffic(port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._errors: list[str] = []

    def __enter__(self) -> Self:
        self._loop.set_exception_handler(lambda _, context: self._errors.append(str(context)))
        self._thread.start()
        self.accept()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._errors and error is None:
            raise AssertionError(f"the proxy itself failed: {self._errors}")

    def url(self, url: str) -> str:
        """Return ``url``, of the server behind it, with the way led through this proxy."""
        parts = urlsplit(url)
        credentials, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{credentials}{at}{HOST}:{self.port}"))

    @property
    def connections(self) -> int:
        """How many connections go through it now."""
        return len(self._traffic.links)

    @property
    def accepted(self) -> int:
        """How many connections clients have made through it so far."""
        return self._traffic.accepted

    def cut(self) -> int:
        """Reset all connections, on both sides, and return how many there were. New ones are taken."""

        async def cut() -> int:
            return self._traffic.cut()

        return self._run(cut())

    def half_open(self) -> int:
        """Reset the server's side of all connections and say nothing to the clients; return how many there were.

        So it looks to a client when the server's machine has restarted, or a firewall has forgotten: its connection
        stands, and what it sends goes nowhere. New connections are taken.
        """

        async def forget() -> int:
            return self._traffic.forget()

        return self._run(forget())

    def delay(self, seconds: float) -> None:
        """From now on, hold each piece of what is sent for so long, in either direction; 0 ends it."""

        async def delay() -> None:
            self._traffic.delay = seconds

        self._run(delay())

    def refuse(self) -> None:
        """Refuse new connections, as a machine does on which nothing listens. Those that stand go on."""
        self._run(self._refuse())

    def accept(self) -> None:
        """Take new connections again, on the same port."""
        self._run(self._accept())

    def pause(self) -> None:
        """Carry nothing in either direction, like a network that drops every packet: nobody sees an error.

        New connections are taken, and hear nothing.
        """
        self._run(self._pause(paused=True))

    def resume(self) -> None:
        """Carry on, with what was sent meanwhile, as TCP does when packets get through again."""
        self._run(self._pause(paused=False))

    def lose_request(self, to: Match, *, times: int = 1) -> Fault:
        """Cut the connection *instead of* forwarding the request: it did not happen, and the client cannot know."""
        return self._add(Fault(Effect.LOSE_REQUEST, to, times))

    def lose_answer(self, to: Match, *, times: int = 1) -> Fault:
        """Forward the request, wait until the server answers, then cut: it happened, and the client cannot know."""
        return self._add(Fault(Effect.LOSE_ANSWER, to, times))

    def hold_request(self, to: Match, *, times: int = 1) -> Fault:
        """Keep the request back until ``release()`` of the fault: until then it has not happened, and may yet."""
        return self._hold(Fault(Effect.HOLD_REQUEST, to, times))

    def hold_answer(self, to: Match, *, times: int = 1) -> Fault:
        """Forward the request, and keep the answer back until ``release()`` of the fault: it happened, unseen."""
        return self._hold(Fault(Effect.HOLD_ANSWER, to, times))

    def count(self, to: Match) -> Fault:
        """Count the requests, in ``count`` of what is returned, and do nothing to them.

        A request that the client sends in pieces is shown piece by piece, so let a short one be what is counted.
        """
        return self._add(Fault(Effect.NOTHING, to, times=-1))

    def _hold(self, fault: Fault) -> Fault:
        async def let_go() -> None:
            self._traffic.let_go(fault)

        fault.on_release(lambda: self._run(let_go()))
        return self._add(fault)

    def _add(self, fault: Fault) -> Fault:
        async def add() -> None:
            self._traffic.faults.append(fault)

        self._run(add())
        return fault

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=60)

    async def _accept(self) -> None:
        if self._server is None:
            # Chosen once, and where nobody's outgoing connection can sit on it while it refuses.
            self.port = self.port or free_port()
            self._server = await self._loop.create_server(self._traffic.link, HOST, self.port)

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _pause(self, *, paused: bool) -> None:
        self._traffic.pause(paused=paused)

    async def _close(self) -> None:
        self._traffic.cut()
        dialling = list(self._traffic.dialling)
        for task in dialling:
            task.cancel()
        await asyncio.gather(*dialling, return_exceptions=True)
        # A turn of the loop, in which the transports close their sockets.
        await asyncio.sleep(0)
