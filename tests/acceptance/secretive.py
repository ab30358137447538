"""An agent that is told secrets: ``ADK_AGENTS=tests.acceptance.secretive``.

What its tool was given, its far side writes down in ``COURIER_DIR``. A file there called ``hold-RUN`` keeps the model
of that run waiting before its second answer, one called ``broken-RUN`` has it fail for good.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adk_worker import Agent, ModelError, ModelRequest, ToolContext, tool
from tests.waiting import eventually

MADE = "ghp_" + "Q7w8e9" * 6
"""What the far side makes for whoever comes: a secret that nobody had before."""


def _folder() -> Path:
    return Path(os.environ["COURIER_DIR"])


@tool(timeout=60)
async def deliver(ctx: ToolContext, note: str) -> dict[str, str]:
    """Deliver a note, and log in for that."""
    written = {"run": ctx.run_id, "note": note, "token": ctx.metadata.get("api_token")}
    with (_folder() / "far-side").open("a") as far_side:
        far_side.write(json.dumps(written) + "\n")
    ctx.progress(f"delivering {note}")
    return {"said": f"thank you for {note}", "made": MADE}


async def turns(request: ModelRequest) -> Any:
    """Deliver what came with the input, then what was made for it, and say so."""
    if request.iteration == 1:
        return "deliver", {"note": "bob:[secret:1]@desk"}
    if request.iteration == 2:
        hold = _folder() / f"hold-{request.run_id}"
        await eventually(lambda: not hold.exists(), within=600, what="the model to be let go on")
        if (_folder() / f"broken-{request.run_id}").exists():
            raise ModelError("there is no such model")
        return "deliver", {"note": "as [secret:3]"}
    return "Delivered for [secret:1]."


def deliveries(folder: Path, run_id: str) -> list[Mapping[str, Any]]:
    """What the far side has of a run."""
    far_side = folder / "far-side"
    lines = far_side.read_text().splitlines() if far_side.exists() else []
    return [found for found in map(json.loads, lines) if found["run"] == run_id]


courier = Agent(
    name="courier", instructions="Deliver.", model="scripted:tests.acceptance.secretive:turns", tools=[deliver]
)
