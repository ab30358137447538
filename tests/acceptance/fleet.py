"""A fleet under test: real Celery processes, each started and ended by its pid, on servers that a test may injure."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import psutil

from adk_worker.client import Fleet
from adk_worker.events import Event
from adk_worker.runs import Dispatch, Run, RunStatus
from adk_worker.settings import Settings
from adk_worker.wiring import make_fleet
from examples.travel.model import ModelCall, ModelSide
from tasks.dispatch import CeleryDispatcher
from tests.acceptance import broker
from tests.servers import OrphanGuard
from tests.travel import ROOT, TravelService
from tests.waiting import wait_until

PATIENCE = 60.0
"""Seconds that a test waits for the fleet to do something, on a machine that may be busy."""

SHORT: Mapping[str, str] = {
    "ADK_LEASE_TTL": "6",
    "ADK_LEASE_RENEW_WITHIN": "1",
    "ADK_REAP_EVERY": "0.5",
    "ADK_DISPATCH_GRACE": "2",
    "ADK_RETRY_BACKOFF": "0.2",
    "ADK_MAX_CRASHES": "5",
    "ADK_DRAIN_TIMEOUT": "5",
}
"""Times so short that a recovery is seen within seconds; every wait in the tests is for the thing itself."""

LONG: Mapping[str, str] = {
    **SHORT,
    "ADK_LEASE_TTL": "600",
    "ADK_LEASE_RENEW_WITHIN": "200",
    "ADK_DISPATCH_GRACE": "600",
}
"""Times longer than any test may take, so that nothing in one is recovered by a lease that lapses."""

POOLS: Mapping[str, Sequence[str]] = {
    "threads": ("--pool", "threads", "--concurrency", "8"),
    "prefork": ("--pool", "prefork", "--concurrency", "2"),
}


ALONE: Sequence[str] = ("--without-gossip", "--without-mingle")
"""Workers that do not wait for a second to hear of each other as they start."""

_BOUNDARIES = frozenset({"after_model_call", "after_tool_result", "before_approval", "completed"})


class Process:
    """One process of the fleet, with its log in a file."""

    def __init__(self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command,
                cwd=environment.get("ADK_TEST_ROOT", ROOT),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process's id, which stays its own until it has been waited for."""
        return self._process.pid

    def log(self) -> str:
        """All that it printed."""
        return self._log.read_text(errors="replace")

    def says(self, what: str) -> bool:
        """Whether it has printed ``what``; fails when it has ended."""
        assert self._process.poll() is None, f"{self.name} ended by itself:\n{self.log()[-4000:]}"
        return what in self.log()

    def ends(self, *, within: float) -> int:
        """Its exit code, once it has ended by itself."""
        return self._process.wait(within)

    def children(self) -> list[psutil.Process]:
        """Its processes below it, the pool's of a prefork worker."""
        return psutil.Process(self.pid).children(recursive=True)

    def kill(self) -> None:
        """SIGKILL to it and, at the same moment as far as that goes, to all below it; and wait until they are dead."""
        if self._process.poll() is not None:
            return
        victims = [psutil.Process(self.pid), *self.children()]
        for victim in victims:
            with _gone_already():
                victim.kill()
        self._process.wait(PATIENCE)
        wait_until(lambda: all(map(_dead, victims[1:])), within=PATIENCE, what=f"all of {self.name} to be dead")

    def pause(self) -> None:
        """SIGSTOP to it and all below it."""
        for process in (psutil.Process(self.pid), *self.children()):
            process.suspend()

    def go_on(self) -> None:
        """SIGCONT to it and all below it."""
        for process in (*self.children(), psutil.Process(self.pid)):
            process.resume()

    def stop(self) -> int:
        """SIGTERM, and wait until it is gone; SIGKILL if it does not go."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"{self.name} does not end on SIGTERM:\n{self.log()[-4000:]}") from None
        return self._process.wait()


def _dead(process: psutil.Process) -> bool:
    """Whether it runs nothing any more. Its number may stay taken for seconds, until whoever adopted it takes note."""
    try:
        zombie = process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
        return zombie or not process.is_running()
    except psutil.NoSuchProcess:
        return True


@contextmanager
def _gone_already() -> Iterator[None]:
    try:
        yield
    except psutil.NoSuchProcess:
        return


class FleetUnderTest:
    """One store, one broker, one booking service, and the processes that a test starts on them."""

    def __init__(
        self,
        folder: Path,
        *,
        store_url: str,
        broker_url: str,
        travel: TravelService,
        guard: OrphanGuard,
        times: Mapping[str, str] = SHORT,
        root: Path = ROOT,
        patience: float = PATIENCE,
        queue_type: Literal["classic", "quorum"] = "classic",
    ) -> None:
        self.folder = folder
        self.travel = travel
        self.patience = patience
        self.store_url = store_url
        self.broker_url = broker_url
        self.models = ModelSide(folder)
        self._guard = guard
        self._root = root
        self._times = times
        self._queue_type = queue_type
        self._processes: list[Process] = []
        self._fleet: Fleet | None = None

    # --- processes ----------------------------------------------------------------------------------------------

    def environment(self, **more: str) -> dict[str, str]:
        """What a process of this fleet finds in its environment."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ADK_", "TRAVEL_"))}
        return {
            **kept,
            **self._times,
            **self.travel.environment,
            "PYTHONPATH": str(self._root),
            "ADK_TEST_ROOT": str(self._root),
            "PYTHONUNBUFFERED": "1",
            "ADK_STORE_URL": self.store_url,
            "ADK_BROKER_URL": self.broker_url,
            "ADK_QUEUE_TYPE": self._queue_type,
            "ADK_AGENTS": "tests.acceptance.agents",
            "TRAVEL_MODEL_DIR": str(self.folder),
            **more,
        }

    def celery(
        self,
        name: str,
        *arguments: str,
        ready: str | None = None,
        wrapped: Sequence[str] = (),
        **environment: str,
    ) -> Process:
        """Start a Celery program, ``wrapped`` in a command; return once its log says ``ready``."""
        command = [*wrapped, sys.executable, "-m", "celery", "-A", "tasks.app", *arguments]
        process = Process(name, command, log=self.folder / f"{name}.log", environment=self.environment(**environment))
        self._processes.append(process)
        self._guard.watch(process.pid)
        if ready:
            wait_until(lambda: process.says(ready), within=PATIENCE, what=f"{name} to be ready")
        return process

    def worker(
        self,
        name: str,
        *,
        pool: str = "threads",
        slots: int | None = None,
        wrapped: Sequence[str] = (),
        **environment: str,
    ) -> Process:
        """Start a worker, and return once it consumes. ``slots`` is how many tasks it carries out at once."""
        arguments = ["worker", "-Q", "adk", "-n", f"{name}@%h", "-l", "INFO", *ALONE, *POOLS[pool]]
        if slots is not None:
            arguments += ["--concurrency", str(slots)]
        return self.celery(name, *arguments, ready=" ready.", wrapped=wrapped, **environment)

    def adk(self, name: str, *arguments: str, **environment: str) -> Process:
        """Start ``adk``, for a test that injures it."""
        command = [sys.executable, "-m", "adk_worker.cli", *arguments]
        process = Process(name, command, log=self.folder / f"{name}.log", environment=self.environment(**environment))
        self._processes.append(process)
        self._guard.watch(process.pid)
        return process

    def backstage(self) -> None:
        """Start what reaps: beat, and a worker of the control queue."""
        self.celery("beat", "beat", "-l", "INFO", "-s", str(self.folder / "beat-schedule"), "--pidfile", "")
        arguments = (
            "worker",
            "-Q",
            "adk.control",
            "-n",
            "control@%h",
            "-c",
            "1",
            "-P",
            "threads",
            "-l",
            "INFO",
            *ALONE,
        )
        self.celery("control", *arguments, ready=" ready.")

    def kill_everything(self) -> None:
        """SIGKILL to every process of the fleet; the servers stay."""
        for process in reversed(self._processes):
            process.kill()

    def close(self) -> None:
        """End every process, the youngest first, and give back what the client has open."""
        if self._fleet is not None:
            self._fleet.sync.close()
        for process in reversed(self._processes):
            process.kill()

    def printed(self, what: str) -> bool:
        """Whether any process has printed ``what``, also one that has ended."""
        return any(what in process.log() for process in self._processes)

    def logs(self) -> str:
        """The end of every log, for a failure; what stood before it may have been the thing looked for."""
        return "\n".join(f"--- {process.name}\n{process.log()[-3000:]}" for process in self._processes)

    # --- runs ---------------------------------------------------------------------------------------------------

    @property
    def sync(self) -> Any:
        """The client's blocking face, as a web app would have it."""
        if self._fleet is None:
            self._fleet = make_fleet(self.settings)
        return self._fleet.sync

    @property
    def settings(self) -> Settings:
        """What a web app beside the fleet has in its environment; it does not import the agents' code."""
        times = {name.removeprefix("ADK_").lower(): value for name, value in self._times.items()}
        urls = {"store_url": self.store_url, "broker_url": self.broker_url}
        return Settings(**urls, queue_type=self._queue_type, **times)

    def submit(self, run_id: str, *, agent: str = "travel", **metadata: Any) -> Run:
        """Submit a run."""
        return self.sync.submit(agent, "a seat to Berlin, please", tenant="acme", run_id=run_id, metadata=metadata)

    def publish(self, message: Dispatch) -> None:
        """Put a message on the broker, as a copy of one would come."""
        dispatcher = CeleryDispatcher.from_settings(self.settings)

        async def publish() -> None:
            await dispatcher.dispatch(message)
            await dispatcher.close()

        asyncio.run(publish())

    def backlog(self) -> int:
        """How many messages wait on the broker for a worker."""
        return broker.waiting(self.broker_url)

    def run(self, run_id: str) -> Run:
        """The run as it stands."""
        return self.sync.get(run_id, tenant="acme")

    def events(self, run_id: str, kind: str | None = None) -> list[Event]:
        """What happened to it."""
        store = self.sync.events(run_id, tenant="acme")
        return [event for event in store if kind in {None, event.kind}]

    def asked(self, run_id: str, *, iteration: int) -> ModelCall:
        """Wait until the model has been asked for that iteration, and return the first such call."""

        def calls() -> list[ModelCall]:
            began = self.models.calls("began")
            return [call for call in began if (call.run_id, call.iteration) == (run_id, iteration)]

        return wait_until(
            calls, within=self.patience, what=f"the model to be asked for {run_id}'s iteration {iteration}"
        )[0]

    def rests(self, run_id: str, status: RunStatus = RunStatus.COMPLETED) -> Run:
        """Wait until nothing moves the run any more, and check where it rests."""
        run = self.rests_somehow(run_id)
        assert run.status is status, f"{run_id} is {run.status}: {run.attention}, {run.detail}\n{self.logs()}"
        return run

    def rests_somehow(self, run_id: str) -> Run:
        """Wait until nothing moves the run any more, and tell where it rests."""

        def resting() -> Run | None:
            run = self.run(run_id)
            if run.status.resting:
                return run
            # What a superseded worker has overwritten may never rest.
            self.nobody_wrote_after_being_superseded(run_id)
            return None

        return wait_until(resting, within=self.patience, what=f"{run_id} to rest\n{self.logs()}")

    def ends(self, run_id: str) -> Run:
        """Wait until the run is over, whatever it rests for on its way; check that it completed."""

        def over() -> Run | None:
            run = self.run(run_id)
            return run if run.status.ended else None

        run = wait_until(over, within=self.patience, what=f"{run_id} to end\n{self.logs()}")
        assert run.status is RunStatus.COMPLETED, f"{run_id} is {run.status}: {run.detail}\n{self.logs()}"
        return run

    def done_once(self, *run_ids: str) -> None:
        """The verdict: all completed, every seat booked once and paid once, as the booking service has it."""
        for run_id in run_ids:
            self.rests(run_id)
            self.nobody_wrote_after_being_superseded(run_id)
        verdict = self.travel.verdict(runs=[("acme", run_id) for run_id in run_ids])
        assert verdict.ok, f"{verdict}\n{self.logs()}"

    def nobody_wrote_after_being_superseded(self, run_id: str) -> None:
        """F1: once a fence has been given, no boundary is committed under a lower one."""
        highest = 0
        for event in self.events(run_id):
            if event.kind == "taken":
                highest = event.fence
            elif event.kind in _BOUNDARIES:
                assert event.fence >= highest, f"{event} was written by a superseded worker: {self.events(run_id)}"
