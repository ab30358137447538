"""What ``--json`` prints, as models: one for each command. A line of output is one object of its command's model.

They are the program's face to scripts, so they say everything twice on purpose: commands build their objects
themselves, and the tests hold those against the schemas in ``adk_worker/cli/schemas``, which ``scripts/schemas`` makes
of these models and ``adk schema`` prints. Keys are added, and not taken away.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from adk_worker.cli.answers.approvals import AnsweredAnswer, ApprovalsAnswer
from adk_worker.cli.answers.asked import GrantAnswer
from adk_worker.cli.answers.runs import (
    BudgetAnswer,
    CheckDeployAnswer,
    InspectAnswer,
    ManyAnswer,
    PruneAnswer,
    ResumeAnswer,
    RunAnswer,
    WatchAnswer,
)
from adk_worker.cli.answers.secrets import ScanAnswer, SealKeysListAnswer, SealKeysNewAnswer, SealRotateAnswer
from adk_worker.cli.answers.store import DbBumpEpochAnswer, DbUpgradeAnswer, DbVerifyAnswer
from adk_worker.cli.answers.workers import AliveAnswer, DoctorAnswer

ANSWERS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "alive": AliveAnswer,
        "approvals": ApprovalsAnswer,
        "approve": AnsweredAnswer,
        "budget raise": BudgetAnswer,
        "budget set": BudgetAnswer,
        "budget show": BudgetAnswer,
        "cancel": RunAnswer | ManyAnswer,
        "check-deploy": CheckDeployAnswer,
        "db bump-epoch": DbBumpEpochAnswer,
        "db upgrade": DbUpgradeAnswer,
        "db verify": DbVerifyAnswer,
        "deny": AnsweredAnswer,
        "find": RunAnswer,
        "doctor": DoctorAnswer,
        "inspect": InspectAnswer,
        "list": RunAnswer,
        "prune": PruneAnswer,
        "resume": ManyAnswer,
        "revoke": GrantAnswer,
        "run": RunAnswer | ResumeAnswer,
        "scan": ScanAnswer,
        "seal keys list": SealKeysListAnswer,
        "seal keys new": SealKeysNewAnswer,
        "seal rotate": SealRotateAnswer,
        "watch": WatchAnswer,
        "settle": RunAnswer,
    }
)
"""The model of a line, by the command as it is typed behind ``adk``."""
