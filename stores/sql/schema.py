r"""The tables, each column explained once, and their DDL as published text.

The alembic migrations make the same tables, which a test compares with what stands here. Nothing in this package
creates a table on its own.

Rows belong to a run by its two columns ``tenant`` and ``run_id``, never by a joined string (T1), and compare byte by
byte. JSON is text in ASCII, as :func:`~adk_worker.messages.canonical_json` writes it: PostgreSQL's ``jsonb`` refuses
``\u0000``, which a model or a tool may well say. So is the free text of runs. Times are in seconds since the epoch, by
the store's clock (L1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Dialect,
    Double,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TextClause,
    TypeDecorator,
    insert,
    text,
)
from sqlalchemy.dialects import registry
from sqlalchemy.schema import CreateIndex, CreateTable

from adk_worker.messages import canonical_json

SCHEMA_VERSION: Final = "0001"
"""What ``adk_schema.version`` has to say: the revision of the newest migration."""


_POSTGRESQL: Final = "adk_postgresql"


class Json(TypeDecorator[Any]):
    """JSON in a text column; ``None`` is NULL."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Write."""
        return None if value is None else canonical_json(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Read."""
        return None if value is None else json.loads(value)


def _name() -> Text:
    """A name in a key. Without the collation, a database of another locale may take two names for one (T1)."""
    return Text().with_variant(Text(collation="C"), "postgresql")


def _stored(**parameters: Any) -> dict[str, Any]:
    """The ``info`` of a table with PostgreSQL's storage parameters; see :func:`with_postgresql`."""
    return {_POSTGRESQL: {"postgresql_with": parameters}}


def _partial_index(name: str, *columns: Column[Any], where: ColumnElement[bool] | TextClause) -> Index:
    """An index of the rows that ``where`` holds for."""
    return Index(name, *columns, sqlite_where=where, info={_POSTGRESQL: {"postgresql_where": where}})


metadata: Final = MetaData(
    naming_convention={"pk": "%(table_name)s_pkey", "ck": "%(table_name)s_%(constraint_name)s_check"}
)

schema_row: Final = Table(
    "adk_schema",
    metadata,
    # There is one row.
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    # The revision of the migration that made the tables what they are.
    Column("version", Text, nullable=False),
    # Stands in the high bits of every fence given from now on (L2); `adk db bump-epoch` raises it.
    Column("epoch", Integer, nullable=False),
    # When a reaper swept last; NULL before the first time.
    Column("last_sweep", Double),
)

runs: Final = Table(
    "adk_runs",
    metadata,
    Column("tenant", _name(), primary_key=True),
    Column("run_id", _name(), primary_key=True),
    # Rises with every submit: the order of listings, and what their cursor says.
    Column("number", BigInteger, Identity(), nullable=False),
    # What was submitted. Text has been masked where it came in (R1).
    Column("agent", Text, nullable=False),
    Column("input", Json, nullable=False),
    Column("metadata", Json, nullable=False),
    # The agent's revision that the run is pinned to; empty until its first boundary (C7).
    Column("revision", Text, nullable=False),
    # State of the run's masker (R2).
    Column("masks", Json, nullable=False),
    # `live` while the queue or a worker has the lease; else how it rests or ended.
    Column("phase", Text, nullable=False),
    # Why somebody has to look, and what stands behind it.
    Column("attention", Text),
    Column("detail", Json),
    # JSON list of the keys of the undecided calls that the run is parked on (F4).
    Column("parked_on", Json, nullable=False),
    # The newest boundary, and the fence that committed it (F5).
    Column("sequence", BigInteger, nullable=False),
    Column("committed_by", BigInteger, nullable=False),
    # What the newest boundary says of the run so far.
    Column("iteration", BigInteger, nullable=False),
    Column("execution", BigInteger, nullable=False),
    Column("usage", Json, nullable=False),
    Column("cost_micros", BigInteger, nullable=False),
    Column("output", Json),
    # What the run may spend, and what it has: limits, spent, reserved, unaccounted (C6); what is not there is nothing.
    Column("ledger", Json, nullable=False),
    # Deaths and exceptions, and give-backs, since the newest boundary.
    Column("crashes", Integer, nullable=False),
    Column("tries", Integer, nullable=False),
    # Somebody has asked for the run's end (P2).
    Column("cancel_requested", Boolean, nullable=False),
    # The mark: what ran is ahead of the stored frontier (C3).
    Column("behind", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
    # When this row was written last; taking and renewing a lease does not write it.
    Column("updated_at", Double, nullable=False),
    # Room on the page for an update without touching an index (HOT): no boundary changes an indexed column.
    info=_stored(fillfactor=70),
)
Index("adk_runs_by_number", runs.c.number)
Index("adk_runs_by_tenant", runs.c.tenant, runs.c.number)
# For who knows a run's id and not its tenant.
Index("adk_runs_by_run_id", runs.c.run_id, runs.c.number)
# For lists by status. A run's phase stays `live` from boundary to boundary.
Index("adk_runs_by_phase", runs.c.phase, runs.c.number)
Index("adk_runs_by_tenant_and_phase", runs.c.tenant, runs.c.phase, runs.c.number)
ATTENTION: Final = runs.c.attention.is_not(None)
_partial_index("adk_runs_attention", runs.c.number, where=ATTENTION)

leases: Final = Table(
    # One row per name that was ever leased. Locking it is locking the run: whatever writes a run's state locks this
    # row first, and reads everything else after that.
    "adk_run_leases",
    metadata,
    Column("tenant", _name(), primary_key=True),
    Column("run_id", _name(), primary_key=True),
    # Rises with every acquisition and hand-over, and never falls (L2).
    Column("fence", BigInteger, nullable=False),
    # Who has it: `free`, `queue` or `worker`; and which worker.
    Column("holding", Text, nullable=False),
    Column("holder", Text),
    # The lease has lapsed from this moment on (L6). Says nothing while it is free.
    Column("expires_at", Double, nullable=False),
    # For how many seconds the queue waits for its message before it is published again.
    Column("wait", Double, nullable=False),
    # `queued` or `running`, which a live run of the fleet is by who has its lease; NULL where none stands behind it.
    # Such a lease is never free, and is the reaper's once lapsed; a lone one lapses without it.
    Column("status", Text),
    # The number of the run that was submitted last under this name. It stays what it is as long as that run is there;
    # NULL if none ever was.
    Column("number", BigInteger),
    info=_stored(
        fillfactor=70,
        # The default waits until a fifth of all leases that there ever were has changed, and only live ones do.
        autovacuum_vacuum_threshold=1000,
        autovacuum_vacuum_scale_factor=0.01,
        # Nor would it then look at the indexes, for whose sake it has to come: by itself it spares them while what has
        # changed is on less than a fiftieth of the pages.
        vacuum_index_cleanup="on",
    ),
)
LIVE: Final = leases.c.status.is_not(None)
# For lists of what is queued, or running. The run's row does not say it, as a take would have to write that one too.
# That a run is live is in the same column: of two, the planner would take the one for no hint at the other, and so the
# queued runs for so few that it may as well read them all.
_partial_index("adk_run_leases_by_status", leases.c.status, leases.c.number, where=LIVE)
_partial_index("adk_run_leases_by_tenant_and_status", leases.c.tenant, leases.c.status, leases.c.number, where=LIVE)
# A renewal moves its lease in this index, so that no renewal is a HOT update, and makes an entry in each index that the
# lease is in. That is the lesser evil: with 20,000 live runs a renewal logs 506 bytes, 184 of them for the two indexes
# above, where it could be 120; but a sweep reads two pages, where it would read the leases of all live runs, 3,400
# pages, every time. What a renewal leaves here stays until a vacuum, and sweeps pass over it: 240 renewals to a page.
# The other indexes do not grow with them, since they do not move in those (PostgreSQL 14 and later).
_partial_index("adk_run_leases_lapse", leases.c.expires_at, where=LIVE)

checkpoints: Final = Table(
    "adk_checkpoints",
    metadata,
    Column("tenant", _name(), primary_key=True),
    Column("run_id", _name(), primary_key=True),
    Column("agent", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    # The frontier, as `encode_checkpoint` writes it.
    Column("payload", Text, nullable=False),
    info=_stored(fillfactor=70),
)

fences: Final = Table(
    # The highest fence that came with a write, where this database has checkpoints or transcripts and the leases are
    # kept elsewhere (F1). It outlives the checkpoint.
    "adk_fences",
    metadata,
    Column("tenant", _name(), primary_key=True),
    Column("run_id", _name(), primary_key=True),
    Column("fence", BigInteger, nullable=False),
)

claims: Final = Table(
    "adk_claims",
    metadata,
    Column("tenant", _name(), primary_key=True),
    Column("key", _name(), primary_key=True),
    # The fleet's run whose call it is, and the order in which its claims began; NULL and 0 for a lone store's.
    Column("run_id", _name()),
    Column("number", BigInteger, nullable=False),
    Column("tool", Text),
    # Who may dispatch the call, and who could before (JSON list, oldest first).
    Column("owner", Text, nullable=False),
    Column("former", Json, nullable=False),
    # HMAC of tool and arguments (I1).
    Column("digest", Text, nullable=False),
    # `in_flight`, `settled` or `never_ran`; with the outcome, who settled it, and outcomes that came after that (F4).
    Column("state", Text, nullable=False),
    Column("outcome", Json),
    Column("settled_by", Text),
    Column("late", Json, nullable=False),
    # The fence under which it was begun or taken over, and when.
    Column("fence", BigInteger),
    Column("began_at", Double),
    # When its owner was first known to be dead (I11).
    Column("dead_seen_at", Double),
    # How long a request may outlive its sender, in seconds, as its tool declared it; NULL if it did not.
    Column("max_in_flight", Double),
    # JSON list of what people decided about it, oldest first (I8).
    Column("decisions", Json, nullable=False),
)
Index("adk_claims_by_run", claims.c.tenant, claims.c.run_id, claims.c.number)

approvals: Final = Table(
    # What a run's people are asked before a call is made (P1).
    "adk_approvals",
    metadata,
    Column("tenant", _name(), primary_key=True),
    Column("run_id", _name(), primary_key=True),
    # The N of its id, `req-N`: rises within the run.
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    # `pending`, `approved`, `denied` or `withdrawn`; and from when on nobody's answer is a denial.
    Column("state", Text, nullable=False),
    Column("expires_at", Double, nullable=False),
    # The whole request: call, digest, arguments to be shown, who may answer, and the answer.
    Column("request", Json, nullable=False),
)
PENDING: Final = text("adk_approvals.state = 'pending'")
"""What a query has to say to be given the index of what waits for an answer."""
_partial_index("adk_approvals_due", approvals.c.expires_at, where=text("state = 'pending'"))

grants: Final = Table(
    # What a run's people let pass without being asked (P1).
    "adk_grants",
    metadata,
    Column("tenant", _name(), primary_key=True),
    Column("run_id", _name(), primary_key=True),
    # The N of its id, `grant-N`: rises within the run.
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    # The whole grant: tool, who gave it and when, until when, and whether it was revoked.
    Column("given", Json, nullable=False),
)

accounts: Final = Table(
    # What tenants may spend, and what their runs have, since they were first given limits (C6). It outlives the runs.
    # Locked last, after a run's lock.
    "adk_accounts",
    metadata,
    Column("tenant", _name(), primary_key=True),
    # NULL is no limit.
    Column("limit_tokens", BigInteger),
    Column("limit_cost_micros", BigInteger),
    # What answers of models have said.
    Column("spent_tokens", BigInteger, nullable=False),
    Column("spent_cost_micros", BigInteger, nullable=False),
    # What model calls in flight may take at most.
    Column("reserved_tokens", BigInteger, nullable=False),
    Column("reserved_cost_micros", BigInteger, nullable=False),
    # Calls of which nobody knows what they took, and what was reserved for them.
    Column("unaccounted_calls", BigInteger, nullable=False),
    Column("unaccounted_tokens", BigInteger, nullable=False),
    Column("unaccounted_cost_micros", BigInteger, nullable=False),
    # JSON list of the newest changes of the limits: who, when, to what.
    Column("changes", Json, nullable=False),
    # How often a run was turned away, and up to which of those times nobody waits any more.
    Column("waits_joined", BigInteger, nullable=False),
    Column("waits_left", BigInteger, nullable=False),
    # How often room came back while somebody may have waited, and up to which of those times the reaper, or whoever
    # raised a limit, has been round.
    Column("waits_freed", BigInteger, nullable=False),
    Column("waits_served", BigInteger, nullable=False),
    info=_stored(fillfactor=70),
)
# For the reaper. Neither of the two changes with a reservation or its end while nobody waits (HOT).
DUE: Final = accounts.c.waits_freed > accounts.c.waits_served
_partial_index("adk_accounts_due", accounts.c.tenant, where=DUE)

resumes: Final = Table(
    # Who is resuming a run (I9).
    "adk_resume_claims",
    metadata,
    Column("tenant", _name(), primary_key=True),
    Column("run_id", _name(), primary_key=True),
    Column("owner", Text, nullable=False),
    # The fence of the resumer's lease; NULL for one without a lease.
    Column("fence", BigInteger),
    Column("expires_at", Double, nullable=False),
)

messages: Final = Table(
    # Transcripts, in segments (H1). Rows are never changed.
    "adk_messages",
    metadata,
    Column("tenant", _name(), primary_key=True),
    Column("run_id", _name(), primary_key=True),
    # How many messages a transcript has that ends with this segment, and the digest over all of them.
    Column("end_count", BigInteger, primary_key=True, autoincrement=False),
    Column("end_digest", _name(), primary_key=True),
    # The same of the transcript that this segment continues.
    Column("start_count", BigInteger, nullable=False),
    Column("start_digest", Text, nullable=False),
    # Which of the segments that end at the same message came first, second, ...
    Column("number", BigInteger, nullable=False),
    # The messages, as `dump_messages` writes them.
    Column("payload", Text, nullable=False),
)

events: Final = Table(
    "adk_events",
    metadata,
    # Rises in the order in which a run's events are committed, since they are written under the run's lock.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
    Column("tenant", _name(), nullable=False),
    Column("run_id", _name(), nullable=False),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    # The fence of whoever wrote it.
    Column("fence", BigInteger, nullable=False),
    # JSON of names, numbers and masked text.
    Column("data", Json, nullable=False),
    sqlite_autoincrement=True,
)
Index("adk_events_by_run", events.c.tenant, events.c.run_id, events.c.id)


def with_postgresql() -> MetaData:
    """The tables with what PostgreSQL alone reads of them, for who writes DDL or compares it.

    It stands in their ``info`` until then: said at once, it would have SQLAlchemy import PostgreSQL's dialect at the
    start of every program, on SQLite too.
    """
    for table in metadata.tables.values():
        table.kwargs.update(table.info.get(_POSTGRESQL, {}))
        for index in table.indexes:
            index.kwargs.update(index.info.get(_POSTGRESQL, {}))
    return metadata


def _ddl(dialect: Dialect) -> str:
    made: list[Any] = []
    for table in with_postgresql().sorted_tables:
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        made += [CreateTable(table), *map(CreateIndex, indexes)]
    made.append(insert(schema_row).values(id=1, version=SCHEMA_VERSION, epoch=0))
    written = (str(one.compile(dialect=dialect, compile_kwargs={"literal_binds": True})).strip() for one in made)
    return "".join(f"{statement};\n" for statement in written)


EXPECTED_CHECKPOINT_SCHEMA: Mapping[str, str]
"""The DDL that the migrations come to, by dialect, for those who make their tables with tools of their own."""


def __getattr__(name: str) -> Mapping[str, str]:
    # Written when it is first asked for, which no store does.
    if name != "EXPECTED_CHECKPOINT_SCHEMA":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    global EXPECTED_CHECKPOINT_SCHEMA  # noqa: PLW0603 - a constant
    EXPECTED_CHECKPOINT_SCHEMA = MappingProxyType({one: _ddl(registry.load(one)()) for one in ("postgresql", "sqlite")})
    return EXPECTED_CHECKPOINT_SCHEMA
