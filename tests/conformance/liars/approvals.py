"""Bundles whose run store lies about what people were asked and have said (P1)."""

from __future__ import annotations

import time
from dataclasses import replace

from adk_worker.approvals.requests import Approvals, RequestState
from adk_worker.conformance import RunStoreConformance
from adk_worker.memory import MemoryRunStore, asked
from tests.conformance.liars.lie import Lie, bundle


def _key(lease):
    return lease.tenant, lease.run_id


class _Telling(MemoryRunStore):
    """What a lie is told with."""

    def _tell(self, key, change):
        asked.save(self._data, key, change(asked.load(self._data, key)))

    def _each(self, run, /, **fields):
        self._tell(run, lambda all_: replace(all_, requests=tuple(replace(one, **fields) for one in all_.requests)))


class Persuadable(_Telling):
    """Takes the newest answer for the one that counts."""

    async def answer(self, run_id, given, *, tenant, by, policy):
        run = self._data.runs[tenant, run_id]
        self._each((tenant, run_id), state=RequestState.PENDING)
        try:
            return await super().answer(run_id, given, tenant=tenant, by=by, policy=policy)
        finally:
            self._data.runs[tenant, run_id] = run


class Rash(_Telling):
    """Queues the run with the first answer, though others of the turn are asked for."""

    async def answer(self, run_id, given, *, tenant, by, policy):
        stood = asked.load(self._data, (tenant, run_id))
        only = replace(stood, requests=tuple(one for one in stood.requests if one.request_id == given.request_id))
        asked.save(self._data, (tenant, run_id), only)
        decided = await super().answer(run_id, given, tenant=tenant, by=by, policy=policy)
        self._tell(
            (tenant, run_id),
            lambda _: replace(
                stood,
                requests=tuple(
                    decided.request if one.request_id == given.request_id else one for one in stood.requests
                ),
            ),
        )
        return decided


class HandedOverApart(_Telling):
    """Writes the answer, and leaves the run to be queued by a write of its own, which never comes."""

    async def answer(self, run_id, given, *, tenant, by, policy):
        run, lease = self._data.runs[tenant, run_id], self._data.leases[tenant, run_id]
        decided = await super().answer(run_id, given, tenant=tenant, by=by, policy=policy)
        self._data.runs[tenant, run_id], self._data.leases[tenant, run_id] = run, lease
        return replace(decided, run=await self.get(run_id, tenant=tenant))


class Trusting(_Telling):
    """Asks whoever answers what time it is (L1)."""

    async def answer(self, run_id, given, *, tenant, by, policy):
        clock, self._data.clock = self._data.clock, lambda: time.time()  # noqa: PLW0108 - looked up in each call
        try:
            return await super().answer(run_id, given, tenant=tenant, by=by, policy=policy)
        finally:
            self._data.clock = clock


class Open(_Telling):
    """Does not look at who may answer."""

    async def answer(self, run_id, given, *, tenant, by, policy):
        self._each((tenant, run_id), approvers=())
        return await super().answer(run_id, given, tenant=tenant, by=by, policy=policy)


class Careless(_Telling):
    """Does not look at which arguments were seen."""

    async def answer(self, run_id, given, *, tenant, by, policy):
        return await super().answer(run_id, replace(given, digest=None), tenant=tenant, by=by, policy=policy)


class Mistaking(_Telling):
    """Finds a run by its id alone (T1)."""

    async def answer(self, run_id, given, *, tenant, by, policy):
        named = next((key for key in self._data.runs if key[1] == run_id), (tenant, run_id))
        return await super().answer(run_id, given, tenant=named[0], by=by, policy=policy)


class Hesitating(_Telling):
    """Reads what was asked, and writes the answer a moment later, over whatever came meanwhile (L7)."""

    async def answer(self, run_id, given, *, tenant, by, policy):
        key = tenant, run_id
        stood, run, lease = asked.load(self._data, key), self._data.runs[key], self._data.leases[key]
        time.sleep(0.002)  # noqa: ASYNC251, TID251 - the moment in which another one answers
        with self._data.lock:
            asked.save(self._data, key, stood)
            self._data.runs[key], self._data.leases[key] = run, lease
            return await super().answer(run_id, given, tenant=tenant, by=by, policy=policy)


class Unending(_Telling):
    """Leaves what was asked of a cancelled run to be answered (P2)."""

    async def cancel(self, run_id, *, tenant, by, seen=None):
        stood = asked.load(self._data, (tenant, run_id))
        run = await super().cancel(run_id, tenant=tenant, by=by, seen=seen)
        asked.save(self._data, (tenant, run_id), stood)
        return run


class Unbound(_Telling):
    """Lets any approved request permit any call."""

    async def begin(self, lease, intents, *, owner, ahead=False):
        for intent in intents:
            if asked.load(self._data, _key(lease)).request(intent.permit or "") is not None:
                self._each(_key(lease), key=intent.key)
        return await super().begin(lease, intents, owner=owner, ahead=ahead)


class Indifferent(_Telling):
    """Does not compare the arguments that were approved with those of the call."""

    async def begin(self, lease, intents, *, owner, ahead=False):
        for intent in intents:
            if intent.permit is not None:
                self._each(_key(lease), digest=intent.digest)
        return await super().begin(lease, intents, owner=owner, ahead=ahead)


class Deafened(_Telling):
    """Begins a call whatever was said about it."""

    async def begin(self, lease, intents, *, owner, ahead=False):
        plain = [replace(intent, permit=None) for intent in intents]
        return await super().begin(lease, plain, owner=owner, ahead=ahead)


