"""A database that is full of finished runs, and the queries that must not notice: for a test, and for a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, Table, event, text

from adk_worker.filters import RunFilter
from adk_worker.history import Handle
from adk_worker.lease import RunLease
from adk_worker.pruning import Prune
from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import Attention, FleetPolicy
from stores.sql import accounts as accounts_of
from stores.sql import approving, claim_rows, history, locks, pruning, reading, renewing, rounds, sweeping
from stores.sql.schema import accounts, approvals, leases, runs

POLICY = FleetPolicy()
_DUE = 4
"""Of so many tenants there may be room for runs that wait."""
SLACK = 3
"""What may be read beside what is returned: the row of the schema, and a row or two at the edge of a range."""


@dataclass(frozen=True, slots=True)
class Size:
    """How many runs there are: numbers up to ``finished`` are over, the rest is live, the last ``lapsed`` are dead."""

    finished: int
    live: int
    lapsed: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.finished + self.live


def fill(connection: Connection, numbers: str, size: Size) -> None:
    """Insert what ``numbers``, an SQL table of one column ``n``, counts: runs of two hundred tenants.

    One in a hundred and one of those that are over is parked instead, of all tenants alike, with its attention.
    """
    live, lapsed = f"n > {size.finished}", f"n > {size.total - size.lapsed}"
    columns = {
        **dict.fromkeys(("agent", "revision"), "'booking'"),
        **dict.fromkeys(("metadata", "masks", "usage"), "'{}'"),
        **dict.fromkeys(("detail", "output"), "NULL"),
        **dict.fromkeys(("sequence", "committed_by", "iteration", "execution", "cost_micros", "crashes", "tries"), "0"),
        **dict.fromkeys(("cancel_requested", "behind"), "false"),
        **dict.fromkeys(("created_at", "updated_at"), "1.0"),
        "tenant": "'tenant-' || (n % 200)",
        "run_id": "'run-' || n",
        "number": "n",
        "input": "'\"book\"'",
        "parked_on": "'[]'",
        "ledger": "'{}'",
        "phase": f"CASE WHEN {live} THEN 'live' WHEN n % 101 = 0 THEN 'parked' ELSE 'completed' END",
        "attention": "CASE WHEN n % 101 = 0 THEN 'over_budget' END",
    }
    _insert(connection, runs, columns, numbers)
    columns = {
        "tenant": "'tenant-' || (n % 200)",
        "run_id": "'run-' || n",
        "fence": "n",
        "holding": f"CASE WHEN {live} THEN 'worker' ELSE 'free' END",
        "holder": f"CASE WHEN {live} THEN 'somebody' END",
        "expires_at": f"CASE WHEN {lapsed} THEN 1.0 + n WHEN {live} THEN 1e12 ELSE 1.0 END",
        "wait": "0",
        "status": f"CASE WHEN {live} THEN 'running' END",
        "number": "n",
    }
    _insert(connection, leases, columns, numbers)
    columns = {
        "tenant": "'tenant-' || (n % 200)",
        "run_id": "'run-' || n",
        "number": "1",
        "state": f"CASE WHEN {live} THEN 'pending' ELSE 'approved' END",
        "expires_at": f"CASE WHEN {lapsed} THEN 1.0 + n WHEN {live} THEN 1e12 ELSE 1.0 END",
        "request": "'{}'",
    }
    _insert(connection, approvals, columns, numbers)
    columns = {
        **{column.name: "0" for column in accounts.c if not column.nullable},
        "tenant": "'tenant-' || n",
        "changes": "'[]'",
        "waits_freed": f"CASE WHEN n % {size.finished // _DUE} = 0 THEN 1 ELSE 0 END",
    }
    _insert(connection, accounts, columns, numbers)
    for table, names in (
        ("adk_events", "tenant, run_id, at, kind, fence, data"),
        ("adk_messages", "tenant, run_id, end_count, end_digest, start_count, start_digest, number, payload"),
        ("adk_claims", "tenant, key, run_id, number, owner, former, digest, state, late, decisions"),
    ):
        values = {
            "adk_events": "'tenant-' || (n % 200), 'run-' || n, 1.0, 'taken', 1, '{}'",
            "adk_messages": "'tenant-' || (n % 200), 'run-' || n, 1, 'd', 0, 'd', 1, '[]'",
            "adk_claims": "'tenant-' || (n % 200), 'key-' || n, 'run-' || n, 1, 'o', '[]', 'd', 'in_flight', '[]', "
            "'[]'",
        }[table]
        connection.execute(text(f"INSERT INTO {table} ({names}) SELECT {values} FROM {numbers}"))


def _insert(connection: Connection, table: Table, columns: Mapping[str, str], numbers: str) -> None:
    connection.execute(
        text(f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT {', '.join(columns.values())} FROM {numbers}")
    )


def queries(size: Size) -> Mapping[str, tuple[Callable[[Connection], Any], int]]:
    """What a fleet and its terminals ask, and how many rows each may read, counting every table's."""
    tenant, run = f"tenant-{size.finished % 200}", f"run-{size.finished}"

    def page(limit: int = 10, before: int | None = None, **where: Any) -> Callable[[Connection], Any]:
        return lambda tx: reading.page(tx, RunFilter(**where), limit=limit, before=before)

    return {
        "claim lapsed leases": (
            lambda tx: sweeping.claim_lapsed(tx, policy=POLICY, limit=5, count_crashes=True),
            # Each from both tables.
            10,
        ),
        # Those that are due, and their runs with the leases; what is pending for long yet is not looked at.
        "deny what nobody answered": (lambda tx: approving.expire(tx, policy=POLICY, limit=5), 15),
        "the oldest lapsed lease": (sweeping.oldest_lapsed, 1),
        # What is due within that time, and no live run beyond.
        "leases held on a host": (lambda tx: sweeping.held_on(tx, "host", within=60.0), size.lapsed),
        "rounds that are due": (lambda tx: accounts_of.due(tx, limit=10, behind=""), _DUE),
        "the next rounds that are due": (lambda tx: accounts_of.due(tx, limit=10, behind="tenant-3"), _DUE),
        # A tenant's share of what is parked.
        "a batch of a tenant's runs that wait": (
            lambda tx: rounds.parked(tx, tenant, limit=10, behind=0),
            1 + size.finished // 101 // 200,
        ),
        "lock a run": (lambda tx: locks.lock_run(tx, tenant, run), 2),
        "lock a lease": (lambda tx: locks.lock_lease(tx, tenant, run), 1),
        "read a run": (lambda tx: reading.get(tx, tenant, run), 2),
        "list all runs": (page(), 22),
        "list the next page": (page(before=size.finished // 2), 22),
        "list a tenant's runs": (page(tenant=tenant), 22),
        "list what needs attention": (page(attention=True), 22),
        "list running runs": (page(status=RunStatus.RUNNING), 22),
        "list the next running runs": (page(status=RunStatus.RUNNING, before=size.total - size.live // 2), 22),
        "list a tenant's running runs": (page(tenant=tenant, status=RunStatus.RUNNING), 22),
        "list parked runs": (page(status=RunStatus.PARKED), 22),
        "list cancelled runs": (page(status=RunStatus.CANCELLED), 0),
        # Of those there is none, among all that are live.
        "list queued runs": (page(status=RunStatus.QUEUED), 0),
        "list the next queued runs": (page(status=RunStatus.QUEUED, before=size.total - size.live // 2), 0),
        "list a tenant's queued runs": (page(tenant=tenant, status=RunStatus.QUEUED), 0),
        "list a tenant's parked runs": (page(tenant=tenant, status=RunStatus.PARKED), 22),
        "find a run without its tenant": (page(run_id=run), 2),
        "find a queued run without its tenant": (page(run_id=run, status=RunStatus.QUEUED), 2),
        "list an agent's running runs": (
            # Each run is read twice: to see whose it is, and to show it.
            page(status=RunStatus.RUNNING, agent="booking"),
            33,
        ),
        "list one attention": (page(attention=Attention.OVER_BUDGET), 22),
        # None has it, and those that have another are looked through; as for an agent and for times.
        "list another attention": (page(attention=Attention.POISONED), size.total // 101),
        "list an agent's parked runs": (page(status=RunStatus.PARKED, agent="booking"), 22),
        "list another agent's parked runs": (page(status=RunStatus.PARKED, agent="refunds"), size.finished // 101),
        "list runs parked since": (page(status=RunStatus.PARKED, updated_since=2.0), size.finished // 101),
        "list a tenant's runs parked until": (
            page(tenant=tenant, status=RunStatus.PARKED, updated_until=1.0),
            size.finished // 101,
        ),
        "list a tenant's failed runs": (page(tenant=tenant, status=RunStatus.FAILED), 0),
        "a run's events": (lambda tx: reading.events_of(tx, tenant, run, after=0, limit=10), 1),
        "a run's claims": (lambda tx: claim_rows.of_run(tx, tenant, run), 1),
        "whether a call is undecided": (lambda tx: claim_rows.forget_if_decided(tx, tenant, run), 1),
        "a run's transcript": (lambda tx: history.fetch(tx, tenant, Handle.empty(run)), 1),
        # Each from its own table, its lease's, its calls' and its requests'.
        "a batch of old runs": (lambda tx: pruning.prune(tx, Prune(older_than=0.0), limit=10, behind=0), 50),
        "a later batch of old runs": (
            lambda tx: pruning.prune(tx, Prune(older_than=0.0), limit=10, behind=size.finished // 2),
            50,
        ),
        "renew leases": (
            lambda tx: renewing.renew_many(
                tx, [leased(number) for number in range(size.finished + 1, size.finished + 11)], ttl=60.0
            ),
            20,
        ),
    }


def leased(number: int) -> RunLease:
    """The lease of a live run."""
    return RunLease(f"tenant-{number % 200}", f"run-{number}", "somebody", number, 0.0)


def selects(engine: Engine, work: Callable[[Connection], Any]) -> list[tuple[str, Any]]:
    """What ``work`` searches for, be it to remove it, with the parameters."""
    seen: list[tuple[str, Any]] = []

    def listen(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.lstrip().startswith(("SELECT", "WITH", "DELETE")):
            seen.append((statement, parameters))

    with engine.connect() as connection:
        event.listen(connection, "before_cursor_execute", listen)
        work(connection)
        connection.rollback()
    return seen


def read(node: Mapping[str, Any]) -> float:
    """How many rows of tables a plan has read."""
    own = 0.0
    if "Relation Name" in node:
        own = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    return own + sum(read(child) for child in node.get("Plans", ()))
