"""Releases of an app whose agent changes, as folders of code; and the next release of adk-worker itself."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.mutants import Change, Mutant

AGENT = "shop"

_AGENTS = '''"""The shop's agents, as of one release."""

from adk_worker import Agent
from examples.travel.agents import travel


def _shop(instructions):
    return Agent("shop", instructions, travel.model, tools=travel.tools, max_iterations=travel.max_iterations)


old = _shop("You book a seat for the passenger.")
new = _shop("You book a seat for the passenger, and you are polite.")
agents = [{agents}]
'''


def release(folder: Path, *agents: str) -> Path:
    """Write a release of the app that knows these of its agent's revisions, ``old`` and ``new``; its folder.

    Names with an underscore are no agents of a module's: what is listed is all that counts.
    """
    root = folder / f"release-{'-'.join(agents)}"
    package = root / "shop"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    code = _AGENTS.format(agents=", ".join(agents))
    for unknown in {"old", "new"} - set(agents):
        code = code.replace(f"\n{unknown} = ", f"\n_{unknown} = ")
    (package / "agents.py").write_text(code)
    return root


NEXT_RELEASE = Mutant(
    "next-release",
    (
        Change("adk_worker/checkpoint.py", "CHECKPOINT_FORMAT = 1\n", "CHECKPOINT_FORMAT = 2\n"),
        Change("tasks/envelope.py", "VERSION: Final = 1\n", "VERSION: Final = 2\n"),
        Change("tasks/envelope.py", "READABLE: Final = frozenset({1})", "READABLE: Final = frozenset({1, 2})"),
    ),
)
"""adk-worker with newer formats of its checkpoints and messages; like every release it reads the older ones."""
