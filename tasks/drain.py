"""How the processes of a worker learn that it is leaving.

Under prefork the parent alone hears of it, so that the word has to travel through something that its children inherit:
a pipe, into which one byte is written and from which nobody ever reads. It is readable from then on, to all of them.
The same pipe serves a worker that is a single process.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable


class Drain:
    """Made before the fork. :meth:`send` may be called by a signal handler, and more than once."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._sent = False

    def send(self) -> None:
        """Tell every process that has inherited this, now and later."""
        if not self._sent:
            self._sent = True
            os.write(self._write, b"!")

    def fileno(self) -> int:
        """What becomes readable once it was sent, and stays so; for whoever watches files already."""
        return self._read

    @property
    def sent(self) -> bool:
        """Whether it was sent, by whichever process."""
        return bool(_readable(self._read, timeout=0))

    def watch(self, then: Callable[[], None]) -> Watch:
        """Call ``then`` in a thread of its own, once it is sent."""
        return Watch(self._read, then)

    def close(self) -> None:
        """Give the pipe up; all watches have been stopped before."""
        os.close(self._read)
        os.close(self._write)


class Watch:
    """A thread that waits for a :class:`Drain`. It ends once that was sent, or when it is stopped."""

    def __init__(self, read: int, then: Callable[[], None]) -> None:
        self._read = read
        self._then = then
        self._stopped, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._main, name="adk-drain", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait no longer. To be called once."""
        os.write(self._stop, b"!")
        self._thread.join()
        os.close(self._stopped)
        os.close(self._stop)

    def _main(self) -> None:
        if self._stopped not in _readable(self._read, self._stopped):
            self._then()


def _readable(*files: int, timeout: float | None = None) -> set[int]:
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return {file for file, _ in poll.poll(timeout)}
