"""Tools that misbehave, on a real worker: each run ends where a person can act on it, and the worker lives."""

from __future__ import annotations

import pytest

from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import Attention

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]


def test_a_worker_outlives_its_tools_and_every_run_says_what_is_in_its_way(fleet):
    """I10, L8: what may have happened parks with its reason; what is known, odd as it is, goes back to the model."""
    awkward = {"ADK_AGENTS": "tests.acceptance.awkward"}
    worker = fleet.worker("worker", **awkward)
    undecided = ["raises", "exits", "hangs"]
    told = ["not_json", "five_megabytes", "strict", "unknown", "blocks_the_loop"]
    for agent in (*undecided, *told):
        fleet.submit(agent, agent=agent)

    for agent in undecided:
        run = fleet.rests(agent, RunStatus.PARKED)
        assert run.attention is Attention.UNDECIDED_CALL, run
        assert agent in (run.detail or ""), run
    for agent in told:
        assert fleet.rests(agent).output == "I am done."

    # The loop was blocked for longer than a lease lives, and nobody else was let in.
    assert not fleet.events("blocks_the_loop", "recovered")
    assert worker.says("ready")
