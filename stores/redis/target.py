"""From a store's URL to a client whose connections are set up as the stores need them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from redis import Redis, RedisCluster
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from adk_worker.checkpoint import CheckpointPolicy
from adk_worker.errors import ConfigurationError
from adk_worker.urls import without_secrets

Client: TypeAlias = "Redis | RedisCluster"

_SCHEMES: Final = ("redis", "rediss")
_CLUSTER: Final = "+cluster"
_CAP: Final = "max_value_bytes"
# What decides how a lost answer is dealt with, or what a reply looks like, is not the URL's to say.
_OURS: Final = frozenset({"decode_responses", "encoding", "encoding_errors", "max_connections", "retry_on_timeout"})


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """How a process talks to Redis, and how much it gives it at once.

    ``pool_size`` is how many connections it holds at most (to each master of a cluster), and how many operations run at
    once. ``socket_timeout`` is for how many seconds a connection may stay silent before it is given up.
    ``max_value_bytes`` is the largest value that is sent, in bytes: whatever is larger holds up everybody else's
    commands for as long as Redis copies it. ``checkpoint_max_bytes`` is the policy's cap on a checkpoint (C2), which
    must fit.
    """

    pool_size: int = 10
    socket_timeout: float = 10.0
    max_value_bytes: int = 32 * 1024 * 1024
    checkpoint_max_bytes: int = CheckpointPolicy().max_bytes

    def __post_init__(self) -> None:
        if self.pool_size < 1:
            raise ConfigurationError(f"pool_size is {self.pool_size}; it has to be at least 1 (ADK_STORE_POOL).")
        if not (self.socket_timeout > 0 and math.isfinite(self.socket_timeout)):
            raise ConfigurationError(
                f"socket_timeout is {self.socket_timeout}; it has to be above 0 seconds (ADK_SOCKET_TIMEOUT)."
            )
        if self.max_value_bytes < 1:
            raise ConfigurationError(f"max_value_bytes is {self.max_value_bytes}; it has to be at least 1.")


def make_client(url: str, options: RedisOptions) -> Client:
    """A client for this process; one of a cluster connects at once to ask for the slots.

    Nothing is sent a second time behind the store's back: whoever lost an answer has to know (F5).
    """
    once = Retry(NoBackoff(), 0)
    arguments: dict[str, Any] = {
        "decode_responses": True,
        "socket_timeout": options.socket_timeout,
        "socket_connect_timeout": options.socket_timeout,
        "socket_keepalive": True,
        "max_connections": options.pool_size,
        "retry": once,
        "protocol": 2,
    }
    scheme, _, rest = url.partition("://")
    if scheme.endswith(_CLUSTER):
        # One more to each node: to ask for the slots while all others are in use.
        arguments["max_connections"] += 1
        return RedisCluster.from_url(f"{scheme.removesuffix(_CLUSTER)}://{rest}", **arguments)
    return Redis.from_url(url, **arguments)


def parse_url(url: str, options: RedisOptions) -> tuple[str, RedisOptions]:
    """Check a store's URL, and take out of it what is an option: ``?max_value_bytes=…``.

    :raises ConfigurationError: it does not name a Redis, or sets what only the store may set.
    """
    url = url.strip()
    shown = without_secrets(url)
    try:
        parts = urlsplit(url)
        database = parts.path.strip("/")
        parts.port  # noqa: B018 - raises where it is no number
    except ValueError:
        raise ConfigurationError(f"{shown!r} cannot be read as a URL; a store's is redis://:password@host/0.") from None
    scheme = parts.scheme.lower()
    if scheme.removesuffix(_CLUSTER) not in _SCHEMES:
        raise ConfigurationError(
            f"{scheme}:// is no store of this kind; it has to be redis://, rediss:// (TLS), redis+cluster:// or "
            "rediss+cluster://"
        )
    if not parts.hostname:
        raise ConfigurationError(f"{shown!r} names no host; a store's URL is redis://:password@host/0.")
    if database and not (database.isascii() and database.isdigit()):
        raise ConfigurationError(f"{shown!r}: a database of Redis is a number, redis://host/0.")
    if scheme.endswith(_CLUSTER) and database not in {"", "0"}:
        raise ConfigurationError(f"{shown!r}: a cluster has one database, 0.")
    said = parse_qs(parts.query, keep_blank_values=True)
    taken = sorted(_OURS & said.keys())
    if taken:
        raise ConfigurationError(f"{shown!r}: {', '.join(taken)} is the store's to set; leave it out of the URL.")
    if _CAP in said:
        (cap, *others) = said.pop(_CAP)
        if others or not (cap.isascii() and cap.isdigit()):
            raise ConfigurationError(f"{shown!r}: {_CAP} has to be a number of bytes.")
        options = replace(options, max_value_bytes=int(cap))
        url = urlunsplit(parts._replace(query=urlencode(said, doseq=True)))
    if not scheme.endswith(_CLUSTER):
        _check_parameters(url, shown)
    return url, options


def _check_parameters(url: str, shown: str) -> None:
    """Make a connection of the URL, which is not opened: redis-py looks at its parameters no sooner than that."""
    try:
        Redis.from_url(url).connection_pool.make_connection()
    except (TypeError, ValueError, RedisError) as error:
        raise ConfigurationError(f"{shown!r}: what stands behind the ? is nothing to redis-py: {error}.") from None
