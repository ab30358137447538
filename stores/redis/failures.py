"""What an error of Redis or of its client means to a caller: the edge at which they become errors of this project."""

from __future__ import annotations

from typing import Final, TypeAlias

from redis.exceptions import (
    AuthenticationError,
    MaxConnectionsError,
    RedisClusterException,
    RedisError,
    ResponseError,
)

from adk_worker.errors import (
    AdkError,
    CommitUnknownError,
    ConfigurationError,
    StoreRefusedError,
    StoreUnavailableError,
)

_NOT_WRITTEN: Final = {
    "READONLY": "it is a replica, as after a failover; ADK_STORE_URL has to lead to the master",
    "OOM": "it is out of memory (maxmemory, noeviction); raise maxmemory, or make room",
    "NOREPLICAS": "too few replicas follow it (min-replicas-to-write)",
    "MISCONF": "it cannot write to its disk, and takes no writes until it can",
    "LOADING": "it is loading its data",
    "BUSY": "a script of somebody's runs on it for too long",
    "MASTERDOWN": "it is a replica that has lost its master",
    "CLUSTERDOWN": "the cluster is down, or a part of its slots is",
    "TRYAGAIN": "the cluster is moving slots",
}
"""Refusals of a command that has not begun, by how they start, and what they say of the server."""
Failure: TypeAlias = RedisError | RedisClusterException | OSError
"""What its client raises; a cluster's has an exception of its own, which is no ``RedisError``."""
FAILURES: Final = (RedisError, RedisClusterException, OSError)
_NOT_THERE: Final = {
    "Cluster mode is not enabled": "is no cluster. Begin ADK_STORE_URL with redis:// or rediss://.",
    "DB index is out of range": "has no database of that number; redis://host/0 has the first.",
}
"""What the URL asks for and the server does not have."""
_NOT_ALLOWED: Final = ("NOAUTH", "WRONGPASS", "NOPERM", "ERR invalid password", "ERR AUTH")


def translated(error: Failure, *, store: str, writing: bool = False) -> AdkError | None:
    """The error to raise ``from`` this one; ``None`` for one that says nothing but that our own script is wrong.

    ``writing`` says that a write was sent: what becomes of it is unknown unless the server itself has refused it.
    """
    if isinstance(error, RedisClusterException) and isinstance(error.__cause__, FAILURES):
        error = error.__cause__  # what the last node said that was asked which slots there are
    reason = _reason(error)
    for said, meaning in _NOT_THERE.items():
        if said in reason:
            return ConfigurationError(f"the store {store} {meaning}")
    if isinstance(error, AuthenticationError) or reason.startswith(_NOT_ALLOWED):
        return StoreRefusedError(
            store=store,
            reason=reason,
            hint="and that the user may run EVALSHA, SCRIPT LOAD and commands on the keys {adk:*",
        )
    for start, meaning in _NOT_WRITTEN.items():
        if reason.startswith(start):
            return StoreUnavailableError(store=store, reason=f"{meaning} ({_first(reason)})")
    if isinstance(error, ResponseError):
        return None
    if writing and not isinstance(error, MaxConnectionsError):
        # A cluster's client may have failed in looking for another way, after it had sent what it was asked to.
        return CommitUnknownError(store=store, reason=f"the answer to a write was lost ({reason})")
    return StoreUnavailableError(store=store, reason=reason)


def moved_away(error: Failure) -> bool:
    """Whether connections lead to a server that is the master no more, so that new ones have to be made."""
    return _reason(error).startswith(("READONLY", "MASTERDOWN"))


def _reason(error: Failure) -> str:
    lines = str(error).strip().splitlines()
    said = lines[0].rstrip(". ") if lines else ""
    # redis-py takes the code off the answers that it knows by a class of their own.
    code = {
        "ReadOnlyError": "READONLY",
        "OutOfMemoryError": "OOM",
        "BusyLoadingError": "LOADING",
        "MasterDownError": "MASTERDOWN",
        "ClusterDownError": "CLUSTERDOWN",
        "TryAgainError": "TRYAGAIN",
        "NoPermissionError": "NOPERM",
    }.get(type(error).__name__)
    if code is not None and not said.startswith(code):
        said = f"{code} {said}"
    return said or type(error).__name__


def _first(reason: str) -> str:
    """What the server itself said, without where in which script."""
    return reason.partition(" script:")[0].partition(", on @")[0].rstrip(". ")
