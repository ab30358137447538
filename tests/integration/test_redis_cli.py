"""`adk` on a store in Redis: the same words and exit codes."""

from __future__ import annotations

import json

import pytest
import redis

from tests.integration.test_cli import Adk, submit
from tests.servers.daemon import free_port


@pytest.fixture
def adk(tmp_path, redis_url):
    return Adk(tmp_path, ADK_STORE_URL=redis_url, ADK_BROKER_URL=f"redis://127.0.0.1:{free_port()}/0")


def test_a_store_is_made_verified_and_lifted_into_the_next_epoch(adk, redis_url):
    """L2: what its server may lose is said, and no password."""
    password = redis_url.split(":")[2].split("@")[0]
    refused = adk("db", "verify")
    made, again = adk("db", "upgrade"), adk("db", "upgrade", "--json")
    verified, as_json = adk("db", "verify"), adk("db", "verify", "--json")
    bumped = adk("db", "bump-epoch", "--json")

    assert refused.returncode == 78
    assert "has no adk-worker schema" in refused.stderr
    assert "adk db upgrade" in refused.stderr
    assert (made.returncode, again.returncode) == (0, 0)
    assert "is upgraded from nothing to 1" in made.stdout
    assert json.loads(again.stdout)["before"] == json.loads(again.stdout)["after"] == "1"
    assert verified.returncode == 0
    assert "warning: " in verified.stderr
    assert "appendfsync is no" in verified.stderr
    assert len(json.loads(as_json.stdout)["risks"]) == 1
    assert json.loads(bumped.stdout)["epoch"] == 1
    for ran in (refused, made, again, verified, as_json, bumped):
        assert password not in ran.stdout + ran.stderr


def test_a_database_that_the_server_does_not_have_is_told_in_a_sentence(adk, redis_url):
    refused = adk("list", ADK_STORE_URL=f"{redis_url.rpartition('/')[0]}/999")
    assert (refused.returncode, "no database of that number" in refused.stderr) == (78, True)


def test_a_run_is_submitted_looked_at_listed_and_cancelled(adk):
    adk("db", "upgrade")

    submitted = submit(adk)
    listed = adk("list", "--tenant", "acme", "--json")
    cancelled = adk("cancel", "run_1", "--tenant", "acme")
    inspected = adk("inspect", "run_1", "--tenant", "acme")

    assert (submitted.returncode, cancelled.returncode) == (0, 0)
    assert "run_1" in listed.stdout
    assert inspected.stdout.endswith("\ncancelled\n")


def test_a_store_that_came_back_empty_is_refused_by_every_command(adk, redis_url):
    """L2: nobody goes on with fences that begin anew."""
    adk("db", "upgrade")
    submit(adk)
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()

    for argv in (["list"], ["inspect", "run_1", "--tenant", "acme"], ["db", "bump-epoch"]):
        ran = adk(*argv)
        assert (ran.returncode, ran.stdout) == (78, "")
        assert "adk db upgrade" in ran.stderr


def test_a_store_is_not_made_in_silence_where_its_server_forgets(adk, redis_url):
    """L2: no worker would start with it, and whoever makes it wants to know now."""
    with redis.Redis.from_url(redis_url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            made, verified = adk("db", "upgrade", "--json"), adk("db", "verify")
        finally:
            client.config_set("maxmemory-policy", "noeviction")

    assert made.returncode == 0
    assert "warning: no worker will start with this: " in made.stderr
    assert "allkeys-lru" in json.loads(made.stdout)["warnings"][0]
    assert verified.returncode == 78


def test_a_password_that_redis_does_not_take_is_told_as_such_at_once(adk, redis_url):
    wrong = redis_url.replace(redis_url.split(":")[2].split("@")[0], "hunter2hunter2")
    for argv in (["list"], ["db", "upgrade"], ["run", "booking", "book", "--tenant", "acme"]):
        told = adk(*argv, ADK_STORE_URL=wrong)
        assert (told.returncode, told.stdout) == (78, "")
        assert "ADK_STORE_URL" in told.stderr
        assert "hunter2" not in told.stderr
