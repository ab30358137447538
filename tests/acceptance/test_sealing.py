"""Sealed secrets on a real fleet: who is given them, what happens without their key, and keys that rotate (R2)."""

from __future__ import annotations

import base64
import contextlib
import subprocess
import sys
import threading

import psycopg2
import pytest
import redis

from adk_worker.runs import RunStatus
from adk_worker.sealing.keys import SealKey
from adk_worker.transitions.runs import Attention
from stores.sql.schema import metadata as schema
from tests.acceptance.secretive import MADE, deliveries
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(400)]

OLD, NEW = SealKey.new("old"), SealKey.new("new")
PASSWORD = "hunter22-of-bob"
TOKEN = "t0ken-of-the-desk"
FIRST = {"note": f"bob:{PASSWORD}@desk", "token": TOKEN}
SECOND = {"note": f"as {MADE}", "token": TOKEN}


class Courier:
    """A fleet whose agent is told secrets."""

    def __init__(self, fleet, monkeypatch):
        self.fleet = fleet
        self._monkeypatch = monkeypatch

    def environment(self, *keys):
        return {
            "ADK_AGENTS": "tests.acceptance.secretive",
            "COURIER_DIR": str(self.fleet.folder),
            "ADK_SEAL_KEYS": ",".join(key.text for key in keys),
        }

    def worker(self, name, *keys, **more):
        return self.fleet.worker(name, **self.environment(*keys), **more)

    def submit(self, run_id, *keys):
        """Submit, as a web app with these keys does."""
        self._monkeypatch.setenv("ADK_SEAL_KEYS", ",".join(key.text for key in keys))
        said = {"tenant": "acme", "run_id": run_id, "metadata": {"api_token": TOKEN}}
        return self.fleet.sync.submit("courier", f"log in as bob, password={PASSWORD}", **said)

    def adk(self, *arguments, keys=()):
        """A command, as somebody types it."""
        return subprocess.run(
            [sys.executable, "-m", "adk_worker.cli", *arguments],
            check=False,
            cwd=self.fleet.folder,
            env={**self.fleet.environment(), **self.environment(*keys)},
            capture_output=True,
            text=True,
            timeout=self.fleet.patience,
        )

    def file(self, name):
        return self.fleet.folder / name

    def holding(self, run_id):
        """Whether the run's second model call is under way, the first delivery behind it."""
        run = self.fleet.run(run_id)
        return run.iteration == 1 and run.sequence == 2 and run.status is RunStatus.RUNNING

    def await_holding(self, run_id):
        what = f"{run_id} to be in its second model call\n{self.fleet.logs()}"
        wait_until(lambda: self.holding(run_id), within=self.fleet.patience, what=what)

    def delivered(self, run_id):
        return [{name: found[name] for name in ("note", "token")} for found in deliveries(self.fleet.folder, run_id)]

    def execute(self, statement):
        """Do something to the database."""
        with contextlib.closing(psycopg2.connect(self.fleet.store_url)) as database, database, database.cursor() as at:
            at.execute(statement)

    def rows(self):
        """Every row of every table, as text."""
        with contextlib.closing(psycopg2.connect(self.fleet.store_url)) as connection, connection.cursor() as cursor:
            texts = []
            for table in schema.tables:
                cursor.execute(f"SELECT t::text FROM {table} t")
                texts += [row for (row,) in cursor.fetchall()]
        return "\n".join(texts)


@pytest.fixture
def courier(fleet, monkeypatch):
    return Courier(fleet, monkeypatch)


@pytest.fixture
def overheard(redis_url):
    """All that is said to the broker, by whomever."""
    said = []
    client = redis.Redis.from_url(redis_url)
    listening = threading.Event()

    def listen():
        with contextlib.suppress(redis.RedisError, OSError, ValueError), client.monitor() as monitor:
            listening.set()
            for command in monitor.listen():
                said.append(command["command"])  # noqa: PERF401 - it never ends

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    assert listening.wait(60)
    yield said
    client.connection_pool.disconnect()


def hidden_in(text, secret):
    """Whether the secret is in the text, also as base64 has it, wherever in that it begins."""
    encoded = [base64.b64encode(b"x" * shift + secret.encode())[4:-4].decode() for shift in range(3)]
    return any(form in text for form in (secret, *encoded))


def test_a_secret_reaches_the_far_side_and_is_nowhere_else(courier, overheard):
    """R1, R2: across the death of the worker that was told it, and what a tool brings can be given to the next."""
    courier.file("hold-run_1").touch()
    victim = courier.worker("victim", NEW)
    courier.submit("run_1", NEW)
    courier.await_holding("run_1")
    victim.kill()
    courier.file("hold-run_1").unlink()
    courier.worker("heir", NEW)
    run = courier.fleet.rests("run_1")

    assert courier.delivered("run_1") == [FIRST, SECOND]
    assert run.output == "Delivered for [secret:1]."
    shown = courier.adk("inspect", "run_1", "--tenant", "acme", "--events", "--json")
    logs = "".join(process.log() for process in courier.fleet._processes)  # noqa: SLF001 - all of it
    places = {
        "store": courier.rows(),
        "log": logs,
        "broker": "\n".join(overheard),
        "terminal": shown.stdout + shown.stderr,
    }
    for where, text in places.items():
        assert "run_1" in text or where == "broker", where
        for secret in (PASSWORD, TOKEN, MADE, NEW.text.partition(":")[2]):
            assert not hidden_in(text, secret), f"{where} has a secret"
    assert "adk.advance" in places["broker"]
    assert "delivering bob:[secret:1]@desk" in places["log"]
    assert "s1.new." in places["store"]


