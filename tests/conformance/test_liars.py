"""The suites find the lies that stores are known to tell: each of these stores tells one, and one test sees it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from adk_worker.checkpoint import encode_checkpoint
from adk_worker.conformance import (
    CheckpointStoreConformance,
    HistoryStoreConformance,
    IdempotencyStoreConformance,
    LeaseStoreConformance,
    ResumeClaimsConformance,
    RunStoreConformance,
)
from adk_worker.errors import ClaimOwnerError
from adk_worker.idempotency import Claim, ClaimState
from adk_worker.memory import (
    MemoryCheckpointStore,
    MemoryData,
    MemoryHistoryStore,
    MemoryIdempotencyStore,
    MemoryLeaseStore,
    MemoryRunStore,
    memory_stores,
)
from adk_worker.messages import load_messages
from adk_worker.transitions import LeaseState, Verdict
from tests.architecture.packages import ROOT

SEEN = (AssertionError, pytest.fail.Exception)


class Forgetful(MemoryLeaseStore):
    """Deletes the row on release, so that the fence starts again."""

    async def release(self, lease):
        await super().release(lease)
        self._data.leases.pop((lease.tenant, lease.run_id), None)


class Trusting(MemoryLeaseStore):
    """Takes a holder's name for a password."""

    async def acquire(self, run_id, *, tenant, holder, ttl_seconds):
        held = await self.held(run_id, tenant=tenant)
        if held and held.holder == holder:
            return held
        return await super().acquire(run_id, tenant=tenant, holder=holder, ttl_seconds=ttl_seconds)


class Joining(MemoryLeaseStore):
    """Joins the two names into one."""

    async def acquire(self, run_id, *, tenant, holder, ttl_seconds):
        joined = await super().acquire(f"{tenant}:{run_id}", tenant="all", holder=holder, ttl_seconds=ttl_seconds)
        return replace(joined, tenant=tenant, run_id=run_id)


class Kind(MemoryLeaseStore):
    """Frees whatever stands under the name."""

    async def release(self, lease):
        key = (lease.tenant, lease.run_id)
        self._data.leases[key] = LeaseState(self._data.lease(key).fence)


class Racy(MemoryIdempotencyStore):
    """An upsert whose loser reads nothing from its snapshot, and goes on as if the key were its own."""

    async def begin(self, key, *, tenant, owner, digest):
        claim = await super().begin(key, tenant=tenant, owner=owner, digest=digest)
        return Claim(tenant, key, owner, digest, ClaimState.IN_FLIGHT, began_at=claim.began_at)


class Unowned(MemoryIdempotencyStore):
    """Lets anyone record an outcome."""

    async def record(self, claim, outcome):
        stands = (await self.peek([claim.key], tenant=claim.tenant))[claim.key]
        await super().record(stands or claim, outcome)


class Reusing(MemoryIdempotencyStore):
    """Does not look at the digest."""

    async def begin(self, key, *, tenant, owner, digest):
        stands = (await self.peek([key], tenant=tenant))[key]
        return await super().begin(key, tenant=tenant, owner=owner, digest=stands.digest if stands else digest)


class Overwriting(MemoryIdempotencyStore):
    """Lets a late outcome replace the settlement."""

    async def record(self, claim, outcome):
        self._data.claims.pop((claim.tenant, claim.key), None)
        await super().begin(claim.key, tenant=claim.tenant, owner=claim.owner, digest=claim.digest)
        await super().record(claim, outcome)


class Absent(MemoryIdempotencyStore):
    """Makes a claim absent that was taken over and abandoned, though its first owner may have dispatched."""

    async def abandon(self, claim):
        if self._data.claims.pop((claim.tenant, claim.key), None) is None:
            raise ClaimOwnerError(key=claim.key)


class Immortal(MemoryIdempotencyStore):
    """Lets a resume's claim stand until it is ended."""

    async def claim_resume(self, run_id, *, tenant, owner, fence=None, ttl_seconds=300.0):
        await super().claim_resume(run_id, tenant=tenant, owner=owner, fence=fence, ttl_seconds=1e9)


