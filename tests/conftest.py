"""What all tests share: real servers, started when the first test asks for one, and how to wait.

A server that is not installed skips the tests that need it; with CI set in the environment it fails them.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

import tests.waiting
from stores.sql import migrate
from tests.servers import OrphanGuard, PgBouncer, PostgresServer, Proxy, RabbitServer, RedisCluster, RedisServer
from tests.servers.demand import or_skip

# Examples are drawn afresh at a desk and are always the same in CI, where a failure has to be one of the change's.
# No deadline for a single example: nothing here asserts on time.
hypothesis.settings.register_profile("desk", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "desk")

# Whoever starts this in the background of a shell has it ignore Ctrl-C, and the programs that the tests start would
# inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_SERVER_FIXTURES = (
    ("postgres", "postgres_server"),
    ("rabbitmq", "rabbitmq_server"),
    ("redis", "redis_server"),
    ("redis", "redis_cluster"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the servers that its fixtures start, so that `-m "not postgres"` needs no care."""
    for item in items:
        for marker, fixture in _SERVER_FIXTURES:
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)


@pytest.fixture(scope="session")
def orphan_guard() -> Iterator[OrphanGuard]:
    """Ends the processes registered with it when the session is gone, however it went."""
    with OrphanGuard() as guard:
        yield guard


@pytest.fixture(scope="session")
def postgres_server(orphan_guard: OrphanGuard) -> Iterator[PostgresServer]:
    """The session's PostgreSQL server. A test may stop, kill and restart it: `postgres_url` finds it up again."""
    with or_skip(lambda: PostgresServer(guard=orphan_guard)) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database of this test's own, as a URL for libpq."""
    postgres_server.start()
    with postgres_server.database() as url:
        yield url


@pytest.fixture
def postgres_store_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A database of this test's own with all tables of the store, and nothing in them."""
    postgres_server.start()
    with postgres_server.database(template=postgres_server.template("adk_migrated", migrate.upgrade)) as url:
        yield url


@pytest.fixture(scope="session")
def migrated_sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with all tables of the store, to be copied."""
    file = tmp_path_factory.mktemp("sqlite") / "migrated.db"
    migrate.upgrade(f"sqlite:///{file}")
    return file


@pytest.fixture
def sqlite_store_url(migrated_sqlite_file: Path, tmp_path: Path) -> str:
    """A SQLite file of this test's own with all tables of the store, and nothing in them."""
    return f"sqlite:///{shutil.copy(migrated_sqlite_file, tmp_path / 'store.db')}"


@pytest.fixture(scope="session")
def pgbouncer(postgres_server: PostgresServer, orphan_guard: OrphanGuard) -> Iterator[PgBouncer]:
    """A PgBouncer that pools transactions of the session's PostgreSQL server; lead a URL through it with `.url(…)`."""
    postgres_server.start()
    with or_skip(lambda: PgBouncer(postgres_server, guard=orphan_guard)) as pooler:
        yield pooler


@pytest.fixture
def postgres_proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    """A proxy in front of the session's PostgreSQL server; lead a URL through it with `.url(…)`."""
    with Proxy(postgres_server.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def redis_server(orphan_guard: OrphanGuard) -> Iterator[RedisServer]:
    """The session's Redis server. A test may stop, kill and restart it: `redis_url` finds it up again."""
    with or_skip(lambda: RedisServer(guard=orphan_guard)) as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster(orphan_guard: OrphanGuard) -> Iterator[RedisCluster]:
    """The session's Redis cluster of three nodes. A test that stops one starts it again."""
    with or_skip(lambda: RedisCluster(guard=orphan_guard)) as cluster:
        yield cluster


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """An empty database, as a URL for redis-py and kombu."""
    redis_server.start()
    return redis_server.fresh_database()


@pytest.fixture
def redis_proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    """A proxy in front of the session's Redis server; lead a URL through it with `.url(…)`."""
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def rabbitmq_server(orphan_guard: OrphanGuard) -> Iterator[RabbitServer]:
    """The session's RabbitMQ server. A test may stop, kill and restart it: `rabbitmq_url` finds it up again."""
    with or_skip(lambda: RabbitServer(guard=orphan_guard)) as server:
        yield server


@pytest.fixture
def rabbitmq_url(rabbitmq_server: RabbitServer) -> str:
    """A virtual host in which nothing is declared, as a URL for kombu."""
    rabbitmq_server.start()
    return rabbitmq_server.fresh_vhost()


@pytest.fixture
def rabbitmq_proxy(rabbitmq_server: RabbitServer) -> Iterator[Proxy]:
    """A proxy in front of the session's RabbitMQ server; lead a URL through it with `.url(…)`."""
    with Proxy(rabbitmq_server.port) as proxy:
        yield proxy


@pytest.fixture
def wait_until() -> Callable[..., object]:
    """Return :func:`tests.waiting.wait_until`: ask until true, with a deadline."""
    return tests.waiting.wait_until
