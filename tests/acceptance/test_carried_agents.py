"""An agent of pydantic-ai on a fleet, killed in the middle of what it must not do twice."""

from __future__ import annotations

import pytest

from examples.support.shop import Refund, Shop
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_worker_killed_in_a_refund_is_succeeded_and_the_shop_refunds_once(fleet, tmp_path, pool):
    """I7: the shop honours no key; the heir's probe finds the refund, and the model is told what it said."""
    shop = Shop(tmp_path)
    shop.be_slow()
    ours = {"ADK_AGENTS": "examples.support.agents", "SHOP": str(tmp_path)}
    victim = fleet.worker("victim", pool=pool, **ours)
    fleet.submit("complaint", agent="support", customer="Ada")
    wait_until(shop.refunds, within=fleet.patience, what=f"the refund to be made\n{fleet.logs()}")
    victim.kill()
    fleet.worker("heir", pool=pool, **ours)

    run = fleet.rests("complaint")

    assert run.output == '{"message":"Order 8 is refunded.","refunded_cents":4900}'
    assert shop.refunds() == [Refund(8, 4900, "it arrived broken")]
    assert fleet.events("complaint", "recovered")
