"""The processes that the demo stands on: the booking service and the embedded fleet, in a folder of their own.

Each is started in a session of its own, so that Ctrl-C reaches the demo alone, which then ends them in order.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self, TypeVar

from adk_worker.cli import leash
from adk_worker.client import Fleet
from adk_worker.liveness import Holder, ProcessIdentity
from adk_worker.settings import Settings
from adk_worker.wiring import make_fleet

T = TypeVar("T")

ROOT: Final = Path(__file__).parents[2]
"""The checkout, from where ``examples`` can be imported."""

PATIENCE: Final = 120.0
"""Seconds that anything is waited for: for the day when it never comes, so generous."""

TIMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ADK_LEASE_TTL": "10",
        "ADK_LEASE_RENEW_WITHIN": "1",
        "ADK_REAP_EVERY": "0.5",
        "ADK_DISPATCH_GRACE": "3",
        "ADK_RETRY_BACKOFF": "0.5",
        "ADK_DRAIN_TIMEOUT": "5",
    }
)
"""So short that a dead worker is noticed while somebody watches, on a machine that may be busy with other things.

In earnest, keep the defaults.
"""

_PAUSE: Final = 0.05


class StageError(Exception):
    """The demo could not be performed; the message says what went wrong, in a sentence."""


def wait_for(look: Callable[[], T | None], what: str, *, within: float = PATIENCE) -> T:
    """Look again until there is something to return. Raises :class:`StageError` when it takes too long."""
    deadline = time.monotonic() + within
    while not (found := look()):
        if time.monotonic() >= deadline:
            raise StageError(f"waited {within:g} s in vain for {what}")
        time.sleep(_PAUSE)
    return found


class Program:
    """One process of the stage, with its output in a file; ended with the block that it is the context of."""

    def __init__(self, name: str, command: Sequence[str], *, folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own programs
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def check(self) -> None:
        """Raise :class:`StageError` if it has ended by itself."""
        code = self._process.poll()
        if code is not None:
            said = self.log.read_text(errors="replace").strip().splitlines()[-10:]
            raise StageError("\n".join([f"{self.name} ended by itself, with exit code {code}. Its last words:", *said]))

    def stop(self, *, within: float = 45.0) -> None:
        """SIGTERM, and SIGKILL to its whole session if that is not enough, or if somebody cannot wait for it."""
        try:
            if self._process.poll() is None:
                self._process.terminate()
                self._process.wait(within)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            # The session is its own (start_new_session), and its id is nobody else's before we have waited for it.
            os.killpg(self._process.pid, signal.SIGKILL)
            if isinstance(error, KeyboardInterrupt):
                raise
        finally:
            self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def environment(**more: str) -> dict[str, str]:
    """This process's environment with ``more``, for programs that import from the checkout."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **more}


class BookingService(Program):
    """The booking service on a free port, with its journal in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.journal = folder / "travel.jsonl"
        self._ready = folder / "travel.ready"
        command = [sys.executable, "-m", "examples.travel.service", "--stop-with-stdin"]
        command += ["--journal", str(self.journal), "--ready-file", str(self._ready)]
        super().__init__("booking-service", command, folder=folder, environment=environment())

    def url(self) -> str:
        """Where it listens, once it does."""

        def announced() -> str | None:
            self.check()
            return str(json.loads(self._ready.read_text())["url"]) if self._ready.exists() else None

        return wait_for(announced, "the booking service to listen")


def kill_holder(holder: str | None) -> ProcessIdentity:
    """SIGKILL to the very process that a lease's holder names, and return once it is dead.

    The name carries more than a pid: the process's start time and the kernel's boot, so that a pid which has been given
    to somebody else meanwhile is never hit.
    """
    found = Holder.parse(holder or "")
    if found is None:
        raise StageError(f"no worker holds the run whose worker was to be killed; its holder is {holder}")
    process, here = found.process, ProcessIdentity.current()
    if (process.boot, process.pid_namespace) != (here.boot, here.pid_namespace) or process.known_dead():
        raise StageError(f"worker {process.pid} is no living process of this machine")
    os.kill(process.pid, signal.SIGKILL)
    wait_for(process.known_dead, f"worker {process.pid} to be dead")
    return process


class EmbeddedFleet(Program):
    """``adk dev`` with two workers: SQLite in ``folder``, a broker on the loopback, a reaper, beat."""

    WORKERS = 2

    def __init__(self, folder: Path, *, travel_url: str) -> None:
        self._database = folder / "adk.db"
        self._port = folder / "broker.port"
        command = [sys.executable, "-m", "adk_worker.cli", "dev", "--agents", "examples.travel.agents"]
        command += ["--workers", str(self.WORKERS), "--db", str(self._database), "--port-file", str(self._port)]
        # Nor does it outlive the demo if that is killed; and what it has started does not outlive it.
        command = [sys.executable, "-I", "-S", str(leash.__file__), str(os.getpid()), *command]
        surroundings = environment(TRAVEL_URL=travel_url, TRAVEL_MODEL_DIR=str(folder))
        super().__init__("fleet", command, folder=folder, environment=surroundings)

    @property
    def store_url(self) -> str:
        """Where the runs are, also once the fleet has been stopped."""
        return f"sqlite:///{self._database}"

    def client(self) -> Fleet:
        """The fleet as a web app would have it, once all of it is ready."""

        def ready() -> str | None:
            self.check()
            return self._port.read_text().strip() if self._port.exists() else None

        port = wait_for(ready, "the embedded fleet to be ready")
        return make_fleet(Settings.load(store_url=self.store_url, broker_url=f"redis://127.0.0.1:{port}/0"))
