"""``adk budget``: what runs and tenants may spend."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation, Overflow, localcontext
from typing import TYPE_CHECKING, Any, Final

import click

from adk_worker.cli import options
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import counted, emit, note, say
from adk_worker.cli.program import Invocation, awaited

if TYPE_CHECKING:
    from adk_worker.ledger.accounts import Account
    from adk_worker.ledger.amounts import BudgetChange
    from adk_worker.ledger.booking import Ledger

_DIGITS: Final = 20
"""Of a number of tokens, or of millionths: more than the highest limit has, which says what that is."""
NONE: Final = "none"
"""What takes a limit away."""


class Tokens(click.ParamType[int]):
    """A number of tokens."""

    name = "tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, or a failure that says how it is written."""
        text = str(value).replace("_", "")
        if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
            self.fail(f"{value!r} is no number of tokens; write 50000", param, ctx)
        return int(text)


class Cost(click.ParamType[int]):
    """A cost in currency units, as millionths of one."""

    name = "cost"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The millionths, or a failure that says how a cost is written."""
        text = str(value)
        # Where it would be rounded it is not what was written.
        with localcontext(Context(traps=[Inexact, Overflow, InvalidOperation])):
            try:
                micros = Decimal(text) * 1_000_000 if text.isascii() else Decimal("NaN")
            except DecimalException:
                micros = Decimal("NaN")
        if not micros.is_finite() or micros.adjusted() >= _DIGITS or micros != micros.to_integral_value() or micros < 0:
            self.fail(f"{value!r} is no cost; write it in currency units, 2.50, to a millionth at most", param, ctx)
        return int(micros)


class OrNone(click.ParamType[Any]):
    """A limit, or ``none``."""

    def __init__(self, kind: click.ParamType[Any]) -> None:
        self.name = kind.name
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The limit, or the word."""
        return NONE if value == NONE else self._kind.convert(value, param, ctx)


_run = click.argument("run_id", metavar="[RUN_ID]", required=False, type=options.Name("run id"))
_tenant = click.option(
    "--tenant", metavar="T", required=True, type=options.Name("tenant"), help="Whose run it is; without RUN_ID: who."
)


@click.group("budget", short_help="What runs and tenants may spend.")
def budget() -> None:
    """What a run may spend, or without RUN_ID all runs of a tenant: tokens, in and out, and cost."""


@budget.command("show")
@_run
@_tenant
@options.as_json
@options.debug
@click.pass_obj
def show(invocation: Invocation, *, run_id: str | None, tenant: str, as_json: bool) -> int:
    """Show the limits, what is spent, what is reserved for calls in flight, and what nobody can account for."""

    async def look() -> int:
        async with invocation.source.open() as access:
            if run_id is None:
                return _show_account(tenant, await access.fleet.account(tenant), as_json=as_json)
            run = await access.fleet.get(run_id, tenant=tenant)
            return _show_ledger(tenant, run_id, run.ledger, queued=0, as_json=as_json)

    return awaited(look)


@budget.command("set")
@_run
@_tenant
@click.option("--tokens", metavar="N|none", type=OrNone(Tokens()), help="Tokens, in and out; none for no limit.")
@click.option("--cost", metavar="X|none", type=OrNone(Cost()), help="In currency units, 2.50; none for no limit.")
@options.by
@options.as_json
@options.debug
@click.pass_obj
def set_(
    invocation: Invocation,
    *,
    run_id: str | None,
    tenant: str,
    tokens: Any,
    cost: Any,
    by: str | None,
    as_json: bool,
) -> int:
    """Set limits. What is parked on them goes on, if they allow its next model call now.

    Exit codes: 0 done, 1 no such run, 65 it has ended, and otherwise as everywhere.
    """

    def change() -> BudgetChange:
        from adk_worker.ledger.amounts import BudgetChange, Kind

        given = {Kind.TOKENS: tokens, Kind.COST: cost}
        return BudgetChange(to={kind: None if to == NONE else to for kind, to in given.items() if to is not None})

    _named(tokens, cost)
    return _changed(invocation, change(), run_id=run_id, tenant=tenant, by=by, as_json=as_json)


@budget.command("raise")
@_run
@_tenant
@click.option("--tokens", metavar="N", type=Tokens(), help="By so many tokens.")
@click.option("--cost", metavar="X", type=Cost(), help="By so much, in currency units, such as 2.50.")
@options.by
@options.as_json
@options.debug
@click.pass_obj
def raise_(
    invocation: Invocation,
    *,
    run_id: str | None,
    tenant: str,
    tokens: int | None,
    cost: int | None,
    by: str | None,
    as_json: bool,
) -> int:
    """Raise limits by so much. What is parked on them goes on, if they allow its next model call now.

    Exit codes: 0 done, 1 no such run, 65 it has ended or has no such limit, and otherwise as everywhere.
    """

    def change() -> BudgetChange:
        from adk_worker.ledger.amounts import BudgetChange, Kind

        given = {Kind.TOKENS: tokens, Kind.COST: cost}
        return BudgetChange(by={kind: by for kind, by in given.items() if by is not None})

    _named(tokens, cost)
    return _changed(invocation, change(), run_id=run_id, tenant=tenant, by=by, as_json=as_json)


def _named(*given: object) -> None:
    if all(one is None for one in given):
        raise click.UsageError("Name what to change: --tokens, --cost, or both.")


def _changed(
    invocation: Invocation, change: BudgetChange, *, run_id: str | None, tenant: str, by: str | None, as_json: bool
) -> int:
    async def carry_out() -> int:
        async with invocation.source.open(publishes=True) as access:
            who = by or access.by
            if run_id is None:
                account, queued = await access.fleet.change_account(tenant, change=change, by=who)
                return _show_account(tenant, account, queued=queued, as_json=as_json)
            before = await access.fleet.get(run_id, tenant=tenant)
            run = await access.fleet.change_budget(run_id, tenant=tenant, change=change, by=who)
            queued = int(before.status.resting and not run.status.resting)
            return _show_ledger(tenant, run_id, run.ledger, queued=queued, as_json=as_json)

    return awaited(carry_out)


def _show_ledger(tenant: str, run_id: str, ledger: Ledger, *, queued: int, as_json: bool) -> int:
    from adk_worker.adapters import adapter
    from adk_worker.ledger.booking import Ledger
    from adk_worker.ledger.words import of_run

    if as_json:
        said = adapter(Ledger).dump_python(ledger, mode="json")
        emit({"tenant": tenant, "run_id": run_id, "ledger": said, "account": None, "queued": queued})
    else:
        _say(of_run(ledger), otherwise="no limit, and nothing unaccounted")
        _tell(queued)
    return ExitCode.DONE


def _show_account(tenant: str, account: Account | None, *, queued: int = 0, as_json: bool) -> int:
    from adk_worker.adapters import adapter
    from adk_worker.ledger.accounts import Account
    from adk_worker.ledger.words import of_tenant

    if as_json:
        said = None if account is None else adapter(Account).dump_python(account, mode="json", exclude={"waitlist"})
        emit({"tenant": tenant, "run_id": None, "ledger": None, "account": said, "queued": queued})
    else:
        _say(of_tenant(tenant, account), otherwise="")
        _tell(queued)
    return ExitCode.DONE


def _say(lines: Iterable[str], *, otherwise: str) -> None:
    say("\n".join(lines) or otherwise)


def _tell(queued: int) -> None:
    if queued:
        note(f"{counted(queued, 'run')} queued again")
