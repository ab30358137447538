"""The shop: a folder that stands for a service of somebody else's. It keeps a journal, and is sometimes slow to answer.

Like many services it honours no key: asked twice, it refunds twice. What it can say is whether an order was refunded.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

_LOOKS_AGAIN = 0.02


class Order(BaseModel):
    """What a customer bought."""

    number: int
    price_cents: int


class Refund(NamedTuple):
    """A line of the journal."""

    order: int
    cents: int
    reason: str


class Shop:
    """The shop in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._journal = folder / "refunds.jsonl"
        self._slow = folder / "shop-is-slow"

    def orders(self, customer: str) -> list[Order]:
        """Return what they bought; everybody bought the same."""
        return [Order(number=7, price_cents=1250), Order(number=8, price_cents=4900)]

    def refund(self, order: int, cents: int, reason: str) -> str:
        """Refund, and say so: at once, or when the shop is slow no more."""
        with self._journal.open("a") as file:
            file.write(json.dumps(Refund(order, cents, reason)) + "\n")
        while self._slow.exists():
            time.sleep(_LOOKS_AGAIN)
        return f"{cents} cents of order {order} are refunded"

    def refunds(self, order: int | None = None) -> list[Refund]:
        """Return what was refunded, of one order or of all."""
        lines = self._journal.read_text().splitlines() if self._journal.exists() else []
        made = [Refund(*json.loads(line)) for line in lines]
        return [refund for refund in made if order in {None, refund.order}]

    def refunded_cents(self) -> int:
        """Return the sum."""
        return sum(refund.cents for refund in self.refunds())

    def be_slow(self) -> None:
        """Keep every refund from being answered from now on."""
        self._slow.touch()
