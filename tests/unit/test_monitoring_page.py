"""What docs/monitoring.md says, as far as a machine can tell."""

from __future__ import annotations

import re

from adk_worker.steps import StepEnd
from tasks.envelope import ADVANCE, REAP, RESUME
from tests.travel import ROOT

PAGE = (ROOT / "docs" / "monitoring.md").read_text()


def row(column):
    (found,) = re.findall(rf"^\| {column} \|(.*)\|$", PAGE, re.MULTILINE)
    return found


def test_every_outcome_of_a_message_is_explained():
    assert set(re.findall(r"`(\w+)`", row("Result"))) == {*(end.value for end in StepEnd), "passed_on"}


def test_every_task_is_explained():
    assert set(re.findall(r"`(adk\.\w+)`", row("Name"))) == {ADVANCE, RESUME, REAP}
