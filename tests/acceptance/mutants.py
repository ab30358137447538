"""Builds of adk-worker with one rule taken out: copies of the source with a few lines changed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.travel import ROOT

_COPIED = ("adk_worker", "stores", "tasks", "alembic", "examples", "tests")


@dataclass(frozen=True)
class Change:
    """Text of one file that is there exactly once, and what stands in its place."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A build without a rule."""

    name: str
    changes: tuple[Change, ...]

    def build(self, folder: Path) -> Path:
        """Copy the source into ``folder``, change it, and return its root.

        Fails if a change finds nothing to change: the source has moved on, and the mutant would be no mutant.
        """
        root = folder / self.name
        for name in _COPIED:
            # With what is compiled: a copy keeps its times, by which Python tells what is still good.
            shutil.copytree(ROOT / name, root / name)
        for change in self.changes:
            file = root / change.path
            text = file.read_text()
            assert text.count(change.old) == 1, f"{self.name}: {change.path} has no single {change.old!r}"
            file.write_text(text.replace(change.old, change.new))
        return root


WITHOUT_THE_FENCE_CHECK = Mutant(
    "without-the-fence-check",
    (
        Change(
            "adk_worker/transitions/leases.py",
            "return self.holding is Holding.WORKER and self.fence == fence",
            "return True",
        ),
        Change(
            "adk_worker/transitions/runs.py",
            "return self.phase is Phase.LIVE and self.lease.held_under(fence)",
            "return True",
        ),
    ),
)
"""F1: whoever writes last wins."""

WITH_INTENT_AFTER_EFFECT = Mutant(
    "with-intent-after-effect",
    (
        Change(
            "adk_worker/scribes/fleet.py",
            "    async def begin(self, intents: Sequence[Intent]) -> tuple[Standing, Sequence[Claim]]:\n",
            "    async def begin(self, intents: Sequence[Intent]) -> tuple[Standing, Sequence[Claim]]:\n"
            "        from adk_worker.idempotency import ClaimState\n"
            "        self._deferred = intents\n"
            "        state = ClaimState.IN_FLIGHT\n"
            "        return Standing.KEPT, [\n"
            "            Claim(self._lease.tenant, i.key, self.owner, i.digest, state, tool=i.tool) for i in intents\n"
            "        ]\n\n"
            "    async def _begin(self, intents: Sequence[Intent]) -> tuple[Standing, Sequence[Claim]]:\n",
        ),
        Change(
            "adk_worker/scribes/fleet.py",
            "    async def boundary(self, wrapped: Wrapped) -> Standing:\n",
            "    async def boundary(self, wrapped: Wrapped) -> Standing:\n"
            "        deferred, self._deferred = getattr(self, '_deferred', ()), ()\n"
            "        if deferred:\n"
            "            await self._begin(deferred)\n",
        ),
    ),
)
"""I2: the call is made first, and written down when it has come back."""

WITH_THE_MESSAGE_BEFORE_THE_COMMIT = Mutant(
    "with-the-message-before-the-commit",
    (
        Change(
            "adk_worker/steps.py",
            "        surroundings = Surroundings(\n",
            "        scribe.early = lambda: self._dispatch(Dispatch(run.tenant, run.run_id, lease.fence + 1))\n"
            "        surroundings = Surroundings(\n",
        ),
        Change(
            "adk_worker/scribes/fleet.py",
            "        committed = await self._certain(lambda: self._stores.runs.commit(",
            "        if then is Then.HAND_OVER:\n"
            "            await self.early()\n"
            "        committed = await self._certain(lambda: self._stores.runs.commit(",
        ),
        Change(
            "adk_worker/scribes/fleet.py",
            "        self.ticket = committed.ticket\n",
            "        self.ticket = None\n",
        ),
    ),
)
"""The next message is published while its ticket is not in the store yet."""
