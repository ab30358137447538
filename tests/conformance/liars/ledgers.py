"""Bundles whose run store lies about what runs and tenants may spend."""

from __future__ import annotations

import time
from dataclasses import replace

from adk_worker.conformance import RunStoreConformance
from adk_worker.ledger.accounts import Account
from adk_worker.ledger.amounts import Amount, Budget, Unaccounted
from adk_worker.ledger.booking import Ledger
from adk_worker.memory import MemoryRunStore
from adk_worker.runs import Submitted
from adk_worker.transitions.runs import Verdict
from tests.conformance.liars.lie import Lie, bundle


def _key(lease):
    return lease.tenant, lease.run_id


class Doubling(MemoryRunStore):
    """Takes a reservation that comes again for another one (F5, C6)."""

    async def reserve(self, lease, asked):
        before = self._data.opened.get(_key(lease))
        answer = await super().reserve(lease, asked)
        if before is not None and answer.verdict is Verdict.DONE:
            account = self._data.accounts[lease.tenant]
            self._data.accounts[lease.tenant] = account.reserve(asked)
        return answer


class Charging(MemoryRunStore):
    """Settles a boundary that comes again once more (F5, C6)."""

    async def commit(self, lease, boundary, *, policy):
        committed = await super().commit(lease, boundary, policy=policy)
        if committed.verdict is Verdict.REPEATED and boundary.charge is not None:
            stored = self._data.runs[_key(lease)]
            spent = stored.ledger.spent + boundary.charge.amount
            self._data.runs[_key(lease)] = replace(stored, ledger=replace(stored.ledger, spent=spent))
        return committed


class Forgiving(MemoryRunStore):
    """Takes a call of a dead worker for free (C6)."""

    async def claim_lapsed(self, *, policy, limit, count_crashes):
        reaped = await super().claim_lapsed(policy=policy, limit=limit, count_crashes=count_crashes)
        for one in reaped:
            stored = self._data.runs[one.tenant, one.run_id]
            free = replace(stored.ledger, unaccounted=Unaccounted())
            self._data.runs[one.tenant, one.run_id] = replace(stored, ledger=free)
        return reaped


class Guessing(MemoryRunStore):
    """Takes a call of a dead worker for spent (C6)."""

    async def claim_lapsed(self, *, policy, limit, count_crashes):
        reaped = await super().claim_lapsed(policy=policy, limit=limit, count_crashes=count_crashes)
        for one in reaped:
            stored = self._data.runs[one.tenant, one.run_id]
            gone = stored.ledger.unaccounted.amount
            spent = replace(stored.ledger, spent=stored.ledger.spent + gone, unaccounted=Unaccounted())
            self._data.runs[one.tenant, one.run_id] = replace(stored, ledger=spent)
        return reaped


class Overlooking(MemoryRunStore):
    """Counts the calls of dead workers, and not towards the limit (C6)."""

    async def reserve(self, lease, asked):
        stored = self._data.runs[_key(lease)]
        kept = stored.ledger.unaccounted
        self._data.runs[_key(lease)] = replace(stored, ledger=replace(stored.ledger, unaccounted=Unaccounted()))
        try:
            return await super().reserve(lease, asked)
        finally:
            after = self._data.runs[_key(lease)]
            self._data.runs[_key(lease)] = replace(after, ledger=replace(after.ledger, unaccounted=kept))


class Hoping(MemoryRunStore):
    """Looks whether there is room, and takes it a moment later (P3, L7)."""

    async def reserve(self, lease, asked):
        account = self._data.accounts.get(lease.tenant)
        fits = account is not None and account.refusal(asked.amount) is None
        time.sleep(0.005)  # noqa: ASYNC251, TID251 - the moment in which another one looks too
        if not fits:
            return await super().reserve(lease, asked)
        with self._data.lock:
            stands = self._data.accounts[lease.tenant]
            self._data.accounts[lease.tenant] = replace(stands, limits=Budget(tokens=1 << 40))
            try:
                return await super().reserve(lease, asked)
            finally:
                after = self._data.accounts[lease.tenant]
                self._data.accounts[lease.tenant] = replace(after, limits=stands.limits)


