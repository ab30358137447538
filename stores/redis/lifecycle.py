"""Whether the Redis is one that this version works with, and that keeps what it is given; its epoch; its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from adk_worker.errors import ConfigurationError, SchemaVersionError
from adk_worker.log import get_logger
from adk_worker.runs import Sweep
from adk_worker.transitions.leases import MAX_EPOCH
from stores.redis import sweeping
from stores.redis.durability import SETTINGS, Facts, judge
from stores.redis.keys import BUCKETS, Keys
from stores.redis.server import FORMAT, UPGRADE, Process, Server

_log = get_logger(__name__)

_MENDED: Final = (
    "Restore it. If what was there is lost for good, run `adk db upgrade`, then `adk db bump-epoch`, before any worker "
    "starts."
)


class RedisLifecycle:
    """A :class:`~adk_worker.lifecycle.Lifecycle` of a Redis."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def verify(self) -> None:
        """See the protocol.

        :raises ConfigurationError: the server may lose what it acknowledged in the course of ordinary events, or a part
            of the store has been lost. What takes a crash of a machine or a failover is logged as ``store_at_risk``.
        """
        await self._server.run(verify)

    async def risks(self) -> Sequence[str]:
        """See :class:`~adk_worker.lifecycle.TellsRisks`."""
        return await self._server.run(lambda process: [f"{facts.name}: {risk}" for facts, risk in _risks(process)])

    async def swept(self) -> Sweep:
        """See :class:`~adk_worker.lifecycle.TellsSweeps`."""
        return await self._server.run(sweeping.swept)

    async def bump_epoch(self) -> int:
        return await self._server.run(bump_epoch)

    async def close(self) -> None:
        await self._server.close()


def verify(process: Process) -> None:
    """See :meth:`RedisLifecycle.verify`."""
    found = process.said()
    if set(found) == {None}:
        process.check(None)
    epochs = {process.check(text) for text in found if text is not None}
    missing = found.count(None)
    if missing:
        raise ConfigurationError(
            f"{missing} of the {BUCKETS} parts of the store {process.store} are empty: a server has come back without "
            f"its data. {_MENDED}"
        )
    if len(epochs) > 1:
        raise ConfigurationError(
            f"the parts of the store {process.store} are in epochs {min(epochs)} to {max(epochs)}: a server has come "
            "back with older data, or a bump was interrupted. Run `adk db bump-epoch` before any worker starts."
        )
    for facts, risk in _risks(process):
        _log.warning("store_at_risk", store=facts.name, risk=risk)


def _risks(process: Process) -> Sequence[tuple[Facts, str]]:
    """What may be lost, by server.

    :raises ConfigurationError: more than that.
    """
    judged = [(facts, judge(facts)) for facts in process.masters(SETTINGS)]
    refused = [f"{facts.name}: {reason}" for facts, judgement in judged for reason in judgement.refused]
    if refused:
        raise ConfigurationError("the store may lose what it has acknowledged. " + "; ".join(refused) + ".")
    return [(facts, risk) for facts, judgement in judged for risk in judgement.risks]


def bump_epoch(process: Process) -> int:
    """See :meth:`adk_worker.lifecycle.Lifecycle.bump_epoch`.

    One bucket decides which number it is, so that two at once get two. The others follow. Every write compares its
    bucket's epoch with the one that it has read, so that no fence of an epoch before is given in it afterwards.
    """
    stand = max(map(process.check, process.said()))
    epoch = _raise(process, 0, at_least=stand, by=1)
    if epoch < 0:
        raise ConfigurationError(f"the store's epoch is {MAX_EPOCH} already, and fences have no room for more.")
    for bucket in range(1, BUCKETS):
        _raise(process, bucket, at_least=epoch)
    return epoch


def make(process: Process) -> None:
    """Make what is missing of a store; harmless where nothing is.

    :raises SchemaVersionError: it has another format.
    """
    process.store_of(0)  # whether it answers at all: nothing is written if not
    for bucket in range(BUCKETS):
        _raise(process, bucket)
    # Should that part have been lost in which runs are numbered: no number is given a second time.
    highest = max(process.highest_number(bucket) for bucket in range(BUCKETS))
    process.skip_numbers(up_to=highest)


def format_of(process: Process) -> str | None:
    """The format of the store; ``None`` if there is none, or a part of it is missing."""
    found = process.said()
    if None in found:
        return None
    return max(text.partition(":")[0] for text in found if text is not None)


def _raise(process: Process, bucket: int, *, at_least: int = 0, by: int = 0) -> int:
    answer = process.call("raise", [Keys(bucket).store], [FORMAT, at_least, by, MAX_EPOCH])
    if isinstance(answer, str):
        raise SchemaVersionError(found=answer.partition(":")[0], wanted=FORMAT, command=UPGRADE)
    return int(answer)