class Unfenced(MemoryCheckpointStore):
    """Forgets whatever the fence."""

    async def forget(self, run_id, *, tenant, fence=None):
        await super().forget(run_id, tenant=tenant)


class Capped(MemoryCheckpointStore):
    """Has a cap of its own, below the policy's, and says nothing."""

    async def put(self, checkpoint, *, fence=None):
        if len(encode_checkpoint(checkpoint)) <= 512 * 1024:
            await super().put(checkpoint, fence=fence)


class Live(MemoryCheckpointStore):
    """Keeps the object that it was given."""

    def __init__(self):
        super().__init__()
        self._kept = {}

    async def put(self, checkpoint, *, fence=None):
        self._kept[checkpoint.tenant, checkpoint.run_id] = checkpoint

    async def latest(self, run_id, *, tenant):
        return self._kept.get((tenant, run_id))


class Linear(MemoryHistoryStore):
    """Keeps one list per run, so that whoever appended last is seen."""

    def __init__(self):
        super().__init__()
        self._kept = {}

    async def append(self, run_id, *, tenant, start, messages, fence=None, after=None):
        self._kept[tenant, run_id] = [*self._kept.get((tenant, run_id), [])[:start], *messages]
        return await super().append(run_id, tenant=tenant, start=start, messages=messages, fence=fence, after=after)

    async def fetch(self, handle, *, tenant):
        fetched = await super().fetch(handle, tenant=tenant)
        return None if fetched is None else tuple(self._kept[tenant, "run"][: len(fetched)])


class Blind(MemoryRunStore):
    """Parks without looking at the claims again."""

    async def park(self, lease, *, attention, detail, undecided=(), events=()):
        seen = [(await self._stands(claim)) or claim for claim in undecided]
        return await super().park(lease, attention=attention, detail=detail, undecided=seen, events=events)

    async def _stands(self, claim):
        found = (await MemoryIdempotencyStore(self._data).peek([claim.key], tenant=claim.tenant))[claim.key]
        return found if found and found.state is ClaimState.IN_FLIGHT else None


class Twice(MemoryRunStore):
    """Publishes a lost message under a ticket of its own, so that a backlog multiplies."""

    async def claim_lapsed(self, *, policy, limit, count_crashes):
        acted = await super().claim_lapsed(policy=policy, limit=limit, count_crashes=count_crashes)
        for reaped in acted:
            key = (reaped.tenant, reaped.run_id)
            if reaped.verdict is Verdict.DONE:
                lease = self._data.lease(key)
                self._data.leases[key] = replace(lease, fence=lease.fence + 1)
        dispatched = [one.dispatch and replace(one.dispatch, ticket=one.dispatch.ticket + 1) for one in acted]
        return [replace(one, dispatch=dispatch) for one, dispatch in zip(acted, dispatched, strict=True)]


class Partial(MemoryRunStore):
    """Writes the transcript before it asks whether it may."""

    async def commit(self, lease, boundary, *, policy):
        if boundary.segment is not None:
            messages = MemoryHistoryStore(self._data)
            await messages.append(
                lease.run_id,
                tenant=lease.tenant,
                start=boundary.segment.after.count,
                messages=load_messages(boundary.segment.payload),
            )
        return await super().commit(lease, boundary, policy=policy)


def _bundle(runs):
    data = MemoryData()
    return replace(memory_stores(data), runs=runs(data))