class Sharing(MemoryRunStore):
    """Counts what the runs of one tenant reserve on everybody's accounts (T1)."""

    async def reserve(self, lease, asked):
        answer = await super().reserve(lease, asked)
        for tenant in [tenant for tenant in self._data.accounts if tenant != lease.tenant]:
            self._data.accounts[tenant] = self._data.accounts[tenant].reserve(asked)
        return answer


class Lenient(MemoryRunStore):
    """Says that a call is over the limit, and lets it pass (P3)."""

    async def reserve(self, lease, asked):
        stored = self._data.runs[_key(lease)]
        limits = stored.ledger.limits
        self._data.runs[_key(lease)] = replace(stored, ledger=replace(stored.ledger, limits=Budget()))
        try:
            return await super().reserve(lease, asked)
        finally:
            after = self._data.runs[_key(lease)]
            self._data.runs[_key(lease)] = replace(after, ledger=replace(after.ledger, limits=limits))


class Unmoved(MemoryRunStore):
    """Raises the limit of a parked run, and leaves it parked (P3)."""

    async def change_budget(self, run_id, *, tenant, change, by, policy):
        refused = self._data.runs[tenant, run_id].ledger.refused
        stored = self._data.runs[tenant, run_id]
        self._data.runs[tenant, run_id] = replace(stored, ledger=replace(stored.ledger, refused=None))
        submitted = await super().change_budget(run_id, tenant=tenant, change=change, by=by, policy=policy)
        after = self._data.runs[tenant, run_id]
        self._data.runs[tenant, run_id] = replace(after, ledger=replace(after.ledger, refused=refused))
        return Submitted(submitted.run, None)


class Silent(MemoryRunStore):
    """Tells no worker that its calls have to be reserved (P3)."""

    async def take(self, run_id, *, tenant, ticket, holder, ttl_seconds):
        taken = await super().take(run_id, tenant=tenant, ticket=ticket, holder=holder, ttl_seconds=ttl_seconds)
        return None if taken is None else replace(taken, limited=False)


class Reporting(MemoryRunStore):
    """Takes what the frontier says of the run's usage for what it has spent (C6)."""

    async def commit(self, lease, boundary, *, policy):
        committed = await super().commit(lease, boundary, policy=policy)
        stored = self._data.runs[_key(lease)]
        usage = boundary.checkpoint.usage
        spent = Amount(usage.input_tokens + usage.output_tokens, boundary.checkpoint.cost_micros)
        self._data.runs[_key(lease)] = replace(stored, ledger=replace(stored.ledger, spent=spent))
        return committed


class Refreshing(MemoryRunStore):
    """Begins a run's ledger anew when it is queued again (C6)."""

    async def change_budget(self, run_id, *, tenant, change, by, policy):
        submitted = await super().change_budget(run_id, tenant=tenant, change=change, by=by, policy=policy)
        stored = self._data.runs[tenant, run_id]
        self._data.runs[tenant, run_id] = replace(stored, ledger=Ledger(limits=stored.ledger.limits))
        return submitted


class Oblivious(MemoryRunStore):
    """Raises a limit, and keeps nowhere that those who were parked on it have to go on (P3)."""

    async def change_account(self, tenant, *, change, by):
        before = self._data.accounts.get(tenant, Account()).waitlist
        account = await super().change_account(tenant, change=change, by=by)
        self._data.accounts[tenant] = replace(account, waitlist=before)
        return account


class Premature(MemoryRunStore):
    """Takes a round for made that has looked at some of those who wait (P3)."""

    async def requeue_over_budget(self, made, *, by, policy, limit):
        answer = await super().requeue_over_budget(made, by=by, policy=policy, limit=limit)
        stands = self._data.accounts[made.tenant]
        served = stands.waitlist.serve(stands.waitlist, empty=False)
        self._data.accounts[made.tenant] = replace(stands, waitlist=served)
        return answer


