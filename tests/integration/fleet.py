"""Celery's programs as a test starts them, on a store in a file and a real broker."""

from __future__ import annotations

import asyncio
import os
import sys

from adk_worker.runs import Dispatch, NewRun
from adk_worker.settings import Settings
from stores import open_stores
from stores.sql import migrate
from tasks.dispatch import CeleryDispatcher
from tests.acceptance.fleet import PATIENCE, Process
from tests.architecture.packages import ROOT
from tests.waiting import wait_until


class CeleryFleet:
    """A folder with a store, a broker, and the programs that the test starts."""

    def __init__(self, folder, broker_url, guard):
        self.folder = folder
        self.store_url = f"sqlite:///{folder}/runs.db"
        self.broker_url = broker_url
        self._guard = guard
        self._programs = []
        self.times = {
            "ADK_LEASE_TTL": "120",
            "ADK_DISPATCH_GRACE": "120",
            "ADK_REAP_EVERY": "0.5",
            "ADK_DRAIN_TIMEOUT": "30",
        }

    @property
    def settings(self):
        return Settings(store_url=self.store_url, broker_url=self.broker_url, lease_ttl=120, dispatch_grace=120)

    # --- programs -----------------------------------------------------------------------------------------------

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ADK_", "CELERY"))}
        ours = {
            **self.times,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "ADK_STORE_URL": self.store_url,
            "ADK_BROKER_URL": self.broker_url,
            "ADK_AGENTS": "tests.integration.agents",
            "ADK_TEST_FOLDER": str(self.folder),
            **more,
        }
        return kept | {name: value for name, value in ours.items() if value is not None}

    def celery(self, *arguments, **how):
        return self.program("celery", "-A", "tasks.app", *arguments, **how)

    def program(self, module, *arguments, name="celery", ready=None, **environment):
        command = [sys.executable, "-m", module, *arguments]
        log = self.folder / f"{name}.log"
        program = Process(name, command, log=log, environment=self.environment(**environment))
        self._programs.append(program)
        self._guard.watch(program.pid)
        if ready:
            wait_until(lambda: program.says(ready), within=PATIENCE, what=f"{name} to be ready")
        return program

    def worker(self, *arguments, pool="threads", name="worker", queues="adk", ready="ready.", **environment):
        quick = ("--without-mingle", "--without-gossip", "-l", "INFO", "-n", f"{name}@%h")
        return self.celery(
            "worker", "-Q", queues, "-P", pool, "-c", "2", *quick, *arguments, name=name, ready=ready, **environment
        )

    def backstage(self):
        self.celery("beat", "-l", "INFO", "--pidfile=", name="beat")
        self.worker("-c", "1", name="control", queues="adk.control", ADK_AGENTS=None)

    def close(self):
        for program in reversed(self._programs):
            program.kill()

    # --- the store ----------------------------------------------------------------------------------------------

    def make_store(self):
        migrate.upgrade(self.store_url)

    def with_stores(self, work):
        async def run():
            stores = open_stores(self.store_url, pool_size=1)
            try:
                return await work(stores)
            finally:
                await stores.lifecycle.close()

        return asyncio.run(run())

    def submit(self, told, run_id="run_1", *, published=True):
        """A run that calls the tools named in ``told``, and its first message, published or not."""
        new = NewRun(tenant="acme", run_id=run_id, agent="walker", input=told)
        policy = self.settings.fleet_policy
        submitted = self.with_stores(lambda stores: stores.runs.submit(new, policy=policy))
        message = Dispatch("acme", run_id, submitted.ticket)
        if published:
            self.publish(message)
        return message

    def lapse(self, run_id):
        """Have the queue's lease lapse at once, as it does when nobody takes the message in time."""

        async def lapse(stores):
            run = await stores.runs.get(run_id, tenant="acme")
            taken = await stores.runs.take(run_id, tenant="acme", ticket=run.fence, holder="test", ttl_seconds=60)
            await stores.leases.release(taken.lease)

        self.with_stores(lapse)

    def publish(self, *messages):
        async def run():
            dispatcher = CeleryDispatcher.from_settings(self.settings)
            for message in messages:
                await dispatcher.dispatch(message)
            await dispatcher.close()

        asyncio.run(run())

    def get(self, run_id="run_1"):
        return self.with_stores(lambda stores: stores.runs.get(run_id, tenant="acme"))

    def events(self, run_id="run_1"):
        return self.with_stores(lambda stores: stores.runs.events(run_id, tenant="acme"))

    def rests(self, run_id="run_1"):
        """The run, once nothing moves it any more."""
        return wait_until(
            lambda: run if (run := self.get(run_id)).status.resting else None,
            within=PATIENCE,
            what=f"{run_id} to rest; logs:\n{self.logs()}",
        )

    # --- what happened ------------------------------------------------------------------------------------------

    def written(self, name):
        path = self.folder / name
        return path.read_text().split() if path.exists() else []

    def begun(self, times=1):
        wait_until(lambda: len(self.written("begun")) >= times, within=PATIENCE, what="a tool to have begun")

    def release(self):
        (self.folder / "release").touch()

    def logs(self):
        return "\n".join(f"--- {program.name}\n{program.log()[-3000:]}" for program in self._programs)