@pytest.mark.parametrize(
    ("suite", "liar", "seen_by"),
    [
        (LeaseStoreConformance, Forgetful, "test_the_fence_survives_release_and_never_falls"),
        (LeaseStoreConformance, Trusting, "test_the_same_holder_is_refused_while_its_lease_lives"),
        (LeaseStoreConformance, Kind, "test_release_of_a_superseded_lease_frees_nothing"),
        (IdempotencyStoreConformance, Racy, "test_of_many_that_begin_exactly_one_owns"),
        (IdempotencyStoreConformance, Racy, "test_of_many_that_begin_in_threads_exactly_one_owns"),
        (IdempotencyStoreConformance, Unowned, "test_a_stranger_records_nothing"),
        (IdempotencyStoreConformance, Reusing, "test_a_key_with_another_digest_is_refused"),
        (IdempotencyStoreConformance, Overwriting, "test_an_outcome_after_the_settlement_is_evidence"),
        (IdempotencyStoreConformance, Absent, "test_a_claim_taken_over_and_abandoned_is_the_former_owners_again"),
        (CheckpointStoreConformance, Capped, "test_a_store_has_no_cap_below_the_policys"),
        (CheckpointStoreConformance, Live, "test_what_is_stored_is_no_live_object"),
        (HistoryStoreConformance, Linear, "test_what_a_superseded_worker_appends_is_never_seen"),
    ],
)
async def test_a_lone_store_that_lies_is_seen(suite, liar, seen_by):
    with pytest.raises(SEEN):
        await getattr(suite(), seen_by)(liar())


async def test_a_store_that_joins_names_is_seen():
    """T1: `a:b` + `c` is refused as if it were `a` + `b:c`."""
    with pytest.raises(Exception, match="held by"):
        await LeaseStoreConformance().test_no_name_reaches_anothers_lease(Joining())


async def test_a_store_that_forgets_under_any_fence_is_seen():
    """F1."""
    with pytest.raises(SEEN):
        await CheckpointStoreConformance().test_a_stale_fence_writes_nothing(Unfenced(), None)


async def test_a_claim_that_never_expires_is_seen(monkeypatch):
    """I9."""
    monkeypatch.setattr("adk_worker.conformance.waiting._DEADLINE", 0.2)

    with pytest.raises(SEEN, match="in vain"):
        await ResumeClaimsConformance().test_a_claim_expires_by_the_stores_clock(Immortal())


@pytest.mark.parametrize(
    ("liar", "seen_by", "arguments"),
    [
        (Blind, "test_a_run_is_not_parked_on_a_call_that_was_decided", ("taken over",)),
        (Twice, "test_a_lost_message_is_published_again_under_the_same_ticket", ()),
        (Partial, "test_a_boundary_follows_the_one_before", (3,)),
    ],
)
async def test_a_run_store_that_lies_is_seen(liar, seen_by, arguments):
    with pytest.raises(SEEN):
        await getattr(RunStoreConformance(), seen_by)(_bundle(liar), *arguments)


_ELSEWHERE = """
import pytest_asyncio
from adk_worker.conformance import LeaseStoreConformance
from adk_worker.memory import MemoryLeaseStore

class TestTheirs(LeaseStoreConformance):
    @pytest_asyncio.fixture
    async def store(self):
        yield MemoryLeaseStore()
"""


def test_the_suites_run_in_somebody_elses_project(tmp_path):
    """Without a line of this project's configuration: in pytest-asyncio's strict mode, which is its default."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    (tmp_path / "test_theirs.py").write_text(_ELSEWHERE)

    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-W",
            "error",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            tmp_path,
            tmp_path,
        ],
        check=False,
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout


def test_an_assertion_that_fails_shows_its_values():
    """Every module of the suites that asserts is rewritten by pytest, as a test's own module is."""
    folder = ROOT / "adk_worker" / "conformance"
    asserting = {
        "adk_worker.conformance." + ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if "assert " in path.read_text()
    }

    plain = {name for name in asserting if not hasattr(sys.modules[name], "@pytest_ar")}

    assert plain == set()


def test_a_suite_without_a_store_says_what_is_missing(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_theirs.py").write_text(
        "from adk_worker.conformance import HistoryStoreConformance\nclass TestTheirs(HistoryStoreConformance): pass\n"
    )

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path],
        check=False,
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 1
    assert "override the fixture `store`" in ran.stdout