class Unspent(_Telling):
    """Leaves an answer as if nothing had been done about it."""

    async def begin(self, lease, intents, *, owner, ahead=False):
        stood = asked.load(self._data, _key(lease))
        begun = await super().begin(lease, intents, owner=owner, ahead=ahead)
        asked.save(self._data, _key(lease), stood)
        return begun


class UnspentDenials(_Telling):
    """The same of a denial."""

    async def commit(self, lease, boundary, *, policy):
        return await super().commit(lease, replace(boundary, denials=()), policy=policy)


class Irrevocable(_Telling):
    """Looks at a grant as it was given: neither revoked, nor over."""

    async def begin(self, lease, intents, *, owner, ahead=False):
        stood = asked.load(self._data, _key(lease))
        given = tuple(replace(grant, revoked_at=None, expires_at=None) for grant in stood.grants)
        asked.save(self._data, _key(lease), replace(stood, grants=given))
        return await super().begin(lease, intents, owner=owner, ahead=ahead)


class Generous(_Telling):
    """Takes a grant for one of every tool."""

    async def begin(self, lease, intents, *, owner, ahead=False):
        for intent in intents:
            tool = intent.tool
            self._tell(
                _key(lease),
                lambda all_, tool=tool: replace(all_, grants=tuple(replace(one, tool=tool) for one in all_.grants)),
            )
        return await super().begin(lease, intents, owner=owner, ahead=ahead)


class Insisting(_Telling):
    """Asks again with a commit that is written again (F5)."""

    async def commit(self, lease, boundary, *, policy):
        committed = await super().commit(lease, boundary, policy=policy)
        if boundary.requests and committed.ticket is None:
            stood = asked.load(self._data, _key(lease))
            more = tuple(replace(one, request_id=f"{one.request_id}0") for one in stood.requests)
            asked.save(self._data, _key(lease), replace(stood, requests=(*stood.requests, *more)))
        return committed


class Forgetting(_Telling):
    """Numbers the requests of each turn from the first on."""

    async def commit(self, lease, boundary, *, policy):
        if boundary.requests:
            self._tell(_key(lease), lambda _: Approvals())
        return await super().commit(lease, boundary, policy=policy)


class Stuck(_Telling):
    """Denies what is over, and leaves the run to wait."""

    async def expire(self, *, policy, limit):
        runs, leases = dict(self._data.runs), dict(self._data.leases)
        expired = await super().expire(policy=policy, limit=limit)
        for one in expired:
            key = one.tenant, one.run_id
            self._data.runs[key], self._data.leases[key] = runs[key], leases[key]
        return expired


class Clearing(_Telling):
    """Denies all that waits of a run of which one is over."""

    async def expire(self, *, policy, limit):
        now = self._data.clock()
        for key in list(self._data.approvals):
            stood = asked.load(self._data, key)
            if stood.next_expiry is not None and stood.next_expiry <= now:
                self._each(key, expires_at=now)
        return await super().expire(policy=policy, limit=limit)


class Unlimited(_Telling):
    """Does not look at how many a reaper asks for."""

    async def expire(self, *, policy, limit):
        return await super().expire(policy=policy, limit=10 * limit)


class Hoarding(_Telling):
    """Keeps what was asked of a run that is gone."""

    async def prune(self, which, *, limit, after=None):
        kept = dict(self._data.approvals)
        pruned = await super().prune(which, limit=limit, after=after)
        self._data.approvals.update(kept)
        return pruned


def _lie(seen_by, liar):
    return Lie(RunStoreConformance, bundle(runs=liar), seen_by)


LIES = (
    _lie("test_a_request_is_answered_once", Persuadable),
    _lie("test_the_last_answer_queues_the_run_in_its_own_write", Rash),
    _lie("test_the_last_answer_queues_the_run_in_its_own_write", HandedOverApart),
    _lie("test_it_is_the_store_s_clock_that_says_when_it_is_too_late", Trusting),
    _lie("test_only_those_who_may_answer_do", Open),
    _lie("test_an_answer_to_other_arguments_is_refused", Careless),
    _lie("test_nobody_reaches_another_s_request", Mistaking),
    _lie("test_of_two_deciders_one_is_heard", Hesitating),
    _lie("test_a_run_that_was_cancelled_waits_for_nothing", Unending),
    _lie("test_nothing_is_begun_that_nobody_has_approved", Unbound),
    _lie("test_an_approval_is_of_the_arguments_that_were_shown", Indifferent),
    _lie("test_an_answer_of_another_run_permits_nothing", Deafened),
    _lie("test_an_approval_is_spent_by_the_begin_that_acts_on_it", Unspent),
    _lie("test_a_denial_is_spent_by_the_boundary_that_tells_of_it", UnspentDenials),
    _lie("test_a_grant_that_is_over_lets_nothing_pass", Irrevocable),
    _lie("test_a_grant_lets_later_calls_of_its_tool_pass", Generous),
    _lie("test_a_boundary_that_is_written_again_asks_once", Insisting),
    _lie("test_requests_are_numbered_within_their_run", Forgetting),
    _lie("test_what_nobody_answers_is_denied_in_time", Stuck),
    _lie("test_what_is_left_of_a_turn_still_waits", Clearing),
    _lie("test_the_longest_overdue_come_first", Unlimited),
    _lie("test_what_was_asked_goes_with_its_run", Hoarding),
)
