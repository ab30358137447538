"""What a bundle of stores needs besides its operations: whether this version works with it, its epoch, its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from adk_worker.runs import Sweep


class Lifecycle(Protocol):
    """What a bundle needs besides its operations."""

    async def verify(self) -> None:
        """Check that the store answers and has this version's schema.

        :raises SchemaVersionError: another version, or none; says which command mends it.
        :raises StoreUnavailableError: no answer.
        """
        ...

    async def bump_epoch(self) -> int:
        """Raise the store's epoch and return it: every fence given from now on is above all before (L2)."""
        ...

    async def close(self) -> None:
        """Give back connections and threads. The bundle is not used afterwards."""
        ...


@runtime_checkable
class ComparesSchema(Protocol):
    """A lifecycle that can check what :meth:`Lifecycle.verify` takes a version's word for: that the schema is whole."""

    async def differences(self) -> Sequence[str]:
        """What is missing of the schema, or is otherwise than declared, in words; empty if nothing is.

        :raises StoreUnavailableError: no answer.
        """
        ...


@runtime_checkable
class TellsRisks(Protocol):
    """A lifecycle that knows settings of its server by which it may lose what it has acknowledged."""

    async def risks(self) -> Sequence[str]:
        """What may be lost in rarer events than those that :meth:`Lifecycle.verify` refuses, in sentences for people.

        :raises StoreUnavailableError: no answer.
        """
        ...


@runtime_checkable
class TellsSweeps(Protocol):
    """A lifecycle that can be asked whether anything reaps."""

    async def swept(self) -> Sweep:
        """The store's clock, and when the last sweep began. Only reads, unlike ``RunStore.sweep``."""
        ...
