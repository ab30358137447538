"""Processes that work on one SQLite file at once: `python -m tests.integration.sqlite_crowd URL PROCESSES TURNS RUNS`.

Each is forked before it has opened anything, and they begin together. What each came to is printed, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys

from adk_worker.checkpoint import Checkpoint, encode_checkpoint
from adk_worker.errors import RunLeaseError
from adk_worker.runs import Boundary
from adk_worker.transitions.runs import FleetPolicy, Then
from stores.sql import open_sql

TENANT = "acme"
POLICY = FleetPolicy(lease_ttl=600, dispatch_grace=600, dispatch_grace_max=600)
FIRST_TICKET = 1


async def work(url, number, turns, runs):
    """Take leases, calls and tickets that all others want too: the fences, keys and runs that this process got."""
    stores = open_sql(url, pool_size=2)
    fences, owned, taken = [], [], []
    for turn in range(turns):
        try:
            lease = await stores.leases.acquire("shared", tenant=TENANT, holder=f"{number}-{turn}", ttl_seconds=600)
        except RunLeaseError:
            pass
        else:
            fences.append(lease.fence)
            await stores.leases.release(lease)
        owner = f"owner-{number}"
        claim = await stores.idempotency.begin(f"key-{turn}", tenant=TENANT, owner=owner, digest="d")
        if claim.owned_in_flight_by(owner):
            owned.append(claim.key)
    for run in range(runs):
        run_id, holder = f"run-{run}", f"{number}-{run}"
        took = await stores.runs.take(run_id, tenant=TENANT, ticket=FIRST_TICKET, holder=holder, ttl_seconds=600)
        if took is not None:
            taken.append(run_id)
            frontier = Checkpoint(tenant=TENANT, run_id=run_id, agent="booking", revision="r1", sequence=1)
            boundary = Boundary(frontier, encode_checkpoint(frontier), Then.HAND_OVER)
            await stores.runs.commit(took.lease, boundary, policy=POLICY)
    await stores.lifecycle.close()
    return fences, owned, taken


def main(url, processes, turns, runs):
    """Run the crowd."""
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(processes), context.SimpleQueue()

    def process(number):
        barrier.wait(60)
        answers.put(asyncio.run(work(url, number, turns, runs)))

    crowd = [context.Process(target=process, args=(number,)) for number in range(processes)]
    for one in crowd:
        one.start()
    print(json.dumps([answers.get() for _ in crowd]))  # noqa: T201 - it is what this program is for
    for one in crowd:
        one.join()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
