"""The worked example of a carried agent: as pydantic-ai runs it, and as we do."""

from __future__ import annotations

import subprocess
import sys

from adk_worker import Effect
from examples.support.agent import Desk, support
from examples.support.agents import carried
from examples.support.shop import Refund, Shop
from tests.architecture.packages import ROOT


async def test_it_is_an_agent_of_pydantic_ai_to_which_nothing_was_done(tmp_path):
    shop = Shop(tmp_path)

    ended = await support.run("My last order arrived broken.", deps=Desk(shop, "Ada"))

    assert ended.output.refunded_cents == 4900
    assert shop.refunds() == [Refund(8, 4900, "it arrived broken")]


def test_it_knows_nothing_of_the_fleet():
    code = "import examples.support.agent, sys; print(any(name.startswith('adk_worker') for name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)

    assert ran.stdout.strip() == "False"


def test_its_refunds_are_never_guessed_at():
    """I7."""
    assert {tool.name: tool.effect for tool in carried.tools} == {
        "orders": Effect.READ_ONLY,
        "refund": Effect.EFFECTFUL,
    }


def test_it_runs_in_process():
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "examples.support"], check=False, cwd=ROOT, capture_output=True, text=True
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert '"refunded_cents":4900' in ran.stdout
