"""What the fleet's programs make of a RabbitMQ, and what they say when it refuses them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from adk_worker.errors import BrokerUnavailableError
from adk_worker.runs import Dispatch
from adk_worker.settings import Settings
from tasks.dispatch import CeleryDispatcher
from tests.acceptance import broker
from tests.acceptance.fleet import PATIENCE
from tests.architecture.packages import ROOT
from tests.integration.fleet import CeleryFleet
from tests.servers import RabbitServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def fleet(tmp_path, rabbitmq_url, orphan_guard):
    fleet = CeleryFleet(tmp_path, rabbitmq_url, orphan_guard)
    fleet.make_store()
    yield fleet
    fleet.close()


def dispatcher(fleet, **given):
    settings = Settings(store_url=fleet.store_url, broker_url=fleet.broker_url, **given)
    return CeleryDispatcher.from_settings(settings)


def ended(fleet, **environment):
    """The exit code of a worker that ends by itself, and all that it said."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "celery", "-A", "tasks.app", "worker", "-Q", "adk", "-P", "threads"],
        check=False,
        cwd=ROOT,
        env=fleet.environment(**environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
async def test_queues_are_of_the_type_that_is_set(fleet, rabbitmq_server: RabbitServer, queue_type):
    """By whoever comes first, a web app or a worker; and nothing is declared that no message of ours needs."""
    publisher = dispatcher(fleet, queue_type=queue_type)
    await publisher.dispatch(Dispatch("acme", "run_1", 1))
    await publisher.close()
    fleet.worker(queues="adk,adk.control", ADK_QUEUE_TYPE=queue_type)

    found = rabbitmq_server.queues(fleet.broker_url)

    assert {name: of for name, of in found.items() if name.startswith("adk")} == {
        "adk": queue_type,
        "adk.control": queue_type,
    }
    assert not [name for name in found if "delayed" in name]


async def test_a_worker_that_would_make_its_queue_another_one_ends_with_a_sentence(fleet):
    publisher = dispatcher(fleet, queue_type="quorum")
    await publisher.dispatch(Dispatch("acme", "run_1", 1))
    await publisher.close()

    code, said = ended(fleet, ADK_QUEUE_TYPE="classic")

    assert (code, "ADK_QUEUE_TYPE" in said, "x-queue-type" in said, "Traceback" in said) == (78, True, True, False), (
        said
    )


async def test_a_publisher_that_would_make_its_queue_another_one_says_so(fleet):
    first, second = dispatcher(fleet, queue_type="classic"), dispatcher(fleet, queue_type="quorum")
    await first.dispatch(Dispatch("acme", "run_1", 1))
    for _ in range(2):
        with pytest.raises(BrokerUnavailableError, match="ADK_QUEUE_TYPE"):
            await second.dispatch(Dispatch("acme", "run_1", 1))
    await first.close()
    await second.close()


def test_a_worker_whose_login_is_refused_ends_with_a_sentence(fleet):
    user, _, rest = fleet.broker_url.partition("@")
    wrong = f"{user.rpartition(':')[0]}:guess@{rest}"

    code, said = ended(fleet, ADK_BROKER_URL=wrong)

    assert (code, "ADK_BROKER_URL" in said, "Traceback" in said, "guess" in said) == (78, True, False, False), said


async def test_a_message_that_the_broker_does_not_take_is_an_error(fleet, rabbitmq_server: RabbitServer):
    """confirm_publish: without it a full queue swallows messages, and nobody hears of it."""
    publisher = dispatcher(fleet)
    vhost = fleet.broker_url.rpartition("/")[2]
    full = {"pattern": "^adk$", "apply-to": "queues", "definition": {"max-length": 1, "overflow": "reject-publish"}}
    rabbitmq_server.ask("PUT", f"/policies/{vhost}/full", full)
    await publisher.dispatch(Dispatch("acme", "run_1", 1))
    with pytest.raises(BrokerUnavailableError):
        await publisher.dispatch(Dispatch("acme", "run_1", 2))
    await publisher.close()
    assert broker.waiting(fleet.broker_url) == 1
