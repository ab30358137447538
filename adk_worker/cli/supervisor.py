"""Keeps programs running: starts them, forwards what they print, starts them again when they end, stops them in order.

None of them outlives this process, not even when it is killed (:mod:`adk_worker.cli.leash`). Each is the leader of a
process group of its own, so that Ctrl-C in the terminal reaches the supervisor alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from adk_worker.cli import leash
from adk_worker.errors import ConfigurationError

_EX_CONFIG: Final = 78
_TRIES: Final = 3
"""How often a program may end before it was ready even once."""
_SHORT_LIFE: Final = 3.0
"""A program that ended within so many seconds is started again with a pause, which doubles each time."""
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 10.0
_LONGEST_LINE: Final = 100_000
_LAST_WORDS: Final = 1.0
"""How long the output of a program that has ended is waited for, in seconds; something below it may hold the pipe."""


@dataclass(frozen=True, slots=True)
class Program:
    """What to run.

    ``ready`` is what it prints once it works; lines with one of ``unsaid`` are not passed on; ``patience`` is how long
    it may take to stop, in seconds.
    """

    name: str
    command: Sequence[str]
    ready: str
    unsaid: tuple[str, ...] = ()
    patience: float = 10.0


class Supervisor:
    """Runs programs until :meth:`stop`.

    :param tell: called with a program's name and a line of its output, or of ours about it.
    :param pause: before a program is started again that ended at once, in seconds; doubled each time.
    """

    def __init__(
        self, environment: Mapping[str, str], tell: Callable[[str, str], None], *, pause: float = _PAUSE
    ) -> None:
        self._environment = environment
        self._tell = tell
        self._pause = pause
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()

    def stop(self) -> None:
        """Stop everything, in order; called again: at once. From the loop's thread."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    async def run(self, *stages: Sequence[Program], on_ready: Callable[[], None]) -> None:
        """Start the stages, each when all programs of the one before are ready; returns when all are stopped.

        They are stopped in the opposite order.

        :raises ConfigurationError: a program cannot be got to run.
        """
        up: list[list[_Supervised]] = []
        try:
            for stage in stages:
                programs = [_Supervised(program, self._environment, self._tell, self._pause) for program in stage]
                up.append(programs)
                for program in programs:
                    program.start()
                if not await self._go_on(up, [program.ready.wait() for program in programs]):
                    return
            on_ready()
            await self._go_on(up, [self._stopping.wait()])
        finally:
            for programs in reversed(up):
                await asyncio.gather(*(program.stop(self._hurry) for program in programs))

    async def _go_on(self, up: Sequence[Sequence[_Supervised]], until: Sequence[Coroutine[Any, Any, Any]]) -> bool:
        """Wait for all of ``until``; ``False`` if told to stop before, and raises what ended a program for good."""
        failing = [program.keeping for programs in up for program in programs if program.keeping is not None]
        all_done = asyncio.gather(*until)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            awaited: list[asyncio.Future[Any]] = [all_done, stopping, *failing]
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            for keeping in failing:
                if keeping.done():
                    keeping.result()
            return not self._stopping.is_set()
        finally:
            all_done.cancel()
            stopping.cancel()
            await asyncio.gather(all_done, stopping, return_exceptions=True)


class _Supervised:
    """One program, in one process after another."""

    def __init__(
        self, program: Program, environment: Mapping[str, str], tell: Callable[[str, str], None], pause: float
    ) -> None:
        self._pause = pause
        self._program = program
        self._environment = environment
        self._tell = tell
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self.ready = asyncio.Event()
        self.keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to keep it running; :attr:`keeping` ends with an error if that is in vain."""
        self.keeping = asyncio.create_task(self._keep())

    async def stop(self, hurry: asyncio.Event) -> None:
        """SIGTERM, and SIGKILL to its whole group if it takes too long or ``hurry`` is set; returns when it is gone."""
        self._stopping.set()
        if self.keeping is None:
            return
        hurried = asyncio.create_task(hurry.wait())
        try:
            self._signal(signal.SIGTERM)
            await asyncio.wait([self.keeping, hurried], timeout=self._program.patience, return_when="FIRST_COMPLETED")
            if not self.keeping.done():
                self._tell(self._program.name, "does not end: killing it")
                self._signal(signal.SIGKILL)
            # An error of its own has been raised already, or comes too late to matter.
            await asyncio.gather(self.keeping, return_exceptions=True)
        finally:
            hurried.cancel()
            await asyncio.gather(hurried, return_exceptions=True)

    async def _keep(self) -> None:
        clock = asyncio.get_running_loop().time
        tries, pause = 0, 0.0
        while not self._stopping.is_set():
            began = clock()
            code = await self._live()
            if self._stopping.is_set():
                self._tell(self._program.name, f"has ended ({_ending(code)})")
                return
            tries += 1
            if code == _EX_CONFIG or (tries >= _TRIES and not self.ready.is_set()):
                raise ConfigurationError(
                    f"{self._program.name} does not start ({_ending(code)}); what it printed above says why."
                )
            self._tell(self._program.name, f"has ended ({_ending(code)}): starting it again")
            if clock() - began >= _SHORT_LIFE:
                pause = 0.0
                continue
            pause = min(2 * pause, _LONGEST_PAUSE) if pause else self._pause
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _live(self) -> int:
        """One life of the program, from its start to its end; its exit code, negative for a signal."""
        command = [sys.executable, "-I", "-S", str(leash.__file__), str(os.getpid()), *self._program.command]
        # A pipe of our own: one of asyncio's would be open for as long as anything below the program has it.
        reading, writing = os.pipe()
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                env=self._environment,
                process_group=0,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        forwarding = asyncio.create_task(self._forward(reading))
        self._tell(self._program.name, f"runs as pid {process.pid}")
        if self._stopping.is_set():  # while it was being started
            self._signal(signal.SIGTERM)
        try:
            code = await process.wait()
            # Pool processes below a program that was killed: they would carry on with nobody above them.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.wait([forwarding], timeout=_LAST_WORDS)
            return code
        finally:
            self._process = None
            forwarding.cancel()
            await asyncio.gather(forwarding, return_exceptions=True)

    async def _forward(self, reading: int) -> None:
        output = asyncio.StreamReader()
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(reading, "rb", 0)
        )
        try:
            rest = b""
            while chunk := await output.read(65_536):
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > _LONGEST_LINE:
                    lines, rest = [*lines, rest], b""
                for line in lines:
                    self._line(line)
            if rest:
                self._line(rest)
        finally:
            pipe.close()

    def _line(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if self._program.ready in text:
            self.ready.set()
        if text and not any(part in text for part in self._program.unsaid):
            self._tell(self._program.name, text)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if number is signal.SIGKILL:
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