@pytest.mark.parametrize("others", [(), (OLD,), (SealKey.new("new"),)], ids=["no key", "another", "an impostor"])
def test_a_run_whose_key_is_gone_parks_and_goes_on_once_it_is_back(courier, others):
    """R2: before anything is dispatched, and the key is named; nothing is lost or made twice."""
    courier.file("hold-run_1").touch()
    first = courier.worker("first", NEW)
    courier.submit("run_1", NEW)
    courier.await_holding("run_1")
    first.stop()
    without = courier.worker("without", *others)
    courier.file("hold-run_1").unlink()

    run = courier.fleet.rests("run_1", RunStatus.PARKED)
    assert run.attention is Attention.SEAL_KEY_MISSING
    assert courier.delivered("run_1") == [FIRST]
    told = courier.adk("inspect", "run_1", "--tenant", "acme")
    assert "parked (seal_key_missing): it holds secrets sealed under a key that its worker lacks" in told.stdout
    assert "sealed under the key 'new'" in told.stdout
    # It is no good before the key is back.
    again = courier.adk("run", "--resume", "run_1", "--tenant", "acme")
    assert again.returncode == 4, again.stdout + again.stderr

    without.stop()
    courier.worker("with", *(key for key in others if key.id != "new"), NEW)
    back = courier.adk("run", "--resume", "run_1", "--tenant", "acme")
    assert back.returncode == 0, back.stdout + back.stderr
    courier.fleet.rests("run_1")
    assert courier.delivered("run_1") == [FIRST, SECOND]


def test_keys_rotate_beside_a_live_fleet(courier):
    """R2: until nothing needs the old one, which is gone then."""
    courier.file("hold-moving").touch()
    courier.file("broken-failed").touch()
    before = courier.worker("before", OLD)
    courier.submit("moving", OLD)
    courier.submit("failed", OLD)
    courier.await_holding("moving")
    courier.fleet.rests("failed", RunStatus.FAILED)

    # One is in a worker's hands, which has only the old key; the other is sealed anew.
    early = courier.adk("seal", "rotate", keys=(NEW, OLD))
    assert early.returncode == 4, early.stdout + early.stderr
    assert "1 run sealed anew under new" in early.stdout
    assert "key old is still needed by 1 run" in early.stdout

    between = courier.worker("between", NEW, OLD)
    before.stop()
    courier.await_holding("moving")
    courier.file("hold-moving").unlink()
    courier.fleet.rests("moving")
    late = courier.adk("seal", "rotate", keys=(NEW, OLD))
    assert late.returncode == 0, late.stdout + late.stderr
    assert "key old is needed by no run: it can be dropped" in late.stdout

    courier.worker("after", NEW)
    between.stop()
    courier.file("broken-failed").unlink()
    resumed = courier.adk("run", "--resume", "failed", "--tenant", "acme", keys=(NEW,))
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    courier.fleet.rests("failed")
    for run_id in ("moving", "failed"):
        assert courier.delivered(run_id) == [FIRST, SECOND]


def test_a_run_whose_transcript_was_evicted_parks_and_goes_on_once_that_is_back(courier):
    """H2: it is not carried on with a hole, and says so; no call is made again."""
    courier.file("hold-run_1").touch()
    first = courier.worker("first", NEW)
    courier.submit("run_1", NEW)
    courier.await_holding("run_1")
    first.stop()
    courier.execute("CREATE TABLE evicted AS SELECT * FROM adk_messages")
    courier.execute("DELETE FROM adk_messages")
    courier.worker("second", NEW)
    courier.file("hold-run_1").unlink()

    run = courier.fleet.rests("run_1", RunStatus.PARKED)
    assert run.attention is Attention.HISTORY_UNAVAILABLE
    told = courier.adk("inspect", "run_1", "--tenant", "acme")
    assert told.returncode == 4, told.stdout + told.stderr
    assert "parked (history_unavailable): its transcript is gone or damaged; restore it first" in told.stdout
    assert "must not be carried on: the transcript behind handle" in told.stdout
    assert courier.adk("run", "--resume", "run_1", "--tenant", "acme").returncode == 4
    assert courier.delivered("run_1") == [FIRST]

    courier.execute("INSERT INTO adk_messages SELECT * FROM evicted")
    back = courier.adk("run", "--resume", "run_1", "--tenant", "acme")
    assert back.returncode == 0, back.stdout + back.stderr
    courier.fleet.rests("run_1")
    assert courier.delivered("run_1") == [FIRST, SECOND]
