"""Which of a server's settings can lose what was acknowledged: a fence, and with it every guarantee (L2, F1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_EVICTS_ALL: Final = "allkeys-"
SETTINGS: Final = ("appendonly", "appendfsync", "maxmemory-policy", "min-replicas-to-write")
"""What is asked of each master by CONFIG GET."""


@dataclass(frozen=True, slots=True)
class Facts:
    """One server, as it describes itself. ``settings`` is ``None`` where it does not tell them."""

    name: str
    role: str
    replicas: int
    settings: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What speaks against a server: ``refused`` loses writes in ordinary events, ``risks`` in rarer ones."""

    refused: tuple[str, ...]
    risks: tuple[str, ...]


def judge(facts: Facts) -> Judgement:
    """Judge one server.

    Refused is what an ordinary event turns into a fence given twice, silently: a process that is killed and started
    again, or memory that runs short. What takes the loss of a machine, or a failover, is a risk that may be taken.
    """
    refused: list[str] = []
    risks: list[str] = []
    if facts.role != "master":
        refused.append(f"it is a {facts.role}, and takes no writes; ADK_STORE_URL has to lead to the master")
    if facts.settings is None:
        risks.append(
            "it does not tell its settings (CONFIG GET is not allowed): see to it that appendonly is on and that "
            "maxmemory-policy is noeviction"
        )
        return Judgement(tuple(refused), tuple(risks))
    said = {name: str(facts.settings.get(name, "")) for name in SETTINGS}
    if said["maxmemory-policy"].startswith(_EVICTS_ALL):
        refused.append(
            f"maxmemory-policy is {said['maxmemory-policy']}: short of memory, it throws fences and claims away; set "
            "it to noeviction"
        )
    if said["appendonly"] == "no":
        refused.append(
            "appendonly is no: started again, it has forgotten all since its last snapshot, or everything; set it to "
            "yes (CONFIG SET appendonly yes, and in its configuration)"
        )
    elif said["appendfsync"] != "always":
        lost = "about a second" if said["appendfsync"] == "everysec" else "half a minute"
        risks.append(
            f"appendfsync is {said['appendfsync']}: a machine that crashes (not the process alone) loses {lost} of "
            "what was acknowledged; always loses nothing"
        )
    if facts.replicas and said["min-replicas-to-write"] in {"", "0"}:
        risks.append(
            "it has replicas, and min-replicas-to-write is 0: a master that is cut off goes on taking writes that are "
            "lost once a replica has taken its place; set it to 1 or more"
        )
    if facts.replicas:
        risks.append(
            "replicas follow asynchronously: after a failover, run adk db bump-epoch before workers go on, for the "
            "newest writes may be gone"
        )
    return Judgement(tuple(refused), tuple(risks))
