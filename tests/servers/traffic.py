"""The proxy's inside: connections in pairs, and the faults that wait for a request. Runs on the proxy's own loop."""

from __future__ import annotations

import asyncio
import enum
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from typing import cast

from tests.servers.daemon import HOST

Match = bytes | Callable[[bytes], bool]
"""What a fault waits for: bytes that a request contains, or a function that is shown the request so far."""

# What a fault gets to see of a request; the bytes that tell one from another stand at its start.
_WINDOW = 1 << 20


class Effect(enum.Enum):
    """What a fault does to the request that it waited for, and to its answer."""

    LOSE_REQUEST = "the connection is cut instead of forwarding the request"
    LOSE_ANSWER = "the connection is cut once the server has answered, without the answer"
    HOLD_REQUEST = "the request is kept back until the fault is released"
    HOLD_ANSWER = "the answer is kept back until the fault is released"
    NOTHING = "request and answer pass, and are counted"


class Fault:
    """One injury that waits for its request, and strikes so many ``times``."""

    def __init__(self, effect: Effect, match: Match, times: int) -> None:
        self.effect = effect
        self.count = 0
        """How often it has struck."""
        self._match = match
        self._left = times
        self._struck = threading.Event()
        self._released: Callable[[], object] = lambda: None

    def wait(self, *, within: float = 60.0) -> None:
        """Return once it has struck. Raises AssertionError when it has not within so many seconds."""
        if not self._struck.wait(within):
            raise AssertionError(f"no request came in {within:g} s that {self._match!r} matches")

    def release(self) -> None:
        """Let what it holds go where it was going, and hold no more."""
        self._left = 0
        self._released()

    def on_release(self, release: Callable[[], object]) -> None:
        """Set what :meth:`release` does. For the proxy."""
        self._released = release

    def takes(self, request: bytes) -> bool:
        """Say whether this is the request, and count it if so."""
        if self._left == 0:
            return False
        found = self._match in request if isinstance(self._match, bytes) else self._match(request)
        if found:
            self._left -= 1
        return found

    def strike(self) -> None:
        """Make known that it has happened."""
        self.count += 1
        self._struck.set()


class Traffic:
    """All that goes through one proxy: its links, its faults, and whether it is paused."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.links: set[Link] = set()
        self.faults: list[Fault] = []
        self.paused = False
        self.delay = 0.0
        self.accepted = 0
        self.dialling: set[asyncio.Task[None]] = set()

    def link(self) -> asyncio.Protocol:
        """Begin a link: return its client's end, for the connection that was taken."""
        return Link(self).client

    def pause(self, *, paused: bool) -> None:
        """Stop or go on reading from all ends."""
        self.paused = paused
        for link in self.links:
            link.settle()

    def cut(self) -> int:
        """Reset all links; return how many there were."""
        links = list(self.links)
        for link in links:
            link.cut()
        return len(links)

    def forget(self) -> int:
        """End the server's side of all links, and tell no client; return how many there were."""
        links = [link for link in self.links if not link.forgotten]
        for link in links:
            link.forget()
        return len(links)

    def let_go(self, fault: Fault) -> None:
        """Deliver what the fault holds."""
        for link in self.links:
            link.let_go(fault)


