"""Rows that are lent to the operations of the store in memory, without a server."""

from __future__ import annotations

import asyncio

import pytest

from adk_worker.conformance.names import HOSTILE_RUNS
from adk_worker.history import StoredSegment
from adk_worker.idempotency import call_key
from adk_worker.memory.data import StoredEvent
from stores.redis import RedisOptions, rows
from stores.redis.data import RunData
from stores.redis.keys import BUCKETS, Keys, bucket_of_claim, bucket_of_run, member, run_of
from stores.redis.reference import at_once
from stores.redis.transaction import Applied, Transaction

RUN = ("acme", "run")


class Answers:
    """A server that has nothing, and remembers what it was asked."""

    def __init__(self, applied=1):
        self.applied = applied
        self.asked = []

    def call(self, script, keys, arguments=()):
        self.asked.append((script, list(keys), list(arguments)))
        if script == "apply":
            return self.applied
        fields = [int(words) for words in arguments if isinstance(words, int)]
        return ["1000", "250000", "1:3", *([None] * count for count in fields)]

    def names(self, key):
        return []

    def next_number(self):
        return 1

    def check(self, found):
        return int(found.partition(":")[2])


@pytest.fixture
def server():
    return Answers()


@pytest.fixture
def data(server):
    return RunData(Transaction(server, bucket_of_run(RUN)), RedisOptions(), around=server)


def test_the_clock_and_the_epoch_are_the_servers(data):
    """L1, L2: read once, with its fractions."""
    assert (data.at().now, data.at().epoch) == (1000.25, 3)


def test_nothing_is_written_where_nothing_has_changed(data, server):
    assert RUN not in data.leases

    assert data.flush() is Applied.DONE

    assert [script for script, _, _ in server.asked] == ["look"]


@pytest.mark.parametrize("answer", [0, -1])
def test_a_write_that_is_refused_is_to_be_begun_anew(data, server, answer):
    """F1: a row has moved, or the store has."""
    server.applied = answer
    data.touch(RUN)

    assert data.flush() is Applied.MOVED


@pytest.mark.parametrize("look", [iter, len, lambda rows: list(rows.values())])
def test_nothing_goes_through_all_rows(data, look):
    """An operation that would is refused here, instead of being shown the few that were read."""
    for table in (data.leases, data.runs, data.claims, data.checkpoints):
        with pytest.raises(TypeError, match=r"all rows|the rows"):
            look(table)


def test_events_are_added_and_not_read(data):
    data.events[RUN].extend([StoredEvent(1.0, "told", 1, "{}")])

    with pytest.raises(TypeError):
        list(data.events[RUN])


def test_a_row_of_another_bucket_is_not_read(data):
    """F1: it stands in another slot, and could not be compared in the same write."""
    other = next(("acme", f"run-{n}") for n in range(99) if bucket_of_run(("acme", f"run-{n}")) != bucket_of_run(RUN))

    with pytest.raises(AssertionError, match="bucket"):
        data.leases.get(other)
    with pytest.raises(ValueError, match="another run"):
        data.claims.get(("acme", call_key(tenant="acme", run_id=other[1], iteration=1, index=0)))


def test_an_operation_that_awaits_something_is_a_mistake():
    async def waits():
        await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="awaits"):
        at_once(waits())


# --- keys ---------------------------------------------------------------------------------------------------------


def test_names_read_back_from_an_index_and_stay_apart():
    """T1: however they look."""
    names = [member(run) for run in HOSTILE_RUNS]

    assert [run_of(name) for name in names] == list(HOSTILE_RUNS)
    assert len(set(names)) == len(HOSTILE_RUNS)
    assert len({Keys(0).run(run) for run in HOSTILE_RUNS}) == len(HOSTILE_RUNS)
    assert all(name.isascii() and not set(name) & set("{}* ") for name in names)


@pytest.mark.parametrize("run", HOSTILE_RUNS)
def test_a_call_stands_where_its_run_does(run):
    """I1: and is found there by its key alone."""
    tenant, run_id = run
    keys = [call_key(tenant=tenant, run_id=run_id, iteration=i, index=j) for i in range(3) for j in range(3)]

    assert {bucket_of_claim((tenant, key)) for key in keys} == {bucket_of_run(run)}


def test_runs_are_spread_evenly():
    """No bucket has more than twice its share of many runs."""
    buckets = [bucket_of_run(("acme", f"run-{number}")) for number in range(64 * BUCKETS)]

    assert max(buckets.count(bucket) for bucket in range(BUCKETS)) < 2 * 64
    assert set(buckets) == set(range(BUCKETS))


# --- fields -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", ["[]", "a\nb.c", ""])
def test_a_segment_reads_as_it_was_written(payload):
    """H1: beside what says which one is the newest."""
    segment = StoredSegment(3, "0" * 32, payload)
    fields = {
        rows.segment_field((5, "f" * 32)): rows.segment_value(segment),
        rows.end_field(5): "f" * 32,
    }

    assert rows.transcript_of(fields) == {(5, "f" * 32): segment}
