"""The URL of a store in Redis, its options, and what is judged of a server, without a server."""

from __future__ import annotations

import pytest

from adk_worker.errors import ConfigurationError
from stores.redis import RedisOptions, open_redis
from stores.redis.durability import Facts, judge
from stores.redis.target import parse_url

SAFE = {
    "appendonly": "yes",
    "appendfsync": "always",
    "maxmemory-policy": "noeviction",
    "min-replicas-to-write": "0",
}


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://:hunter2@localhost:6379/0",
        "rediss://app:hunter2@localhost:6379/15?ssl_ca_certs=/etc/ca.pem",
        "redis+cluster://:hunter2@localhost:7000",
        "rediss+cluster://localhost:7000/0",
        " redis://[::1]:6379/0\n",
    ],
)
def test_a_url_of_redis_is_taken(url):
    assert parse_url(url, RedisOptions()) == (url.strip(), RedisOptions())


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://", "names no host"),
        ("redis:///0", "names no host"),
        ("redis://:hunter2@localhost:port/0", "cannot be read"),
        ("redis://:hunter2@localhost:6379/mine", "is a number"),
        ("redis+cluster://:hunter2@localhost:7000/1", "one database"),
        ("redis+sentinel://:hunter2@localhost", "redis+cluster://"),
        ("unix:///tmp/redis.sock", "redis://"),
        ("redis://:hunter2@localhost/0?decode_responses=False", "decode_responses is the store's to set"),
        ("redis://:hunter2@localhost/0?max_connections=3&retry_on_timeout=yes", "max_connections, retry_on_timeout"),
        ("redis://:hunter2@localhost/0?socket_timout=3", "socket_timout"),
        ("redis://:hunter2@localhost/0?socket_timeout=soon", "socket_timeout"),
        ("rediss://:hunter2@localhost/0?ssl_cert_reqs=perhaps", "perhaps"),
        ("redis://:hunter2@localhost/0?max_value_bytes=1MB", "a number of bytes"),
        ("redis://:hunter2@localhost/0?max_value_bytes=1&max_value_bytes=2", "a number of bytes"),
    ],
)
def test_what_cannot_be_used_is_refused_and_shows_no_password(url, why):
    with pytest.raises(ConfigurationError) as refused:
        open_redis(url)

    assert why in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_the_cap_may_stand_in_the_url():
    """C2: a fleet has nothing but its URL to say it with."""
    url, options = parse_url("redis://host/0?max_value_bytes=5000000&client_name=adk", RedisOptions(pool_size=3))

    assert url == "redis://host/0?client_name=adk"
    assert options == RedisOptions(pool_size=3, max_value_bytes=5_000_000)


@pytest.mark.parametrize(
    "option", [{"pool_size": 0}, {"socket_timeout": 0}, {"socket_timeout": float("inf")}, {"max_value_bytes": 0}]
)
def test_an_option_that_cannot_be_is_refused(option):
    with pytest.raises(ConfigurationError, match=next(iter(option))):
        RedisOptions(**option)


def test_a_bundle_whose_cap_is_below_the_policys_is_refused():
    """C2: as it is opened, with both caps named."""
    with pytest.raises(ConfigurationError) as refused:
        open_redis("redis://localhost/0", max_value_bytes=1000)

    assert "at most 1000 bytes" in str(refused.value)
    assert str(1024 * 1024) in str(refused.value)
    assert open_redis("redis://localhost/0", max_value_bytes=1000, checkpoint_max_bytes=1000).max_value_bytes == 1000


# --- what a server's settings can lose ----------------------------------------------------------------------------


def judged(*, role="master", replicas=0, **settings):
    return judge(Facts("host:6379", role, replicas, {**SAFE, **settings}))


def test_settings_that_lose_nothing_are_left_alone():
    assert judged() == judged(**{"maxmemory-policy": "volatile-lru"})
    assert (judged().refused, judged().risks) == ((), ())


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"maxmemory-policy": "allkeys-lru"}, "noeviction"),
        ({"maxmemory-policy": "allkeys-random"}, "noeviction"),
        ({"appendonly": "no"}, "CONFIG SET appendonly yes"),
        ({"role": "slave"}, "takes no writes"),
    ],
)
def test_what_loses_a_fence_in_ordinary_events_is_refused(settings, why):
    """L2: memory that runs short, a process that is started again; the reason says what to set."""
    (refused,) = judged(**settings).refused

    assert why in refused


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"appendfsync": "everysec"}, "about a second"),
        ({"appendfsync": "no"}, "half a minute"),
        ({"replicas": 1, "min-replicas-to-write": "1"}, "bump-epoch"),
        ({"replicas": 2, "min-replicas-to-write": "0"}, "min-replicas-to-write"),
    ],
)
def test_what_takes_a_crash_of_a_machine_or_a_failover_is_a_risk(settings, why):
    """L2: it is told, and may be taken."""
    found = judged(**settings)

    assert found.refused == ()
    assert any(why in risk for risk in found.risks)


def test_a_server_that_does_not_tell_its_settings_is_a_risk():
    """Where somebody else runs it, CONFIG is often not allowed."""
    found = judge(Facts("host:6379", "master", 0, None))

    assert (found.refused, len(found.risks)) == ((), 1)
