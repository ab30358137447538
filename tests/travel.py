"""The booking service of examples/travel as a test's own process.

Its journal is the verdict over everything that a test makes a fleet do; its control plane is where faults come in. See
:mod:`examples.travel.service` for both, :mod:`examples.travel.faults` for what a rule does to which request.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from adk_worker.tools.context import ToolContext
from examples.travel.client import ask
from examples.travel.control import PATIENCE, Control, Made, Waiting
from examples.travel.faults import Place, Release, Rule
from examples.travel.journal import TRIP, Entry, Kind, Verdict, judge, read_journal
from tests.servers.daemon import free_port
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent


class TravelService:
    """One booking service: ``with TravelService.start(tmp_path) as travel``.

    ``options`` are the service's own (``--dedupe``, ``--fence``, ``--rows 100``). It ends with the block, and with this
    process even if that is killed.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.journal = folder / "travel.jsonl"
        self._ready = folder / "travel.ready"
        self._log = folder / "travel.log"
        self._options = options
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    # --- the process --------------------------------------------------------------------------------------------

    @classmethod
    def start(cls, folder: Path, *options: str) -> Self:
        """Start a service on a free port, with its journal in ``folder``, and return once it answers."""
        service = cls(folder, *options)
        service.restart()
        return service

    def restart(self) -> None:
        """Start it, again on the same port and journal if it ran before, and return once it answers.

        Faults are not in the journal: a service that starts has none.
        """
        self.stop()
        self._ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "examples.travel.service", "--stop-with-stdin", "--port", str(self._port)]
        command += ["--journal", str(self.journal), "--ready-file", str(self._ready), *self._options]
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        self._process = process

        def ready() -> bool:
            assert process.poll() is None, f"the booking service ended as it started:\n{self.log()}"
            return self._ready.exists()

        try:
            wait_until(ready, within=60, what="the booking service to be ready")
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop it in good order, whatever it holds. A service that ended by itself is an error, told with its log."""
        if self._process is None:
            return
        ended = self._process.poll()
        self._end(signal.SIGTERM)
        assert ended is None, f"the booking service had ended by itself ({ended}):\n{self.log()}"

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._end(signal.SIGKILL)

    def wait(self, *, within: float = 60) -> int:
        """Wait until it ends by itself, and return its exit code."""
        assert self._process is not None
        code = self._process.wait(within)
        self._end(signal.SIGTERM)
        return code

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(how)
        try:
            process.wait(60)
        finally:
            process.kill()
            process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        """What the service printed: nothing but its URL, unless something is wrong."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    # --- where it is, and what it has seen ----------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where it listens, the same over restarts."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> Mapping[str, str]:
        """What a worker's environment needs so that the travel agent's tools find this service."""
        return {"TRAVEL_URL": self.url}

    @property
    def control(self) -> Control:
        """The whole control plane; the methods below are its everyday part."""
        return Control(self.url)

    def entries(self) -> tuple[Entry, ...]:
        """The lines of its journal now, read from the file, also when it does not run."""
        return read_journal(self.journal)

    def verdict(self, *, runs: Iterable[tuple[str, str]] = (), each: Mapping[str, int] = TRIP) -> Verdict:
        """The verdict of its journal; see :func:`examples.travel.journal.judge`."""
        return judge(self.entries(), runs=runs, each=each)

    # --- faults -------------------------------------------------------------------------------------------------

    def add(self, rule: Rule) -> Made:
        """Make a rule of any kind."""
        return self.control.add(rule)

    def hold(self, kind: Kind | None = None, *, at: Place = "before_effect", **conditions: Any) -> Made:
        """Hold matching requests until they are released."""
        return self.control.hold(kind, at=at, **conditions)

    def release(
        self, *, rule: int | None = None, request: int | None = None, then: Release = "go_on"
    ) -> tuple[int, ...]:
        """Let go of one request, of one rule's, or end every rule."""
        return self.control.release(rule=rule, request=request, then=then)

    def waiting(self, *, rule: int | None = None, at_least: int = 0, within: float = PATIENCE) -> tuple[Waiting, ...]:
        """The requests inside a hold, once there are ``at_least`` so many."""
        return self.control.waiting(rule=rule, at_least=at_least, within=within)


class Caller:
    """Sends what the tools of one run would send, under the fence of one worker."""

    def __init__(
        self, service: TravelService, *, tenant: str = "acme", run_id: str = "run_1", fence: int | None = 1
    ) -> None:
        self._url = service.url
        self._run = (tenant, run_id)
        self._fence = fence

    def headers(self, key: str | None = None) -> dict[str, str]:
        """The headers of a call with that key."""
        tenant, run_id = self._run
        context = ToolContext(
            tenant=tenant, run_id=run_id, agent="travel", call_id="c", idempotency_key=key, fence=self._fence
        )
        return context.headers()

    def post(self, path: str, key: str, **body: Any) -> dict[str, Any]:
        """Any call."""
        return ask(self._url, "POST", path, body=body, headers=self.headers(key))

    def hold(self, key: str = "hold", **body: Any) -> dict[str, Any]:
        """Hold a seat."""
        return self.post("/holds", key, **{"flight": "LISBER1", "passenger": "Ada", **body})

    def book(self, key: str = "book", hold: str = "H1") -> dict[str, Any]:
        """Book the seat that is held."""
        return self.post("/bookings", key, hold=hold)

    def pay(self, amount_cents: int, key: str = "pay", booking: str = "B1") -> dict[str, Any]:
        """Pay for the booking."""
        return self.post("/payments", key, booking=booking, amount_cents=amount_cents)

    def known(self, key: str) -> dict[str, Any]:
        """Ask what the service knows of a key, which must be fit for a path."""
        return ask(self._url, "GET", f"/effects/{key}")

    def bar(self, key: str, **body: Any) -> dict[str, Any]:
        """Bar a key, which must be fit for a path."""
        return ask(self._url, "POST", f"/refuse/{key}", body=body)