class Overtaken(MemoryRunStore):
    """Takes a raise for seen to by the round that was under way (P3)."""

    async def requeue_over_budget(self, made, *, by, policy, limit):
        found, rest = await super().requeue_over_budget(made, by=by, policy=policy, limit=limit)
        if rest is None and not made.moved and not found:
            stands = self._data.accounts[made.tenant]
            served = stands.waitlist.serve(stands.waitlist, empty=False)
            self._data.accounts[made.tenant] = replace(stands, waitlist=served)
        return found, rest


class Eager(MemoryRunStore):
    """Queues whoever waits, whether they fit or not (P3)."""

    async def requeue_over_budget(self, made, *, by, policy, limit):
        stands = self._data.accounts[made.tenant]
        self._data.accounts[made.tenant] = replace(stands, limits=Budget())
        answer = await super().requeue_over_budget(made, by=by, policy=policy, limit=limit)
        after = self._data.accounts[made.tenant]
        self._data.accounts[made.tenant] = replace(after, limits=stands.limits)
        return answer


class Promiscuous(MemoryRunStore):
    """Promises the same room to all (P3)."""

    async def requeue_over_budget(self, made, *, by, policy, limit):
        answer = await super().requeue_over_budget(replace(made, promised=Amount()), by=by, policy=policy, limit=limit)
        found, rest = answer
        return found, None if rest is None else replace(rest, promised=Amount())


class Unhearing(MemoryRunStore):
    """Lets nobody know of room that a call has not taken (P3)."""

    async def commit(self, lease, boundary, *, policy):
        committed = await super().commit(lease, boundary, policy=policy)
        if (stands := self._data.accounts.get(lease.tenant)) is not None:
            served = stands.waitlist.serve(stands.waitlist, empty=False)
            self._data.accounts[lease.tenant] = replace(stands, waitlist=served)
        return committed


class Restless(MemoryRunStore):
    """Says that there is something to be done wherever room comes back, and nobody waits (P3)."""

    async def commit(self, lease, boundary, *, policy):
        if (stands := self._data.accounts.get(lease.tenant)) is not None:
            self._data.accounts[lease.tenant] = replace(stands, waitlist=stands.waitlist.join())
        return await super().commit(lease, boundary, policy=policy)


def _lie(kind, seen_by):
    return Lie(RunStoreConformance, bundle(runs=kind), seen_by)


LIES = (
    _lie(Doubling, "test_a_reservation_that_comes_again_counts_once_there_too"),
    _lie(Charging, "test_a_boundary_that_comes_again_settles_once"),
    _lie(Forgiving, "test_a_call_in_flight_at_a_crash_is_unaccounted"),
    _lie(Guessing, "test_a_call_in_flight_at_a_crash_is_unaccounted"),
    _lie(Overlooking, "test_a_call_in_flight_at_a_crash_is_unaccounted"),
    _lie(Hoping, "test_of_many_runs_no_more_reserve_than_there_is_room_for"),
    _lie(Sharing, "test_another_tenant_is_not_touched"),
    _lie(Lenient, "test_a_call_over_the_limit_parks_the_run_before_it_is_made"),
    _lie(Unmoved, "test_a_raise_queues_the_run_again_in_its_own_write"),
    _lie(Silent, "test_a_run_has_the_limits_that_it_was_submitted_with"),
    _lie(Silent, "test_a_worker_is_told_of_its_tenants_limits"),
    _lie(Reporting, "test_what_is_reserved_is_settled_by_the_boundary"),
    _lie(Oblivious, "test_a_raise_whose_program_dies_is_carried_through_by_whoever_sweeps"),
    _lie(Premature, "test_a_raise_whose_program_dies_is_carried_through_by_whoever_sweeps"),
    _lie(Overtaken, "test_a_raise_during_a_round_is_not_lost"),
    _lie(Eager, "test_what_does_not_fit_stays_parked"),
    _lie(Promiscuous, "test_no_more_are_queued_than_there_is_room_for"),
    _lie(Unhearing, "test_room_that_a_settlement_gives_back_is_for_those_who_wait"),
    _lie(Restless, "test_where_nobody_waits_nothing_is_due"),
    _lie(Refreshing, "test_limits_are_changed_under_a_worker_and_hold_from_its_next_call_on"),
)