class Link:
    """A client's connection, and the one to the server that belongs to it."""

    def __init__(self, traffic: Traffic) -> None:
        self.client = End(self)
        self.server = End(self)
        self._traffic = traffic
        self._ended = False
        self.forgotten = False
        # What has come and was not carried on yet, with the moment from which it may be.
        self._coming: deque[tuple[float, End, bytes]] = deque()
        # What the client sent since the server's last answer.
        self._request = b""
        self._losing: Fault | None = None
        self._holding: Fault | None = None
        # Of a request or of an answer, as the fault that holds it says.
        self._held = b""

    def made(self, end: End) -> None:
        """Take note of a connection that stands; the client's asks for the server's."""
        if self._ended:
            end.reset()
        elif end is self.client:
            self._traffic.accepted += 1
            self._traffic.links.add(self)
            dial = asyncio.get_running_loop().create_task(self._dial())
            self._traffic.dialling.add(dial)
            dial.add_done_callback(self._traffic.dialling.discard)
        self.settle()

    def settle(self) -> None:
        """Read from both ends, or from neither: while there is no server yet, or while the traffic is paused."""
        self.client.read(reads=self._flows)
        self.server.read(reads=self._flows)
        self._carry_on()

    def received(self, end: End, data: bytes) -> None:
        """Carry bytes to the other end, now or after a delay, unless a fault has its way with them."""
        # Asked not to read, asyncio may read once more: up to Python 3.11.3 it begins to after connection_made.
        self._coming.append((asyncio.get_running_loop().time() + self._traffic.delay, end, data))
        self._carry_on()

    def lost(self, end: End, error: Exception | None) -> None:
        """End the other connection as this one ended."""
        if self.forgotten and end is self.server:
            return
        self._traffic.links.discard(self)
        self._ended = True
        other = self.server if end is self.client else self.client
        if error is None:
            other.close()
        else:
            other.reset()

    def cut(self) -> None:
        """Reset both connections."""
        self._traffic.links.discard(self)
        self._ended = True
        self.client.reset()
        self.server.reset()

    def forget(self) -> None:
        """Reset the server's connection alone; whatever the client sends from now on goes nowhere."""
        self.forgotten = True
        self.server.reset()

    def let_go(self, fault: Fault) -> None:
        """Deliver the request or the answer if it is this fault that holds it."""
        if self._holding is fault:
            held, self._holding, self._held = self._held, None, b""
            (self.server if fault.effect is Effect.HOLD_REQUEST else self.client).write(held)

    async def _dial(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.server, HOST, self._traffic.target)
        except OSError:
            self.cut()

    @property
    def _flows(self) -> bool:
        return self.server.transport is not None and not self._traffic.paused

    def _carry_on(self) -> None:
        loop = asyncio.get_running_loop()
        while self._flows and self._coming and self._coming[0][0] <= loop.time():
            _, end, data = self._coming.popleft()
            self._carry(end, data)
        if self._flows and self._coming:
            loop.call_at(self._coming[0][0], self._carry_on)

    def _carry(self, end: End, data: bytes) -> None:
        try:
            if end is self.client:
                self._from_client(data)
            else:
                self._from_server(data)
        except Exception:
            # A test's own predicate failed: the proxy reports that when it is closed, and nobody waits until then.
            self.cut()
            raise

    def _from_client(self, data: bytes) -> None:
        if self.forgotten:
            return
        if self._holding is not None and self._holding.effect is Effect.HOLD_REQUEST:
            self._held += data
            return
        self._request = (self._request + data)[:_WINDOW]
        for fault in self._traffic.faults:
            if not fault.takes(self._request):
                continue
            if fault.effect is Effect.NOTHING:
                fault.strike()
                continue
            if fault.effect is Effect.LOSE_REQUEST:
                self.cut()
                fault.strike()
                return
            if fault.effect is Effect.HOLD_REQUEST:
                self._holding, self._held = fault, data
                fault.strike()
                return
            if fault.effect is Effect.LOSE_ANSWER:
                self._losing = fault
            else:
                self._holding = fault
            # One request, one fault: the next that waits for the same takes the next.
            break
        self.server.write(data)

    def _from_server(self, data: bytes) -> None:
        self._request = b""
        if self._losing is not None:
            fault, self._losing = self._losing, None
            self.cut()
            fault.strike()
        elif self._holding is not None and self._holding.effect is Effect.HOLD_ANSWER:
            first = not self._held
            self._held += data
            if first:
                self._holding.strike()
        else:
            self.client.write(data)


class End(asyncio.Protocol):
    """One end of a link: the connection from the client, or the one to the server."""

    def __init__(self, link: Link) -> None:
        self.transport: asyncio.Transport | None = None
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self.transport = cast("asyncio.Transport", transport)
        self._link.made(self)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._link.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._link.lost(self, exc)

    def read(self, *, reads: bool) -> None:
        """Read, or leave what comes in the kernel's buffers."""
        if self._open is None:
            return
        if reads:
            self._open.resume_reading()
        else:
            self._open.pause_reading()

    def write(self, data: bytes) -> None:
        """Send bytes, if the connection stands."""
        if self._open is not None:
            self._open.write(data)

    def close(self) -> None:
        """Close the connection in good order, after what was written."""
        if self._open is not None:
            self._open.close()

    def reset(self) -> None:
        """Reset the connection: what the peer of a dead process or a dropped route sees."""
        if self._open is not None:
            # To linger for no time makes the close a reset.
            opened = self._open.get_extra_info("socket")
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._open.abort()

    @property
    def _open(self) -> asyncio.Transport | None:
        return None if self.transport is None or self.transport.is_closing() else self.transport
