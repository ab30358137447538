"""Fills a database with runs that are over, and shows that the fleet's and the terminal's queries do not notice.

    python -m benchmarks.full [--finished 100000] [--live 2000] [--lapsed 50] [--renewals 0] [--plans]

Needs PostgreSQL installed; it is started for it, on loopback, and its data removed afterwards: a million runs take
about 1.2 GB. Of each query it prints what EXPLAIN (ANALYZE, BUFFERS) says: rows returned, rows read in all tables,
pages of 8 KiB looked at, and time. It ends with 1 if one reads more rows than tests/integration/full_store.py allows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from sqlalchemy import Connection, Engine, create_engine, text

from stores.sql import migrate, renewing
from tests.integration.full_store import SLACK, Size, fill, leased, queries, read, selects
from tests.servers import OrphanGuard, PostgresServer

_AT_ONCE = 500_000
_RENEWED_AT_ONCE = 1_000
# Filling is not what is measured. A crash of the server loses it all, and nobody else writes meanwhile.
_SETTINGS = {
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "16GB",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "maintenance_work_mem": "512MB",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill, ask, and print a table."""
    chosen = _parse(arguments)
    size = Size(chosen.finished, chosen.live, chosen.lapsed)
    console = Console(width=120)
    with OrphanGuard() as guard, PostgresServer(settings=_SETTINGS, guard=guard) as server, server.database() as url:
        migrate.upgrade(url)
        engine = create_engine(url.replace("postgresql://", "postgresql+psycopg2://"))
        began = time.monotonic()
        _fill(engine, size, told=console.log)
        with engine.connect() as connection:
            big = connection.execute(text("SELECT pg_size_pretty(pg_database_size(current_database()))")).scalar_one()
        console.print(
            f"{size.finished:,} runs that are over, {size.live:,} live, of which {size.lapsed:,} lapsed: {big}, "
            f"filled in {time.monotonic() - began:.0f} s"
        )
        if chosen.renewals:
            console.print(_renewed(engine, size, chosen.renewals))
        asked = {name: _explain(engine, work) for name, (work, _) in queries(size).items()}
        engine.dispose()
    console.print(_table(asked))
    if chosen.plans:
        for name, plans in asked.items():
            console.rule(name)
            for plan in plans:
                console.print_json(json.dumps(plan))
    allowed = {name: most for name, (_, most) in queries(size).items()}
    over = [name for name, plans in asked.items() if any(read(plan["Plan"]) > allowed[name] + SLACK for plan in plans)]
    for name in over:
        console.print(f"{name}: reads more than it may, {allowed[name]} rows", style="bold red")
    return 1 if over else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.full", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--finished", type=int, default=100_000, help="runs that are over (100,000)")
    parser.add_argument("--live", type=int, default=2_000, help="live runs (2,000)")
    parser.add_argument("--lapsed", type=int, default=50, help="live runs whose worker died (50)")
    parser.add_argument("--renewals", type=int, default=0, help="renewals of each live lease before that (0)")
    parser.add_argument("--plans", action="store_true", help="print the plans, too")
    return parser.parse_args(arguments)


def _fill(engine: Engine, size: Size, *, told: Callable[[str], None]) -> None:
    """Insert it all, with the indexes made afterwards: in a tenth of the time."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        again = _without_indexes(connection)
        for first in range(1, size.total + 1, _AT_ONCE):
            last = min(first + _AT_ONCE - 1, size.total)
            fill(connection, f"generate_series({first}, {last}) AS numbers(n)", size)
            told(f"{last:,} of {size.total:,} runs")
        for statement in again:
            connection.execute(text(statement))
            told(statement)
        connection.execute(text("VACUUM ANALYZE"))


def _renew(engine: Engine, size: Size, times: int) -> None:
    """Leave behind what as many renewals leave: entries in the past, of leases that expire in the future."""
    for left in reversed(range(times)):
        for first in range(size.finished + 1, size.total - size.lapsed + 1, _RENEWED_AT_ONCE):
            held = [leased(n) for n in range(first, min(first + _RENEWED_AT_ONCE, size.total - size.lapsed + 1))]
            with engine.begin() as connection:
                renewing.renew_many(connection, held, ttl=0.001 if left else 3600.0)


def _renewed(engine: Engine, size: Size, times: int) -> str:
    """What so many renewals of each live lease have cost, and left behind."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        before, logged = _pages(connection), _logged(connection)
        _renew(engine, size, times)
        logged, after = _logged(connection) - logged, _pages(connection)
        # A session counts what it has done only when it is idle, or asked to.
        connection.execute(text("SELECT pg_stat_force_next_flush()"))
        hot = connection.execute(
            text("SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'adk_run_leases'")
        ).scalar_one()
    count = times * (size.live - size.lapsed)
    grown = ", ".join(f"{name} from {before[name]:,} to {pages:,}" for name, pages in after.items())
    return (
        f"each live lease renewed {times:,} times, and nothing vacuumed since: {logged / count:.0f} bytes of log each, "
        f"{hot:,} of {count:,} updates HOT; pages: {grown}"
    )


def _logged(connection: Connection) -> int:
    return int(connection.execute(text("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')")).scalar_one())


def _pages(connection: Connection) -> Mapping[str, int]:
    """Of the leases' table and of each of its indexes."""
    found = "FROM pg_class WHERE starts_with(relname, 'adk_run_leases') ORDER BY relname"
    asked = text(f"SELECT relname, pg_relation_size(oid) / 8192 AS pages {found}")
    return {row.relname: row.pages for row in connection.execute(asked)}


def _without_indexes(connection: Connection) -> list[str]:
    """Drop all indexes and primary keys; what makes them again."""
    keys = connection.execute(
        text(
            "SELECT conrelid::regclass::text AS of, conname AS name, pg_get_constraintdef(oid) AS made "
            "FROM pg_constraint WHERE contype = 'p' AND starts_with(conname, 'adk_')"
        )
    ).all()
    for key in keys:
        connection.execute(text(f"ALTER TABLE {key.of} DROP CONSTRAINT {key.name}"))
    indexes = connection.execute(
        text("SELECT indexname AS name, indexdef AS made FROM pg_indexes WHERE starts_with(indexname, 'adk_')")
    ).all()
    for index in indexes:
        connection.execute(text(f"DROP INDEX {index.name}"))
    made = [f"ALTER TABLE {key.of} ADD CONSTRAINT {key.name} {key.made}" for key in keys]
    return [*made, *(index.made for index in indexes)]


def _explain(engine: Engine, work: Callable[[Connection], Any]) -> list[Mapping[str, Any]]:
    """The plans of all that ``work`` asks, carried out, each a second time so that its pages are in memory."""
    plans = []
    for statement, parameters in selects(engine, work):
        with engine.connect() as connection:
            for _ in range(2):
                asked = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
                (plan,) = connection.exec_driver_sql(asked, parameters).scalar_one()
                connection.rollback()
        plans.append(plan)
    return plans


def _table(asked: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    table = Table("query", *("returned", "rows read", "pages", "ms"))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, plans in asked.items():
        tops = [plan["Plan"] for plan in plans]
        table.add_row(
            name,
            f"{sum(top['Actual Rows'] for top in tops):,.0f}",
            f"{sum(map(read, tops)):,.0f}",
            f"{sum(top['Shared Hit Blocks'] + top['Shared Read Blocks'] for top in tops):,}",
            f"{sum(plan['Execution Time'] for plan in plans):,.2f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
