"""The suites over the liars: a class of tests for each, made here and collected only by whoever names this file."""

from __future__ import annotations

import pytest

from tests.conformance.liars import approvals, claims, frontiers, leases, ledgers, runs
from tests.conformance.liars.lie import Lie

LIES: tuple[Lie, ...] = (
    *leases.LIES,
    *claims.LIES,
    *frontiers.LIES,
    *runs.LIES,
    *approvals.LIES,
    *ledgers.LIES,
)
"""All lies that are told."""


def class_of(lie: Lie) -> str:
    """The name of the class of tests of a liar."""
    return f"Test{lie.suite.__name__.removesuffix('Conformance')}Of{lie.name.title().replace('_', '')}"


def _tests(lie):
    def make_store(self):
        if not lie.beside_leases:
            return lie.make
        store, self._leases = lie.make()
        return lambda: store

    def leases(self, make_store):
        return getattr(self, "_leases", None)

    def impatient(self, monkeypatch):
        """What never comes is not waited for as long as elsewhere."""
        monkeypatch.setattr("adk_worker.conformance.waiting._DEADLINE", 3.0)

    fields = {"make_store": pytest.fixture(make_store), "impatient": pytest.fixture(autouse=True)(impatient)}
    if lie.beside_leases:
        fields["leases"] = pytest.fixture(leases)
    if lie.name == "Lingering":
        fields |= _stopped(lie)
    return type(class_of(lie), (lie.suite,), fields)


def _stopped(lie):
    """The liar about the moment of the lapse needs a clock that stands still."""

    def make_store(self):
        self._store = lie.make()
        return lambda: self._store

    def set_clock(self, make_store):
        return lambda now: setattr(self._store._data, "clock", lambda: now)  # noqa: SLF001

    return {"make_store": pytest.fixture(make_store), "set_clock": pytest.fixture(set_clock)}


for _lie in LIES:
    globals()[class_of(_lie)] = _tests(_lie)
