"""What each database spells its own way, above all the store's clock (L1)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from sqlalchemy import BigInteger, Connection, Double, FunctionElement, Table
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

S = TypeVar("S")

Insert: TypeAlias = "postgresql.Insert | sqlite.Insert"
"""An INSERT that may have an ON CONFLICT."""


class PerDialect(Generic[S]):
    """One statement with an INSERT … ON CONFLICT, made once for a dialect that is used."""

    def __init__(self, make: Callable[[Callable[[Table], Insert]], S]) -> None:
        self._make = make
        self._made: dict[str, S] = {}

    def on(self, tx: Connection) -> S:
        """The statement for this connection."""
        name = tx.dialect.name
        if name not in self._made:  # two threads at once make the same
            # The dialect in use is imported already; any other need not be installed.
            self._made[name] = self._make(import_module(f"sqlalchemy.dialects.{name}").insert)
        return self._made[name]


class store_clock(FunctionElement[float]):  # noqa: N801 - it reads as the SQL function that it stands for
    """The store's clock: seconds since the epoch, with fractions, as a double.

    On PostgreSQL it is ``clock_timestamp()`` and on purpose not ``now()``, which stands still at the transaction's
    start: whoever has waited for a lock would judge a lease by the time before the wait. For the same reason it must
    be evaluated *after* the lock is held, in a statement's outer part, over a locking common table expression.
    SQLite's clock has a resolution of a millisecond.
    """

    type = Double()
    inherit_cache = True


class greatest(FunctionElement[int]):  # noqa: N801 - as above
    """The greater of two whole numbers."""

    type = BigInteger()
    inherit_cache = True


class run_number(FunctionElement[int]):  # noqa: N801 - as above
    """The number of a new row of ``adk_runs``: an identity column's, which SQLite has for primary keys only.

    There it is one more than the highest, read under the database's only write lock.
    """

    type = BigInteger()
    inherit_cache = True


@compiles(store_clock, "postgresql")
def _clock_of_postgresql(_element: store_clock, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)"


@compiles(store_clock, "sqlite")
def _clock_of_sqlite(_element: store_clock, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(greatest, "postgresql")
def _greatest_of_postgresql(element: greatest, compiler: SQLCompiler, **kw: Any) -> str:
    return f"greatest({compiler.process(element.clauses, **kw)})"


@compiles(greatest, "sqlite")
def _greatest_of_sqlite(element: greatest, compiler: SQLCompiler, **kw: Any) -> str:
    return f"max({compiler.process(element.clauses, **kw)})"


@compiles(run_number, "postgresql")
def _number_of_postgresql(_element: run_number, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "DEFAULT"


@compiles(run_number, "sqlite")
def _number_of_sqlite(_element: run_number, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "(SELECT coalesce(max(number), 0) + 1 FROM adk_runs)"
