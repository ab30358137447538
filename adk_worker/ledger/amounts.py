"""What may be spent and is: amounts of tokens and of money, and limits of them (C6, P3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Final

from adk_worker.errors import BudgetError

HIGHEST: Final = 1 << 53
"""Amounts stay within what every reader of JSON carries exactly."""


class Kind(StrEnum):
    """What is limited."""

    TOKENS = "tokens"
    """Tokens, in and out."""
    COST = "cost_micros"
    """Cost, in millionths of a currency unit."""

    def words(self, number: int) -> str:
        """A number of it, for people: tokens as they are, a cost in currency units."""
        return str(number) if self is Kind.TOKENS else in_units(number)


@dataclass(frozen=True, slots=True)
class Amount:
    """So many tokens, in and out, and millionths of a currency unit."""

    tokens: int = 0
    cost_micros: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.cost_micros + other.cost_micros)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(max(0, self.tokens - other.tokens), max(0, self.cost_micros - other.cost_micros))

    def of(self, kind: Kind) -> int:
        """The number of one kind."""
        return self.tokens if kind is Kind.TOKENS else self.cost_micros


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits; ``None`` is none.

    :raises BudgetError: one is no whole number from 0 up.
    """

    tokens: int | None = None
    cost_micros: int | None = None

    def __post_init__(self) -> None:
        for kind in Kind:
            limit = self.of(kind)
            if limit is not None and (type(limit) is not int or limit < 0):
                raise BudgetError(f"a budget of {limit!r} {kind.value} is none; give a whole number from 0 up.")
            if limit is not None and limit > HIGHEST:
                raise BudgetError(f"a budget of {limit} {kind.value} is above {HIGHEST}, the highest there is.")

    def of(self, kind: Kind) -> int | None:
        """The limit of one kind."""
        return self.tokens if kind is Kind.TOKENS else self.cost_micros

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return self.tokens is not None or self.cost_micros is not None


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """Limits to be set ``to`` a number (``None`` takes a limit away), or raised ``by`` one.

    The keys are ``tokens`` and ``cost_micros``.

    :raises BudgetError: it changes nothing, or one limit twice, or raises by nothing, or there is no such limit.
    """

    to: Mapping[Kind | str, int | None] = field(default_factory=dict)
    by: Mapping[Kind | str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.to or self.by):
            raise BudgetError("nothing is to be changed: name tokens, or a cost.")
        if self.to.keys() & self.by.keys():
            raise BudgetError("a limit is either set or raised, not both.")
        for changes in (self.to, self.by):
            unknown = changes.keys() - set(Kind)
            if unknown:
                raise BudgetError(
                    f"there is no limit of {', '.join(sorted(unknown))}; there are those of {', '.join(Kind)}."
                )
            Budget(changes.get(Kind.TOKENS), changes.get(Kind.COST))
        if any(limit <= 0 for limit in self.by.values()):
            raise BudgetError("a limit is raised by a whole number above 0; set it to lower it.")

    def applied(self, limits: Budget) -> Budget:
        """The limits after it.

        :raises BudgetError: one is to be raised that is not there.
        """
        after: dict[str, int | None] = {kind: limits.of(kind) for kind in Kind} | dict(self.to)
        for kind, more in self.by.items():
            stands = limits.of(Kind(kind))
            if stands is None:
                what = "cost" if kind == Kind.COST else Kind(kind).value
                raise BudgetError(f"there is no limit of {what} to be raised; set one first (adk budget set).")
            after[kind] = stands + more
        return Budget(after[Kind.TOKENS], after[Kind.COST])


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """Calls of which nobody knows what they took, and what was reserved for them."""

    calls: int = 0
    amount: Amount = Amount()

    def __add__(self, other: Unaccounted) -> Unaccounted:
        return Unaccounted(self.calls + other.calls, self.amount + other.amount)


def in_units(micros: int) -> str:
    """A cost in currency units: ``1.5`` for 1,500,000 millionths."""
    return f"{(Decimal(micros) / 1_000_000).normalize():f}"
