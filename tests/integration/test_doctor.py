"""``adk doctor`` as a process, on real servers, with one thing wrong at a time."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing

import pytest
import redis
from celery import Celery

from stores import open_stores
from tasks.config import celery_config
from tests.acceptance.fleet import PATIENCE
from tests.integration.fleet import CeleryFleet
from tests.integration.given import given
from tests.integration.test_cli import Adk
from tests.integration.test_logins import mistaken
from tests.servers.daemon import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

SHOP = """
from adk_worker import Agent
booking = Agent(name="booking", instructions="Book.", model="MODEL", revision="r1")
turns = ["Booked."]
"""
WELL = "scripted:shop:turns"


def swept(store_url):
    """Sweep the store, as a reaper does that has nothing to do."""

    async def sweep():
        stores = open_stores(store_url, pool_size=1)
        await stores.runs.sweep()
        await stores.lifecycle.close()

    asyncio.run(sweep())


@pytest.fixture
def doctor(tmp_path, sqlite_store_url, redis_url):
    """Calls it for a fleet that is well, but for what the test changes: the code, and what was found by check."""
    swept(sqlite_store_url)
    (tmp_path / "shop.py").write_text(SHOP.replace("MODEL", WELL))
    adk = Adk(
        tmp_path, ADK_STORE_URL=sqlite_store_url, ADK_BROKER_URL=redis_url, ADK_AGENTS="shop", ADK_REAP_EVERY="60"
    )

    def call(*argv, **environment):
        ran = adk("doctor", "--json", *argv, **environment)
        assert "hunter2" not in ran.stdout + ran.stderr
        return ran.returncode, [json.loads(line) for line in ran.stdout.splitlines()]

    call.folder = tmp_path
    return call


def of(found, level):
    """What was found of a level, as ``check: found`` each."""
    return [f"{one['check']}: {one['found']}" for one in found if one["level"] == level]


def only(found, level):
    """The one thing of that level."""
    (one,) = of(found, level)
    return one


def workers_aside(found):
    """No worker runs in most of these tests, which is told as a warning."""
    return [one for one in found if one["check"] != "workers"]


def test_a_fleet_that_is_well_is_well(tmp_path, migrated_sqlite_file, redis_url, orphan_guard):
    """With a worker, a control worker and beat, and with what is on its queues."""
    shutil.copy(migrated_sqlite_file, tmp_path / "runs.db")
    fleet = CeleryFleet(tmp_path, redis_url, orphan_guard)
    try:
        fleet.worker()
        fleet.backstage()
        variables = {**fleet.times, "ADK_AGENTS": "tests.integration.agents"}
        variables |= {"ADK_STORE_URL": fleet.store_url, "ADK_BROKER_URL": redis_url}
        adk = Adk(tmp_path, **variables)
        # Until the first sweep something fails, and a worker that has no turn for long gives no answer in time.
        looks = []

        def well():
            looks.append(adk("doctor"))
            return looks[-1].stderr == "nothing is wrong\n"

        wait_until(well, within=PATIENCE, what="all to be well")
        told = looks[-1]
    finally:
        fleet.close()

    assert (told.returncode, told.stderr) == (0, "nothing is wrong\n"), told.stdout
    assert {line.split()[0] for line in told.stdout.splitlines()} == {"ok"}
    for said in ("adk is consumed by worker@", "adk.control is consumed by control@", "the last sweep was "):
        assert said in told.stdout


def test_a_message_with_a_countdown_in_a_worker_s_hand_is_found(
    tmp_path, migrated_sqlite_file, redis_url, orphan_guard
):
    shutil.copy(migrated_sqlite_file, tmp_path / "runs.db")
    swept(f"sqlite:///{tmp_path}/runs.db")
    fleet = CeleryFleet(tmp_path, redis_url, orphan_guard)
    adk = Adk(tmp_path, ADK_STORE_URL=fleet.store_url, ADK_BROKER_URL=redis_url, ADK_REAP_EVERY="60")
    try:
        fleet.worker("-c", "1", name="control", queues="adk.control", ADK_AGENTS=None)
        with Celery("adk", set_as_current=False, config_source=celery_config(fleet.settings)) as app:
            app.send_task("adk.reap", countdown=3600, queue="adk.control")
        wait_until(
            lambda: "hold messages with an ETA or a countdown: control@" in adk("doctor").stdout,
            within=PATIENCE,
            what="it to be in hand",
        )
    finally:
        fleet.close()


# --- the store ----------------------------------------------------------------------------------------------------


def change(store_url, statement):
    with closing(sqlite3.connect(store_url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE adk_schema SET last_sweep = NULL", "sweeps: nothing has ever swept"),
        ("UPDATE adk_schema SET last_sweep = last_sweep - 3600", "sweeps: the last sweep was 36"),
        ("UPDATE adk_run_leases SET expires_at = 1000", "lapsed leases: the oldest has lapsed"),
        ("DROP TABLE adk_claims", "schema: it is not what its version says: table adk_claims is missing"),
        ("UPDATE adk_schema SET version = '9999'", "store: the store is at version 9999, this adk-worker needs"),
    ],
)
def test_a_store_that_is_not_well_fails(doctor, sqlite_store_url, statement, said):
    """L1, L6: nothing reaps, a lease stays lapsed, the schema is another one."""
    given("queued", sqlite_store_url)
    change(sqlite_store_url, statement)

    code, found = doctor()

    assert code == 4
    assert only(found, "fail").startswith(said)


def test_a_store_that_does_not_answer_is_69_and_the_rest_is_looked_at(doctor):
    code, found = doctor(ADK_STORE_URL=f"postgresql://app:hunter2@127.0.0.1:{free_port()}/adk")

    assert code == 69
    assert only(found, "unseen").startswith("store: the store postgresql")
    assert any(one.startswith("broker: ") for one in of(found, "ok"))


def test_a_store_that_lets_nobody_in_is_78(doctor, postgres_store_url):
    code, found = doctor(ADK_STORE_URL=mistaken(postgres_store_url, "password"))

    assert code == 78
    assert "password authentication failed" in only(found, "unseen")


def test_a_postgresql_that_is_well_is_well(doctor, postgres_store_url):
    swept(postgres_store_url)

    code, found = doctor(ADK_STORE_URL=postgres_store_url)

    assert (code, of(found, "fail"), of(found, "unseen")) == (0, [], [])
    assert any(one.startswith("clocks: this host's clock and the store's are ") for one in of(found, "ok"))


def test_a_redis_that_forgets_fails_and_what_it_may_lose_is_told(doctor, redis_url):
    """L2."""
    adk = Adk(doctor.folder, ADK_STORE_URL=redis_url)
    adk("db", "upgrade")
    swept(redis_url)
    code, found = doctor(ADK_STORE_URL=redis_url)
    assert code == 0
    assert any("risks: " in one and "appendfsync is no" in one for one in of(found, "warning"))

    with redis.Redis.from_url(redis_url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            code, found = doctor(ADK_STORE_URL=redis_url)
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    assert code == 4
    assert "maxmemory-policy is allkeys-lru" in only(found, "fail")


def test_servers_that_swallow_everything_hold_it_up_for_a_bounded_time(
    doctor, postgres_store_url, postgres_proxy, redis_url, redis_proxy
):
    """It ends, and says of each that it could not be looked at."""
    away = {"ADK_STORE_URL": postgres_proxy.url(postgres_store_url), "ADK_BROKER_URL": redis_proxy.url(redis_url)}
    for proxy in (postgres_proxy, redis_proxy):
        proxy.pause()

    code, found = doctor("--timeout", "1", **away)

    assert code in {69, 75}
    assert {one.partition(":")[0] for one in of(found, "unseen")} >= {"store", "broker", "workers"}
    assert any(one.startswith("agents: booking (r1)") for one in of(found, "ok"))


# --- the broker, and Celery's configuration -------------------------------------------------------------------------


def test_a_broker_that_does_not_answer_is_69(doctor):
    code, found = doctor(ADK_BROKER_URL=f"redis://:hunter2@127.0.0.1:{free_port()}/0")

    assert code == 69
    assert any(one.startswith("broker: redis://:***@127.0.0.1:") for one in of(found, "unseen"))


def test_without_a_broker_s_url_it_says_which_setting_is_missing(doctor):
    code, found = doctor(ADK_BROKER_URL="")

    assert code == 78
    assert "ADK_BROKER_URL is not set" in only(found, "unseen")


@pytest.mark.parametrize(
    ("lines", "level", "said"),
    [
        ('accept_content = ["json", "pickle"]', "fail", "accept_content is ['json', 'pickle']: whoever reaches"),
        ('task_serializer = "pickle"', "fail", "task_serializer is 'pickle'"),
        ("task_reject_on_worker_lost = True", "fail", "a run that kills its worker is delivered again for ever"),
        ("worker_cancel_long_running_tasks_on_connection_loss = True", "fail", "calls in flight are cut off"),
        ("task_time_limit = 60", "fail", "killed in the middle of a call"),
        ("beat_schedule = {}", "fail", "beat_schedule has no adk.reap"),
        (
            'beat_schedule = {"r": {"task": "adk.reap", "schedule": 5, "options": {"countdown": 3}}}',
            "fail",
            "adk.reap is sent with countdown",
        ),
        ('task_queues = {"adk": {}}', "fail", "task_queues has no adk.control"),
        ('task_routes = {"adk.*": {"queue": "adk"}}', "fail", "task_routes sends adk.advance to None"),
        ("broker_transport_options = {}", "fail", "broker_transport_options has no socket_timeout"),
        ("task_acks_late = True", "warning", "task_acks_late is on"),
        ('broker_transport_options["visibility_timeout"] = 60', "warning", "visibility_timeout is 60 s"),
        ("worker_prefetch_multiplier = 4", "warning", "worker_prefetch_multiplier is 4"),
        ('result_backend = "redis://127.0.0.1:1/0"', "warning", "result_backend is "),
        ("broker_pool_limit = None", "warning", "broker_pool_limit is None"),
        ("broker_connection_max_retries = 5", "warning", "a worker gives up on a broker"),
    ],
)
def test_what_a_deployment_has_changed_of_celery_s_configuration_is_noticed(doctor, lines, level, said):
    """Its own celeryconfig is found in the folder, as the workers find it."""
    (doctor.folder / "celeryconfig.py").write_text(
        "from adk_worker.settings import Settings\n"
        "from tasks.config import celery_config\n"
        f"globals().update(celery_config(Settings.load()))\n{lines}\n"
    )

    code, found = doctor()

    assert code == (4 if level == "fail" else 0)
    assert any(said in one for one in of(workers_aside(found), level)), found


def test_a_celeryconfig_that_changes_nothing_dangerous_is_no_matter(doctor):
    """Under another name, which is given."""
    (doctor.folder / "ours.py").write_text(
        "from adk_worker.settings import Settings\n"
        "from tasks.config import celery_config\n"
        "globals().update(celery_config(Settings.load()))\nworker_max_tasks_per_child = 10_000\n"
    )

    code, found = doctor("--config", "ours")

    assert (code, of(workers_aside(found), "warning"), of(found, "fail")) == (0, [], [])
    assert any(one.startswith("celery: ours (--config)") for one in of(found, "ok"))


def test_a_configuration_that_is_not_there_could_not_be_looked_at(doctor):
    code, found = doctor("--config", "nowhere.config")

    assert code == 78
    assert "'nowhere.config' does not import from here" in only(found, "unseen")


# --- code and settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise RuntimeError('no such database')", "agents: agents' module 'shop' does not import: RuntimeError"),
        (SHOP.replace("MODEL", "scripted:shop:nowhere"), "models: booking: the script of model"),
        (SHOP.replace("MODEL", "nonsense:gpt-0"), "models: booking: "),
    ],
)
def test_agents_that_cannot_work_fail(doctor, text, said):
    (doctor.folder / "shop.py").write_text(text)

    code, found = doctor()

    assert code == 4
    assert only(found, "fail").startswith(said)


def test_keys_that_cannot_be_read_fail(doctor):
    """R2."""
    code, found = doctor(ADK_SEAL_KEYS="hunter2")

    assert code == 4
    assert only(found, "fail").startswith("seal keys: ")


def test_a_verifier_that_cannot_be_asked_fails(doctor):
    """P5: nobody could answer, settle or cancel anything."""
    code, found = doctor(ADK_VERIFIER="nowhere:may")

    assert code == 4
    assert only(found, "fail").startswith("verifier: ADK_VERIFIER nowhere:may: module 'nowhere' cannot be used")


def test_warnings_alone_are_0(doctor):
    code, found = doctor(ADK_AGENTS="", ADK_LEASE_TLL="3", ADK_LEASE_TTL="12", ADK_REAP_EVERY="30")

    warned = of(workers_aside(found), "warning")
    assert code == 0
    assert "environment: ADK_LEASE_TLL is no setting, and is not read; was ADK_LEASE_TTL meant?" in warned
    for said in ("times: a sweep is due every 30 s", "agents: ADK_AGENTS is"):
        assert any(one.startswith(said) for one in warned), warned


def test_settings_that_cannot_be_read_are_78(doctor):
    code, found = doctor(ADK_LEASE_TTL="soon")

    assert (code, found) == (78, [])
