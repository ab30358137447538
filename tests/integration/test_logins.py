"""A store that lets nobody in is told apart from one that is away: waiting would mend nothing."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from adk_worker.errors import StoreRefusedError
from stores.sql import open_sql
from tests.integration.fleet import CeleryFleet
from tests.integration.test_cli import Adk
from tests.servers.daemon import free_port

pytestmark = pytest.mark.timeout(240)

_SAYS = {
    "password": "password authentication failed",
    "user": "authentication failed",
    "database": 'database "nowhere" does not exist',
    "tls": "does not support SSL, but SSL was required",
    "sslmode": "sslmode",
}


def mistaken(url, what):
    """The URL with one mistake."""
    password = urlsplit(url).password
    return {
        "password": url.replace(password, "hunter2hunter2"),
        "user": url.replace("//adk:", "//nobody:"),
        "database": url.rpartition("/")[0] + "/nowhere",
        "tls": f"{url}?sslmode=require",
        "sslmode": f"{url}?sslmode=perhaps",
    }[what]


@pytest.fixture
def adk(tmp_path, postgres_store_url):
    return Adk(tmp_path, ADK_STORE_URL=postgres_store_url, ADK_BROKER_URL=f"redis://127.0.0.1:{free_port()}/0")


@pytest.mark.parametrize("what", _SAYS)
def test_a_login_that_is_refused_is_a_mistake_of_the_settings(adk, postgres_store_url, what):
    """It names the setting, and shows no password."""
    url = mistaken(postgres_store_url, what)

    told = adk("list", ADK_STORE_URL=url)

    assert (told.returncode, told.stdout) == (78, "")
    assert _SAYS[what] in told.stderr
    assert "ADK_STORE_URL" in told.stderr
    assert "hunter2" not in told.stderr
    assert urlsplit(postgres_store_url).password not in told.stderr


def test_the_setting_that_is_wrong_is_the_one_that_is_named(adk, postgres_store_url):
    told = adk("db", "upgrade", ADK_MIGRATE_URL=mistaken(postgres_store_url, "password"))

    assert told.returncode == 78
    assert "in ADK_MIGRATE_URL" in told.stderr


async def test_to_whoever_is_at_work_it_is_an_outage(postgres_store_url):
    """A password may be in the middle of its change: nothing was written, and no run is blamed."""
    stores = open_sql(mistaken(postgres_store_url, "password"), pool_size=1)
    try:
        with pytest.raises(StoreRefusedError) as refused:
            await stores.runs.get("run", tenant="acme")
    finally:
        await stores.lifecycle.close()

    assert refused.value.retryable is False


def test_a_worker_does_not_wait_for_it(tmp_path, postgres_store_url, redis_url, orphan_guard):
    fleet = CeleryFleet(tmp_path, redis_url, orphan_guard)
    try:
        worker = fleet.worker(ready=None, ADK_STORE_URL=mistaken(postgres_store_url, "password"))
        assert worker.ends(within=120) == 78
        assert "password authentication failed" in worker.log()
        assert "hunter2" not in worker.log()
    finally:
        fleet.close()
