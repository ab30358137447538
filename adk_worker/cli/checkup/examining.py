"""Carries out checks side by side, each for so long at most: a server that swallows everything holds up nobody."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping

from adk_worker.cli.checkup.finding import Check, Finding, Level, Subject, unseen
from adk_worker.cli.exits import ExitCode

_GRACE = 2.0
"""In seconds. A check may take this much longer than the patience for one answer: it asks for several."""


class Examination:
    """Checks under way. ``overdue`` says whether one still hangs: the process has to end without it."""

    def __init__(self, checks: Mapping[str, Check], subject: Subject) -> None:
        self._subject = subject
        self._told: dict[str, queue.SimpleQueue[Finding | None]] = {name: queue.SimpleQueue() for name in checks}
        self._deadline = time.monotonic() + _GRACE + 2 * subject.patience
        self.overdue = False
        for name, check in checks.items():
            # Not of an executor: the interpreter would wait for its threads in the end.
            threading.Thread(target=self._carry_out, args=(name, check), name=f"adk-doctor-{name}", daemon=True).start()

    def findings(self) -> Iterator[Finding]:
        """What was found, check by check in order, as it comes."""
        for name, told in self._told.items():
            while True:
                try:
                    finding = told.get(timeout=max(0.0, self._deadline - time.monotonic()))
                except queue.Empty:
                    self.overdue = True
                    within = f"no answer within {_GRACE + 2 * self._subject.patience:g} s"
                    yield Finding(name, Level.UNSEEN, within, "", ExitCode.TIMED_OUT)
                    break
                if finding is None:
                    break
                yield finding

    def _carry_out(self, name: str, check: Check) -> None:
        told = self._told[name]
        try:
            for finding in check(self._subject):
                told.put(finding)
        except Exception as error:  # noqa: BLE001 - the others are to be told all the same
            told.put(unseen(name, error))
        told.put(None)
