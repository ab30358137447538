"""A real store and the store in memory, led through the same operations: what the one answers, the other does too.

Times are the one thing in which they may differ. So a lease lives for as long as no test does, or has lapsed for
certain: whatever makes one that is to lapse waits until it has, in both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from pydantic import BaseModel

from adk_worker.actors import Actor
from adk_worker.approvals.answers import NewGrant
from adk_worker.checkpoint import Checkpoint
from adk_worker.conformance.runs.asker import Asker
from adk_worker.conformance.runs.driver import ANN, BOOKED, HASTY, PATIENT, REFUSED, Driver
from adk_worker.conformance.waiting import LONG, SOON
from adk_worker.errors import AdkError, HistoryUnavailableError, StaleFenceError
from adk_worker.filters import RunFilter
from adk_worker.ledger.amounts import Amount, BudgetChange, Kind
from adk_worker.ledger.booking import Charge
from adk_worker.ledger.rounds import Round
from adk_worker.memory import memory_stores
from adk_worker.messages import Message
from adk_worker.runs import RunStatus
from adk_worker.settling.settlement import Settlement
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import Attention, Reason, Then

RUNS = (("acme", "run"), ("acme", "other"), ("elsewhere", "run"))
_TIMES = {
    "answered_at",
    "asked_at",
    "at",
    "began_at",
    "clock",
    "created_at",
    "dead_seen_at",
    "expires_at",
    "given_at",
    "last",
    "now",
    "revoked_at",
    "spent_at",
    "stands",  # a sentence with one
    "updated_at",
}
_OWN = {"id", "waitlist", "empty"}
"""What is the store's own: of events' ids only that they rise is promised, of a waitlist that nobody stays on it."""
_RECENT = st.sampled_from([0, 0, 0, 0, 0, 1, 2, 3])
"""How many back: the newest lease or claim is what a worker most often presents."""
_OUTCOMES = st.sampled_from([BOOKED, REFUSED])
_CHANGES = st.builds(
    BudgetChange,
    to=st.fixed_dictionaries({Kind.TOKENS: st.sampled_from([None, 0, 5, 12, 20])}),
    by=st.just({}),
) | st.just(BudgetChange(by={Kind.TOKENS: 7}))
_CALLS = st.lists(st.integers(0, 2), min_size=1, max_size=3)


def alike(value):
    """What has to be the same in both stores: all of it but times, of which it has to be the same that there is one."""
    if isinstance(value, Enum) or value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, AdkError | ValueError):
        return type(value).__name__, alike(vars(value))
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    elif is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: (item is None) if key in _TIMES else alike(item) for key, item in value.items() if key not in _OWN}
    return [alike(item) for item in value]


_ACTIONS = {}
_NEEDS = {}


def action(*, needs=(), **strategies):
    """One of the things that may be done. ``needs`` is what has to be there for it: a lease, a claim."""

    def named(method):
        _ACTIONS[method.__name__] = strategies
        _NEEDS[method.__name__] = needs
        return method

    return named


_LIKELY = {
    None: ["submit"] * 20,
    "lapsed": ["reap"] * 10 + ["renew", "commit", "record", "begin", "bury"],
    RunStatus.QUEUED: ["take"] * 20 + ["reap", "cancel"],
    RunStatus.RUNNING: ["begin"] * 8
    + ["ask", "begin_permitted"] * 3
    + ["reserve"] * 4
    + ["commit"] * 8
    + ["park", "record", "lapse"] * 4
    + ["give_back", "settle"] * 2,
    RunStatus.PARKED: ["requeue", "record", "decide", "change_budget", "change_account"] * 6
    + ["acquire", "abandon", "cancel"],
    RunStatus.WAITING_APPROVAL: ["answer"] * 12 + ["cancel", "turn_to"] * 2,
    RunStatus.FAILED: ["requeue"] * 8,
    RunStatus.COMPLETED: ["turn_to"] * 20,
    RunStatus.CANCELLED: ["turn_to", "record", "decide"] * 10,
}
"""What is most often done to a run, by where it stands; everything else is done now and then."""


class InStep(RuleBasedStateMachine):
    """Two stores, some runs in each, and everything that workers, reapers and people do."""

    def __init__(self, stores):
        super().__init__()
        self._loop = asyncio.Runner()
        self._both = (stores, memory_stores())
        self._leases = {run: [] for run in RUNS}
        self._claims = {run: [] for run in RUNS}
        self._handles = {run: [] for run in RUNS}
        self._tickets = {run: [0] for run in RUNS}
        self._seen = {}
        self._holders = 0
        self._at = RUNS[0]

    def teardown(self):
        self._loop.close()

    # --- both at once -----------------------------------------------------------------------------------------

    def _do(self, operation, *, either=()):
        """Do the same in both stores, and give what it came to in memory; ``None`` if it was refused.

        ``either`` are refusals of which it is no matter which one comes first.
        """

        async def attempted(stores):
            try:
                return await operation(stores)
            except (AdkError, ValueError) as error:
                return error

        real, memory = (self._loop.run(attempted(stores)) for stores in self._both)
        if not (isinstance(real, either) and isinstance(memory, either)):
            assert alike(real) == alike(memory)
        return None if isinstance(memory, AdkError | ValueError) else memory

    def _drive(self, operation, *, hasty=False):
        """The same for one run, by its driver; ``hasty`` has what the queue is given lapse, and waits for that."""
        run, policy = self._at, HASTY if hasty else PATIENT
        came_to = self._do(lambda stores: operation(Driver(stores, tenant=run[0], run_id=run[1], policy=policy)))
        if hasty:
            self._settle_down()
        return came_to

    def _settle_down(self):
        """Wait until whatever has the lease for a moment only has lost it, in both."""
        tenant, run_id = self._at
        for stores in self._both:
            lease = self._loop.run(stores.leases.held(run_id, tenant=tenant))
            if lease is not None and lease.expires_at - self._now(stores) < LONG / 2:
                self._loop.run(Driver(stores, tenant=tenant, run_id=run_id).lapse())

    def _now(self, stores):
        """A store's clock, near enough to tell a moment from the length of a test."""
        return self._loop.run(stores.runs.sweep()).now

    def _lease(self, back):
        known = self._leases[self._at]
        return known[-1 - min(back, len(known) - 1)] if known else None

    def _claim(self, back):
        known = self._claims[self._at]
        return known[-1 - min(back, len(known) - 1)] if known else None

    def _holder(self):
        self._holders += 1
        return f"holder-{self._holders}"

    def _run(self):
        tenant, run_id = self._at
        return self._loop.run(self._both[1].runs.get(run_id, tenant=tenant))

    def _keep_ticket(self):
        run = self._run()
        if run is not None and run.holder == "queue":
            self._tickets[self._at].append(run.fence)

    @rule(data=st.data())
    def step(self, data):
        """Do something that is likely, or something that is not."""
        run = self._run()
        standing = None if run is None else run.status
        if standing is RunStatus.RUNNING and run.expires_at <= time.time():
            standing = "lapsed"
        there = {"lease": self._leases[self._at], "claim": self._claims[self._at]}
        possible = [name for name in [*_LIKELY[standing], *_ACTIONS] if all(there[one] for one in _NEEDS[name])]
        chosen = data.draw(st.sampled_from(possible), label="does")
        said = {name: data.draw(strategy, label=name) for name, strategy in _ACTIONS[chosen].items()}
        getattr(self, chosen)(**said)

    # --- workers ----------------------------------------------------------------------------------------------

    @initialize()
    def begin_with_a_run(self):
        """There is something to do from the start."""
        self.submit(agent="booking", hasty=False)
        self.take(back=0)

    @action(run=st.sampled_from(RUNS))
    def turn_to(self, run):
        """What follows is about this run."""
        self._at = run

    @action(agent=st.sampled_from(["booking", "booking", "refunds"]), hasty=st.booleans())
    def submit(self, agent, hasty):
        """A person submits, perhaps again, perhaps something else."""
        self._drive(lambda driver: driver.submit(agent=agent), hasty=hasty)
        self._keep_ticket()

    @action(back=_RECENT)
    def take(self, back):
        """A message comes: the newest, or one from before."""
        tickets, holder = self._tickets[self._at], self._holder()
        ticket = tickets[-1 - min(back, len(tickets) - 1)]
        taken = self._drive(lambda driver: driver.take(ticket, holder=holder))
        if taken is not None:
            self._leases[self._at].append(taken.lease)
        self._do(lambda stores: stores.runs.held_by(self._at[1], tenant=self._at[0], holder=holder))

    @action(
        needs=("lease",),
        back=_RECENT,
        calls=_CALLS,
        ahead=st.booleans(),
        over=st.integers(0, 3),
        seat=st.sampled_from(["12A"] * 5 + ["9"]),
    )
    def begin(self, back, calls, ahead, over, seat):
        """A worker records intents, of which some take over."""
        lease = self._lease(back)
        seen = self._claim(over)

        def begun(driver):
            intents = [driver.intent(call, seat=seat) for call in calls]
            if seen is not None and over:
                intents = [replace(one, take_over=seen.owner) if one.key == seen.key else one for one in intents]
            return driver.runs.begin(lease, intents, owner=lease.holder, ahead=ahead)

        came_to = self._drive(begun)
        if came_to is not None:
            self._claims[self._at].extend(came_to[1])

    @action(
        needs=("lease",),
        back=_RECENT,
        ahead=st.sampled_from([1, 1, 1, 1, 0, 2]),
        then=st.sampled_from([Then.KEEP, Then.KEEP, Then.HAND_OVER, Then.HAND_OVER, *Then]),
        stored=st.sampled_from([True, True, True, False]),
        outcome=st.none() | _OUTCOMES,
        messages=st.booleans(),
        took=st.none() | st.integers(0, 9),
        hasty=st.booleans(),
        execution=st.sampled_from([1, 1, 2]),
    )
    def commit(self, back, ahead, then, stored, outcome, *, messages, took, hasty, execution):
        """A worker writes a boundary."""
        lease, claim = self._lease(back), self._claim(0)
        run = self._run()
        sequence = ahead + (run.sequence if run else 0)
        settled = [(claim, outcome)] if claim is not None and outcome is not None else []

        def committed(driver):
            segment = driver.segment(f"message {sequence}") if messages else None
            rest = {"attention": Attention.OVER_BUDGET, "detail": "too dear"} if then is Then.PARK else {}
            rest["frontier"] = {"execution": execution}
            if took is not None:
                rest["charge"] = Charge(sequence, Amount(took, took))
            return driver.commit(lease, sequence, then, stored=stored, settled=settled, segment=segment, **rest)

        self._drive(committed, hasty=hasty)
        if messages:
            self._handles[self._at].append(
                str(Driver(self._both[1], run_id=self._at[1]).segment(f"message {sequence}").handle)
            )
        self._keep_ticket()

    @action(needs=("lease",), back=_RECENT, on=st.lists(_RECENT, max_size=2, unique=True))
    def park(self, back, on):
        """A worker parks the run, perhaps on claims."""
        lease = self._lease(back)
        claims = [claim for claim in (self._claim(one) for one in on) if claim is not None]
        self._drive(lambda driver: driver.park(lease, *claims))

    @action(needs=("lease",), back=_RECENT, asked=st.booleans())
    def fail(self, back, asked):
        """A worker ends the run as failed."""
        lease = self._lease(back)
        self._drive(lambda driver: driver.runs.fail(lease, detail="it cannot be done", asked=asked))

    @action(needs=("lease",), back=_RECENT, ahead=st.sampled_from([1, 1, 1, 2]), tokens=st.integers(0, 9))
    def reserve(self, back, ahead, tokens):
        """A worker is about to make a model call."""
        lease, run = self._lease(back), self._run()
        iteration = ahead + (run.iteration if run else 0)
        self._drive(lambda driver: driver.reserve(lease, tokens, tokens, iteration=iteration))

    @action(needs=("lease",), back=_RECENT, reason=st.sampled_from(Reason), asked=st.booleans(), hasty=st.booleans())
    def give_back(self, back, reason, asked, hasty):
        """A worker gives the run back."""
        lease = self._lease(back)
        delay = SOON if hasty else LONG
        self._drive(lambda driver: driver.give_back(lease, reason, delay=delay, asked=asked), hasty=hasty)
        self._keep_ticket()

    @action(needs=("lease", "claim"), back=_RECENT, of=_RECENT, outcome=_OUTCOMES)
    def settle(self, back, of, outcome):
        """A probe has answered."""
        lease, claim = self._lease(back), self._claim(of)
        self._drive(lambda driver: driver.runs.settle(lease, claim, outcome, by="probe"))

    @action(needs=("lease", "claim"), back=_RECENT, of=_RECENT)
    def note_dead(self, back, of):
        """A worker knows that a call's owner is dead."""
        lease, claim = self._lease(back), self._claim(of)
        self._drive(lambda driver: driver.runs.note_dead(lease, [claim]))

    # --- claims by themselves ---------------------------------------------------------------------------------

    @action(needs=("claim",), of=_RECENT, outcome=_OUTCOMES)
    def record(self, of, outcome):
        """An owner, perhaps a former one, brings an outcome."""
        claim = self._claim(of)
        self._do(lambda stores: stores.idempotency.record(claim, outcome))
        self._keep_ticket()

    @action(needs=("claim",), of=_RECENT)
    def abandon(self, of):
        """An owner never dispatched."""
        claim = self._claim(of)
        self._do(lambda stores: stores.idempotency.abandon(claim))
        self._keep_ticket()

    @action(needs=("claim",), of=_RECENT)
    def take_over(self, of):
        """Somebody takes a claim over."""
        claim, owner = self._claim(of), self._holder()
        taken = self._do(lambda stores: stores.idempotency.take_over(claim, owner))
        if taken is not None:
            self._claims[self._at].append(taken)

    @action(tenant=st.sampled_from(["acme", "elsewhere"]), owner=st.sampled_from("ab"), digest=st.sampled_from("xy"))
    def begin_alone(self, tenant, owner, digest):
        """A run in process begins a call."""
        self._do(lambda stores: stores.idempotency.begin("lone", tenant=tenant, owner=owner, digest=digest))

    @action(owner=st.sampled_from("abc"), fence=st.none() | st.integers(1, 3), ends=st.booleans())
    def resume(self, owner, fence, ends):
        """Somebody resumes, or ends a resume."""
        tenant, run_id = self._at
        if ends:
            self._do(lambda stores: stores.idempotency.end_resume(run_id, tenant=tenant, owner=owner))
        else:
            claimed = partial(self._claimed, owner=owner, fence=fence)
            self._do(claimed)

    async def _claimed(self, stores, *, owner, fence):
        tenant, run_id = self._at
        await stores.idempotency.claim_resume(run_id, tenant=tenant, owner=owner, fence=fence, ttl_seconds=LONG)

    # --- leases, and time -------------------------------------------------------------------------------------

    @action()
    def acquire(self):
        """Somebody at a terminal asks for the lease."""
        tenant, run_id = self._at
        holder = self._holder()
        lease = self._do(lambda stores: stores.leases.acquire(run_id, tenant=tenant, holder=holder, ttl_seconds=LONG))
        if lease is not None:
            self._leases[self._at].append(lease)

    @action(needs=("lease",), back=_RECENT)
    def release(self, back):
        """Somebody lets go."""
        lease = self._lease(back)
        self._do(lambda stores: stores.leases.release(lease))
        self._keep_ticket()

    @action(needs=("lease",), back=_RECENT)
    def renew(self, back):
        """A keeper renews."""
        lease = self._lease(back)
        self._do(lambda stores: stores.runs.renew_many([lease, replace(lease, fence=0)], ttl_seconds=LONG))

    @action(needs=("lease",), back=_RECENT)
    def lapse(self, back):
        """A worker is paused, or has died."""
        lease = self._lease(back)
        self._do(lambda stores: stores.leases.renew(lease, ttl_seconds=SOON))
        self._settle_down()

    @action(counted=st.booleans(), hasty=st.booleans())
    def reap(self, counted, hasty):
        """The reaper sweeps."""
        policy = HASTY if hasty else PATIENT

        async def swept(stores):
            acted = await stores.runs.claim_lapsed(policy=policy, limit=100, count_crashes=counted)
            return sorted(acted, key=lambda one: (one.tenant, one.run_id))

        self._do(swept)
        at = self._at
        for run in RUNS:
            self._at = run
            self._settle_down()
            self._keep_ticket()
        self._at = at

    @action(needs=("lease",), back=_RECENT)
    def bury(self, back):
        """A holder is known dead."""
        holder = self._lease(back).holder
        tenant, run_id = self._at
        self._do(lambda stores: stores.runs.claim_dead(run_id, tenant=tenant, holder=holder, policy=PATIENT))
        self._keep_ticket()

    @action()
    def bump_epoch(self):
        """Somebody restored a backup."""
        self._do(lambda stores: stores.lifecycle.bump_epoch())

    # --- people -----------------------------------------------------------------------------------------------

    @action(hasty=st.booleans(), chosen=st.booleans())
    def requeue(self, hasty, chosen):
        """A person has the run go on, perhaps as they saw it in a list some time ago."""
        seen = self._seen.get(self._at) if chosen else None
        self._drive(lambda driver: driver.requeue(seen=seen), hasty=hasty)
        self._keep_ticket()

    @action(change=_CHANGES)
    def change_budget(self, change):
        """A person changes what the run may spend."""
        self._drive(lambda driver: driver.change_budget(change))
        self._keep_ticket()

    @action(tenant=st.sampled_from(["acme", "acme", "elsewhere"]), change=_CHANGES)
    def change_account(self, tenant, change):
        """A person changes what a tenant may spend, and has its runs go on."""
        self._do(lambda stores: stores.runs.change_account(tenant, change=change, by=ANN))

        async def requeued(stores):
            account = await stores.runs.account(tenant)
            if account is None:
                return None
            begun = Round.begun(tenant, account)
            return await stores.runs.requeue_over_budget(begun, by=ANN, policy=PATIENT, limit=100)

        self._do(requeued)
        at = self._at
        for run in RUNS:
            self._at = run
            self._keep_ticket()
        self._at = at

    @action(chosen=st.booleans())
    def cancel(self, chosen):
        """A person asks for the run's end, perhaps as they saw it in a list some time ago."""
        seen = self._seen.get(self._at) if chosen else None
        self._drive(lambda driver: driver.cancel(seen=seen))

    @action(last=st.integers(1, 3), told=_OUTCOMES)
    def reseal(self, last, told):
        """Somebody replaces what the run has sealed, as they see it."""
        if self._run() is not None:

            async def resealed(driver):
                return await driver.reseal(await driver.change({"last": last}, told))

            self._drive(resealed)

    @action()
    def look(self):
        """A person lists the runs, to act on them later."""
        self._seen[self._at] = self._run()

    @action(
        needs=("claim",),
        of=_RECENT,
        outcome=_OUTCOMES | st.none(),
        dead=st.booleans(),
        insists=st.booleans(),
        by=st.sampled_from("ab"),
        hasty=st.booleans(),
    )
    def decide(self, of, outcome, dead, insists, by, hasty):
        """A person says what became of a call."""
        claim = self._claim(of)
        asked = Settlement(
            Actor(by), "they said so", outcome, owner_may_live=insists, owner_dead=dead, max_in_flight=0.0
        )

        def decided(driver):
            return driver.runs.decide(
                driver.run_id, tenant=driver.tenant, claim=claim, asked=asked, policy=driver.policy
            )

        self._drive(decided, hasty=hasty)
        self._keep_ticket()

    @action(needs=("lease",), back=_RECENT, indexes=_CALLS, approvers=st.sampled_from([(), ("a",)]))
    def ask(self, back, indexes, approvers):
        """A worker commits a boundary that asks people, and waits."""
        lease, run = self._lease(back), self._run()
        sequence = 1 + (run.sequence if run else 0)

        def asked(driver):
            return Asker.of(driver).ask(*indexes, sequence=sequence, lease=lease, approvers=approvers)

        self._drive(asked)

    @action(
        number=st.integers(1, 4),
        approved=st.booleans(),
        by=st.sampled_from("ab"),
        digest=st.sampled_from([None, None, "x"]),
        grants=st.booleans(),
        hasty=st.booleans(),
    )
    def answer(self, number, approved, by, digest, grants, hasty):
        """A person answers."""
        grant = NewGrant() if approved and grants else None

        def answered(driver):
            asker = Asker.of(driver)
            return asker.answer(f"req-{number}", by=Actor(by), approved=approved, digest=digest, grant=grant)

        self._drive(answered, hasty=hasty)
        self._keep_ticket()

    @action(number=st.integers(1, 2), by=st.sampled_from("ab"))
    def revoke(self, number, by):
        """A person takes a grant back."""
        self._drive(
            lambda driver: driver.runs.revoke(driver.run_id, f"grant-{number}", tenant=driver.tenant, by=Actor(by))
        )

    @action(
        needs=("lease",),
        back=_RECENT,
        index=st.integers(0, 2),
        permit=st.sampled_from(["req-1", "req-2", "req-3", "grant-1", "grant-2"]),
    )
    def begin_permitted(self, back, index, permit):
        """A worker begins a call that a person has to approve."""
        lease = self._lease(back)
        self._drive(lambda driver: Asker.of(driver).permitted(lease, index, permit=permit))

    @action(sequence=st.integers(1, 3), back=st.none() | _RECENT, forget=st.booleans())
    def write_alone(self, sequence, back, forget):
        """A run in process writes its frontier, or a worker does with its fence."""
        tenant, run_id = self._at
        lease = None if back is None else self._lease(back)
        fence = lease.fence if lease is not None else None
        frontier = Checkpoint(tenant=tenant, run_id=run_id, agent="local", revision="r1", sequence=sequence)
        if fence is None and self._run() is not None:
            return  # nobody writes a fleet's frontier without a fence
        if forget:
            self._do(lambda stores: stores.checkpoints.forget(run_id, tenant=tenant, fence=fence))
        else:
            self._do(lambda stores: stores.checkpoints.put(frontier, fence=fence))

    @action(start=st.integers(0, 2), text=st.sampled_from("ab"), back=st.none() | _RECENT)
    def append(self, start, text, back):
        """Somebody appends to the transcript."""
        tenant, run_id = self._at
        lease = None if back is None else self._lease(back)
        fence = lease.fence if lease is not None else None
        handle = self._do(
            lambda stores: stores.history.append(
                run_id, tenant=tenant, start=start, messages=[Message.user(text)], fence=fence
            ),
            either=(HistoryUnavailableError, StaleFenceError),
        )
        if handle is not None:
            self._handles[self._at].append(handle)

    # --- what is to be seen -----------------------------------------------------------------------------------

    @invariant()
    def both_show_the_same(self):
        """All that can be read is the same in both."""
        tenant, run_id = self._at
        self._drive(lambda driver: driver.picture())
        self._drive(lambda driver: Asker.of(driver).approvals())
        self._do(lambda stores: stores.checkpoints.latest(run_id, tenant=tenant))
        run = self._run()
        alone = RunFilter(run_id=run_id, agent=run and run.agent, attention=run and (run.attention or False))
        for where in (RunFilter(tenant=tenant), alone):
            self._do(lambda stores, where=where: stores.runs.list(where, limit=10))
        for handle in self._handles[self._at][-2:]:
            self._do(lambda stores, handle=handle: stores.history.fetch(handle, tenant=tenant))

    @invariant()
    def both_have_the_same_accounts(self):
        """C6: what is reserved for nobody any more may be called unaccounted already."""

        async def counted(stores):
            account = await stores.runs.account(self._at[0])
            return account and (account.limits, account.spent, account.reserved + account.unaccounted.amount)

        self._do(counted)

    @invariant()
    def a_live_run_is_somebodys(self):
        """L2: the lease of a live run is never free."""
        for stores in self._both:
            runs, _ = self._loop.run(stores.runs.list(RunFilter(), limit=10))
            for run in runs:
                assert run.status.resting or run.holder is not None
                assert run.holder != Holding.FREE
