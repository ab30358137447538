"""Settings that are each usable, and do not go well together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from adk_worker.cli.checkup.finding import Finding, Subject, ok, warning

_CONSUMER_TIMEOUT: Final = 1800.0
"""RabbitMQ's own, unless it was told another: how long a message may be in hand, in seconds."""


def names(subject: Subject) -> Iterator[Finding]:
    """Names in the environment that nobody reads."""
    unread = type(subject.settings).unread()
    for line in unread:
        yield warning("environment", line, "correct or remove it")
    if not unread:
        yield ok("environment", "every ADK_* in it is a setting")


def times(subject: Subject) -> Iterator[Finding]:
    """Times and connections."""
    told = list(_times(subject))
    yield from told
    if not told:
        settings = subject.settings
        yield ok("times", f"a lease lives {settings.lease_ttl:g} s, and one that lapses is found {_found(subject)}")
    yield ok(
        "connections",
        f"a process holds {subject.settings.store_pool} to the store at most (ADK_STORE_POOL), each given up when it "
        f"is silent for {subject.settings.socket_timeout:g} s; see that the server allows as many for all processes",
    )


def _found(subject: Subject) -> str:
    return f"within {subject.settings.reap_every:g} s"


def _times(subject: Subject) -> Iterator[Finding]:
    settings = subject.settings
    a_file = (settings.store_url or "").startswith("sqlite")
    if not a_file and settings.lease_renew_within + settings.socket_timeout >= settings.lease_ttl:
        yield warning(
            "times",
            f"a connection that goes silent is given up after {settings.socket_timeout:g} s, and a lease that is "
            f"renewed every {settings.lease_renew_within:g} s lives {settings.lease_ttl:g} s: one such connection "
            "costs leases",
            "lower ADK_SOCKET_TIMEOUT, or raise ADK_LEASE_TTL",
        )
    if settings.reap_every > settings.lease_ttl:
        yield warning(
            "times",
            f"a sweep is due every {settings.reap_every:g} s, and a lease lives {settings.lease_ttl:g} s: sweeps then "
            "take each other for gaps, and count no crash",
            "lower ADK_REAP_EVERY below ADK_LEASE_TTL",
        )
    broker = settings.broker_url or ""
    if broker.startswith(("amqp", "pyamqp")) and settings.iteration_timeout >= _CONSUMER_TIMEOUT:
        yield warning(
            "times",
            f"an iteration may take {settings.iteration_timeout:g} s, for which the next message is in hand; RabbitMQ "
            f"closes the channel after its consumer_timeout, {_CONSUMER_TIMEOUT:g} s unless it was told another",
            "raise consumer_timeout in rabbitmq.conf above ADK_ITERATION_TIMEOUT",
        )
