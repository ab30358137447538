"""Real servers for tests, and a proxy that injures the traffic to them.

Each server is a child process with a loopback port, a folder and a password of its own. What is
installed on the machine, and what services run there already, is neither used nor touched beyond the program files.
"""

from __future__ import annotations

from tests.servers.binaries import ServerMissingError
from tests.servers.daemon import ServerFailedError
from tests.servers.orphans import OrphanGuard
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster
from tests.servers.traffic import Fault

__all__ = [
    "Fault",
    "OrphanGuard",
    "PgBouncer",
    "PostgresServer",
    "Proxy",
    "RabbitServer",
    "RedisCluster",
    "RedisServer",
    "ServerFailedError",
    "ServerMissingError",
]
