"""Eight processes on one SQLite file lose no update; with the driver's default settings, two connections do."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import create_engine, select, update
from sqlalchemy.exc import OperationalError

from adk_worker.runs import NewRun
from stores.sql import SqlOptions, open_sql
from stores.sql.database import Database
from stores.sql.schema import schema_row
from tests.integration.sqlite_crowd import FIRST_TICKET, POLICY, TENANT


@pytest.mark.timeout(240)
async def test_eight_processes_lose_no_update(sqlite_store_url):
    """L2, L7, I3: every acquisition has a fence of its own, every call one owner, every message one taker."""
    turns, names = 30, [f"run-{number}" for number in range(30)]
    stores = open_sql(sqlite_store_url)
    for name in names:
        submitted = await stores.runs.submit(NewRun(TENANT, name, "booking", "book"), policy=POLICY)
        assert submitted.ticket == FIRST_TICKET

    crowd = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.sqlite_crowd", sqlite_store_url, "8", str(turns), str(len(names))),
        cwd=Path(__file__).parents[2],
        stdout=asyncio.subprocess.PIPE,
    )
    answers = json.loads((await crowd.communicate())[0])

    fences, owned, taken = (list(itertools.chain(*parts)) for parts in zip(*answers, strict=True))
    assert sorted(fences) == list(range(1, len(fences) + 1))
    assert Counter(owned) == Counter(f"key-{turn}" for turn in range(turns))
    assert Counter(taken) == Counter(names)
    for name in names:
        assert (await stores.runs.get(name, tenant=TENANT)).sequence == 1
    await stores.lifecycle.close()


def test_the_default_settings_lose_an_update_without_a_word(sqlite_store_url):
    """What the settings are for: two writers have read before either has the right to write."""
    engine = create_engine(sqlite_store_url)

    with engine.connect() as one, engine.connect() as two:
        for connection in (one, two):
            read = connection.execute(select(schema_row.c.epoch)).scalar_one()
            connection.info["read"] = read
        for connection in (one, two):
            connection.execute(update(schema_row).values(epoch=connection.info["read"] + 1))
            connection.commit()

    with engine.connect() as connection:
        assert connection.execute(select(schema_row.c.epoch)).scalar_one() == 1, "two have counted, and one counts"
    engine.dispose()


def test_a_transaction_of_the_drivers_own_is_refused_without_a_wait(sqlite_store_url):
    """What the settings are for: begun as a reader, it cannot become a writer once another has written."""
    engine = create_engine(sqlite_store_url, connect_args={"isolation_level": "DEFERRED", "timeout": 30})

    with engine.connect() as one, engine.connect() as two:
        for connection in (one, two):
            connection.exec_driver_sql("BEGIN")
            connection.execute(select(schema_row.c.epoch)).scalar_one()
        one.execute(update(schema_row).values(epoch=1))
        one.commit()
        with pytest.raises(OperationalError, match="locked"):
            two.execute(update(schema_row).values(epoch=2))
    engine.dispose()


async def test_the_same_two_writers_come_one_after_the_other(sqlite_store_url):
    """L2: the second one reads what the first has written, be it in this process or in another."""
    databases = [Database(sqlite_store_url, SqlOptions()) for _ in range(2)]

    def count(tx):
        read = tx.execute(select(schema_row.c.epoch)).scalar_one()
        tx.execute(update(schema_row).values(epoch=read + 1))
        return read

    read = await asyncio.gather(*(database.write(count) for database in databases for _ in range(100)))

    assert sorted(read) == list(range(200))
    for database in databases:
        await database.close()


async def test_connections_are_set_up_so_that_a_commit_is_on_the_disk(sqlite_store_url):
    """A write-ahead log, synced at every commit, and a wait for whoever writes."""
    database = Database(sqlite_store_url, SqlOptions(socket_timeout=7))

    def settings(tx):
        return [
            tx.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "busy_timeout")
        ]

    assert await database.read(settings) == ["wal", 2, 7000]
    await database.close()


async def test_readers_do_not_wait_for_the_writer(sqlite_store_url):
    stores = open_sql(sqlite_store_url)
    with create_engine(sqlite_store_url).connect() as writing:
        writing.exec_driver_sql("BEGIN IMMEDIATE")
        writing.execute(update(schema_row).values(epoch=5))

        await stores.lifecycle.verify()
    await stores.lifecycle.close()
