"""Create all tables.

Revision ID: 0001
Revises: nothing

What each column means stands in ``stores/sql/schema.py``.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def name() -> sa.Text:
    """Text of a key: compared byte by byte, whatever the database's locale."""
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    schema = op.create_table(
        "adk_schema",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("last_sweep", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="adk_schema_pkey"),
        sa.CheckConstraint("id = 1", name=op.f("adk_schema_one_row_check")),
    )
    op.bulk_insert(schema, [{"id": 1, "version": revision, "epoch": 0}])

    op.create_table(
        "adk_runs",
        sa.Column("tenant", name(), nullable=False),
        sa.Column("run_id", name(), nullable=False),
        sa.Column("number", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("input", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("revision", sa.Text(), nullable=False),
        sa.Column("masks", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("attention", sa.Text()),
        sa.Column("detail", sa.Text()),
        sa.Column("parked_on", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("committed_by", sa.BigInteger(), nullable=False),
        sa.Column("iteration", sa.BigInteger(), nullable=False),
        sa.Column("execution", sa.BigInteger(), nullable=False),
        sa.Column("usage", sa.Text(), nullable=False),
        sa.Column("cost_micros", sa.BigInteger(), nullable=False),
        sa.Column("output", sa.Text()),
        sa.Column("ledger", sa.Text(), nullable=False),
        sa.Column("crashes", sa.Integer(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("behind", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "run_id", name="adk_runs_pkey"),
        postgresql_with={"fillfactor": 70},
    )
    op.create_index("adk_runs_by_number", "adk_runs", ["number"])
    op.create_index("adk_runs_by_tenant", "adk_runs", ["tenant", "number"])
    op.create_index("adk_runs_by_run_id", "adk_runs", ["run_id", "number"])
    op.create_index("adk_runs_by_phase", "adk_runs", ["phase", "number"])
    op.create_index("adk_runs_by_tenant_and_phase", "adk_runs", ["tenant", "phase", "number"])
    needs_attention = sa.text("attention IS NOT NULL")
    op.create_index(
        "adk_runs_attention", "adk_runs", ["number"], postgresql_where=needs_attention, sqlite_where=needs_attention
    )

    op.create_table(
        "adk_run_leases",
        sa.Column("tenant", name(), nullable=False),
        sa.Column("run_id", name(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("holding", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text()),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("wait", sa.Double(), nullable=False),
        sa.Column("status", sa.Text()),
        sa.Column("number", sa.BigInteger()),
        sa.PrimaryKeyConstraint("tenant", "run_id", name="adk_run_leases_pkey"),
        postgresql_with={
            "fillfactor": 70,
            "autovacuum_vacuum_threshold": 1000,
            "autovacuum_vacuum_scale_factor": 0.01,
            "vacuum_index_cleanup": "on",
        },
    )
    live = sa.text("status IS NOT NULL")
    for index, columns in (
        ("adk_run_leases_by_status", ["status", "number"]),
        ("adk_run_leases_by_tenant_and_status", ["tenant", "status", "number"]),
        ("adk_run_leases_lapse", ["expires_at"]),
    ):
        op.create_index(index, "adk_run_leases", columns, postgresql_where=live, sqlite_where=live)

    op.create_table(
        "adk_checkpoints",
        sa.Column("tenant", name(), nullable=False),
        sa.Column("run_id", name(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "run_id", name="adk_checkpoints_pkey"),
        postgresql_with={"fillfactor": 70},
    )

    op.create_table(
        "adk_fences",
        sa.Column("tenant", name(), nullable=False),
        sa.Column("run_id", name(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "run_id", name="adk_fences_pkey"),
    )

    op.create_table(
        "adk_claims",
        sa.Column("tenant", name(), nullable=False),
        sa.Column("key", name(), nullable=False),
        sa.Column("run_id", name()),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("tool", sa.Text()),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("former", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text()),
        sa.Column("settled_by", sa.Text()),
        sa.Column("late", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger()),
        sa.Column("began_at", sa.Double()),
        sa.Column("dead_seen_at", sa.Double()),
        sa.Column("max_in_flight", sa.Double()),
        sa.Column("decisions", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "key", name="adk_claims_pkey"),
    )
    op.create_index("adk_claims_by_run", "adk_claims", ["tenant", "run_id", "number"])

    op.create_table(
        "adk_approvals",
        sa.Column("tenant", name(), nullable=False),
        sa.Column("run_id", name(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "run_id", "number", name="adk_approvals_pkey"),
    )
    pending = sa.text("state = 'pending'")
    op.create_index(
        "adk_approvals_due", "adk_approvals", ["expires_at"], postgresql_where=pending, sqlite_where=pending
    )

    op.create_table(
        "adk_grants",
        sa.Column("tenant", name(), nullable=False),
        sa.Column("run_id", name(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("given", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "run_id", "number", name="adk_grants_pkey"),
    )

    op.create_table(
        "adk_accounts",
        sa.Column("tenant", name(), nullable=False),
        sa.Column("limit_tokens", sa.BigInteger()),
        sa.Column("limit_cost_micros", sa.BigInteger()),
        sa.Column("spent_tokens", sa.BigInteger(), nullable=False),
        sa.Column("spent_cost_micros", sa.BigInteger(), nullable=False),
        sa.Column("reserved_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reserved_cost_micros", sa.BigInteger(), nullable=False),
        sa.Column("unaccounted_calls", sa.BigInteger(), nullable=False),
        sa.Column("unaccounted_tokens", sa.BigInteger(), nullable=False),
        sa.Column("unaccounted_cost_micros", sa.BigInteger(), nullable=False),
        sa.Column("changes", sa.Text(), nullable=False),
        sa.Column("waits_joined", sa.BigInteger(), nullable=False),
        sa.Column("waits_left", sa.BigInteger(), nullable=False),
        sa.Column("waits_freed", sa.BigInteger(), nullable=False),
        sa.Column("waits_served", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", name="adk_accounts_pkey"),
        postgresql_with={"fillfactor": 70},
    )
    due = sa.text("waits_freed > waits_served")
    op.create_index("adk_accounts_due", "adk_accounts", ["tenant"], postgresql_where=due, sqlite_where=due)

    op.create_table(
        "adk_resume_claims",
        sa.Column("tenant", name(), nullable=False),
        sa.Column("run_id", name(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger()),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "run_id", name="adk_resume_claims_pkey"),
    )

    op.create_table(
        "adk_messages",
        sa.Column("tenant", name(), nullable=False),
        sa.Column("run_id", name(), nullable=False),
        sa.Column("end_count", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("end_digest", name(), nullable=False),
        sa.Column("start_count", sa.BigInteger(), nullable=False),
        sa.Column("start_digest", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "run_id", "end_count", "end_digest", name="adk_messages_pkey"),
    )

    op.create_table(
        "adk_events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), sa.Identity(), nullable=False),
        sa.Column("tenant", name(), nullable=False),
        sa.Column("run_id", name(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="adk_events_pkey"),
        sqlite_autoincrement=True,
    )
    op.create_index("adk_events_by_run", "adk_events", ["tenant", "run_id", "id"])


def downgrade() -> None:
    for table in (
        "adk_events",
        "adk_messages",
        "adk_resume_claims",
        "adk_grants",
        "adk_approvals",
        "adk_accounts",
        "adk_claims",
        "adk_fences",
        "adk_checkpoints",
        "adk_run_leases",
        "adk_runs",
        "adk_schema",
    ):
        op.drop_table(table)
