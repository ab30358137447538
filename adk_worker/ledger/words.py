"""What may be spent, and what has been, in words."""

from __future__ import annotations

from collections.abc import Iterator

from adk_worker.ledger.accounts import Account
from adk_worker.ledger.amounts import Amount, Budget, Kind, Unaccounted
from adk_worker.ledger.booking import Ledger
from adk_worker.printable import printable, time_of


def of_run(ledger: Ledger) -> Iterator[str]:
    """A run's ledger, where there is something to be said of it."""
    if ledger.limits.limited:
        reserved = ledger.reserved.amount if ledger.reserved else Amount()
        yield f"budget: {_sums(ledger.limits, ledger.spent, reserved, ledger.unaccounted)}"
        if ledger.unpriced and ledger.limits.cost_micros is not None:
            yield f"    {ledger.unpriced} model calls at no known price are left out of its cost: set ADK_MODEL_PRICES"
    yield from _unknown(ledger.unaccounted)


def of_tenant(tenant: str, account: Account | None) -> Iterator[str]:
    """A tenant's account."""
    if account is None:
        yield f"tenant {printable(tenant)} was never given limits"
        return
    sums = _sums(account.limits, account.spent, account.reserved, account.unaccounted)
    yield f"tenant {printable(tenant)}  budget: {sums}"
    yield from _unknown(account.unaccounted)
    for change in account.changes:
        limits = "  ".join(f"{_NAMES[kind]} {_limit(change.limits, kind)}" for kind in Kind)
        yield f"    {time_of(change.at)}  {limits}  by {printable(change.by)}"


_NAMES = {Kind.TOKENS: "tokens", Kind.COST: "cost"}


def _sums(limits: Budget, spent: Amount, reserved: Amount, unaccounted: Unaccounted) -> str:
    said = []
    for kind in Kind:
        more = [
            f"{name} {kind.words(amount.of(kind))}"
            for name, amount in (("reserved", reserved), ("unaccounted", unaccounted.amount))
            if amount.of(kind)
        ]
        beside = f" ({', '.join(more)})" if more else ""
        said.append(f"{_NAMES[kind]} {kind.words(spent.of(kind))} of {_limit(limits, kind)}{beside}")
    return "  ".join(said)


def _limit(limits: Budget, kind: Kind) -> str:
    limit = limits.of(kind)
    return "no limit" if limit is None else kind.words(limit)


def _unknown(unaccounted: Unaccounted) -> Iterator[str]:
    if unaccounted.calls:
        calls = "a model call" if unaccounted.calls == 1 else f"{unaccounted.calls} model calls"
        yield f"unaccounted: {calls} of which nobody knows what the provider charges, cut off or failed on the way"
