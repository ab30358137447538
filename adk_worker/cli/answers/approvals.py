"""Answers of the commands about approvals."""

from __future__ import annotations

from adk_worker.cli.answers.asked import GrantAnswer, RequestAnswer
from adk_worker.cli.answers.model import Answer
from adk_worker.cli.answers.runs import RunAnswer


class ApprovalsAnswer(Answer):
    """A request or a grant of a run; the other one is null."""

    request: RequestAnswer | None
    grant: GrantAnswer | None


class AnsweredAnswer(Answer):
    """A request that was answered, and its run after that."""

    request: RequestAnswer
    run: RunAnswer
