"""Watches a migration on PostgreSQL for what would keep a fleet waiting on a big table.

The server itself looks, within each transaction of the migration: which locks it holds, what it has scanned since its
first statement, and how many rows it has changed. So it makes no difference how a statement is written, and the tables
need no more than a row. What it refuses, on a table that was there before:

- a rewrite;
- a scan while the transaction holds a lock that keeps writers out, whichever statement took that;
- an UPDATE or DELETE of rows in a transaction that goes on: in batches, each committed by itself, they are harmless.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url

_INSTALL = """
CREATE SCHEMA watch;
-- The two that are left out have one row each.
CREATE TABLE watch.big AS
    SELECT oid AS id, relname AS name, relfilenode AS file FROM pg_class
    WHERE relkind = 'r' AND starts_with(relname, 'adk_') AND relname NOT IN ('adk_schema', 'adk_alembic_version');
CREATE TABLE watch.began (transaction bigint, id oid, scans bigint, changes bigint);

CREATE VIEW watch.counts AS
    SELECT b.id, b.name, coalesce(s.seq_scan, 0) AS scans, coalesce(s.n_tup_upd + s.n_tup_del, 0) AS changes
    FROM watch.big b LEFT JOIN pg_stat_xact_all_tables s ON s.relid = b.id;

-- Counts of earlier transactions may not have been reported yet, so each begins with what it finds.
CREATE FUNCTION watch.begin() RETURNS void LANGUAGE sql AS $$
    INSERT INTO watch.began SELECT txid_current(), id, scans, changes FROM watch.counts
    WHERE NOT EXISTS (SELECT FROM watch.began WHERE transaction = txid_current());
$$;

CREATE FUNCTION watch.check() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found record;
BEGIN
    FOR found IN
        SELECT c.name, c.scans > b.scans AS scanned, c.changes > b.changes AS changed,
               (SELECT min(l.mode) FROM pg_locks l WHERE l.relation = c.id AND l.pid = pg_backend_pid() AND l.granted
                AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')) AS lock
        FROM watch.counts c JOIN watch.began b ON b.id = c.id AND b.transaction = txid_current()
    LOOP
        IF found.scanned AND found.lock IS NOT NULL THEN
            RAISE EXCEPTION 'watched: % is scanned while nobody can write to it (%)', found.name, found.lock;
        END IF;
        IF found.changed THEN
            RAISE EXCEPTION 'watched: rows of % stay locked until the migration is committed', found.name;
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION watch.on_start() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM watch.begin(); END $$;
CREATE FUNCTION watch.on_end() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM watch.check(); END $$;
CREATE FUNCTION watch.on_rewrite() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_event_trigger_table_rewrite_oid() IN (SELECT id FROM watch.big) THEN
        RAISE EXCEPTION 'watched: % is rewritten', pg_event_trigger_table_rewrite_oid()::regclass;
    END IF;
END $$;
CREATE EVENT TRIGGER watch_start ON ddl_command_start EXECUTE FUNCTION watch.on_start();
CREATE EVENT TRIGGER watch_end ON ddl_command_end EXECUTE FUNCTION watch.on_end();
CREATE EVENT TRIGGER watch_rewrite ON table_rewrite EXECUTE FUNCTION watch.on_rewrite();
"""

_REMOVE = """
DROP EVENT TRIGGER watch_start; DROP EVENT TRIGGER watch_end; DROP EVENT TRIGGER watch_rewrite;
DROP SCHEMA watch CASCADE;
"""

# VACUUM FULL and CLUSTER rewrite without an event.
_REWRITTEN = "SELECT name FROM watch.big JOIN pg_class ON oid = id WHERE relfilenode <> file"


class KeepsWaitingError(AssertionError):
    """A migration would keep a fleet waiting."""


@contextmanager
def watched(url: str) -> Iterator[None]:
    """Watch over what is done to the tables of ``url`` for the length of the block, in this process.

    :raises KeepsWaitingError: it would keep a fleet waiting.
    """
    target = make_url(url).set(drivername="postgresql+psycopg2")
    engine = create_engine(target, isolation_level="AUTOCOMMIT")

    def within(connection: Connection) -> bool:
        # A single statement in autocommit holds nothing once it is done; the triggers see it while it runs.
        ours = connection.engine is not engine and connection.engine.url.database == target.database
        return ours and not connection.connection.dbapi_connection.autocommit  # type: ignore[union-attr]

    def before(connection: Connection, *_: Any) -> None:
        if within(connection):
            _ask(connection, "SELECT watch.begin()")

    def after(connection: Connection, *_: Any) -> None:
        if within(connection):
            _ask(connection, "SELECT watch.check()")

    with engine.connect() as connection:
        connection.exec_driver_sql(_INSTALL.replace("%", "%%"))
        event.listen(Engine, "before_cursor_execute", before)
        event.listen(Engine, "after_cursor_execute", after)
        try:
            yield
        except Exception as error:
            if "watched: " in str(error):
                raise KeepsWaitingError(str(error).partition("watched: ")[2].splitlines()[0]) from error
            raise
        finally:
            event.remove(Engine, "before_cursor_execute", before)
            event.remove(Engine, "after_cursor_execute", after)
            rewritten = connection.execute(text(_REWRITTEN)).scalars().all()
            connection.exec_driver_sql(_REMOVE)
    engine.dispose()
    if rewritten:
        raise KeepsWaitingError(f"{', '.join(rewritten)} is rewritten")


def _ask(connection: Connection, question: str) -> None:
    with connection.connection.cursor() as cursor:
        cursor.execute(question)
