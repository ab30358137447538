"""How Flower starts on a fleet: it asks for a password, listens on the loopback, and forgets old tasks."""

from __future__ import annotations

import psutil
import pytest
from tornado.options import OptionParser

from adk_worker.errors import ConfigurationError
from tasks.flower import OURS, settle_flower
from tests.acceptance.fleet import PATIENCE
from tests.flower import COLUMNS, Flower
from tests.integration.fleet import CeleryFleet
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

OPEN = {"/metrics", "/healthcheck", "/static/(.*)", "/login/?", "/logout", ".*"}
"""What Flower answers whoever asks: numbers, its own style sheets, and pages with nothing on them."""


@pytest.fixture
def fleet(tmp_path, redis_url, orphan_guard):
    fleet = CeleryFleet(tmp_path, redis_url, orphan_guard)
    fleet.make_store()
    yield fleet
    fleet.close()


@pytest.fixture
def flower():
    return Flower()


def start(fleet, flower, *options, **environment):
    """Start it as everybody would who has not read further than its name; once it answers."""
    process = fleet.celery("flower", *options, name="flower", **flower.environment, **environment)
    wait_until(lambda: process.says("") and flower.ask("/healthcheck")[0], within=PATIENCE, what="Flower to answer")
    return process


def listening(process):
    connections = psutil.Process(process.pid).net_connections()
    return {connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN}


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"FLOWER_BASIC_AUTH": None}, "FLOWER_BASIC_AUTH=user:password"),
        ({"FLOWER_BASIC_AUTH": ""}, "FLOWER_BASIC_AUTH"),
        ({"FLOWER_BASIC_AUTH": None, "FLOWER_UNAUTHENTICATED_API": "true"}, "FLOWER_BASIC_AUTH=user:password"),
        ({"FLOWER_BASIC_AUTH": "ann"}, "has to be user:password"),
        ({"FLOWER_BASIC_AUTH": "ann:"}, "has to be user:password"),
        ({"FLOWER_BASIC_AUTH": "ann:hunter,2"}, "has to be user:password"),
    ],
)
def test_it_does_not_start_where_it_would_stand_open(fleet, flower, environment, said):
    """A sentence, and the exit code of what can never work as it is set up; no password in it."""
    process = fleet.celery("flower", name="flower", **{**flower.environment, **environment})
    assert process.ends(within=PATIENCE) == 78, process.log()
    assert said in process.log()
    assert "Traceback" not in process.log()
    assert "hunter" not in process.log()


def test_it_asks_for_its_password_wherever_there_is_something_to_see_or_to_do(fleet, flower):
    """Every route that it has, by both methods; and it listens on the loopback, though nobody told it to."""
    from flower.urls import handlers  # noqa: PLC0415 - imported, it defines its options

    process = start(fleet, flower)
    assert listening(process) == {"127.0.0.1"}
    routes = {getattr(handler, "regex", None) or handler[0] for handler in handlers}
    patterns = {getattr(route, "pattern", route).rstrip("$") for route in routes}
    assert patterns >= OPEN
    for pattern in patterns - OPEN:
        path = pattern.replace("(.+)", "x").replace("(.*)", "x")
        for method in ("GET", "POST"):
            for password in (None, "wrong"):
                status, _ = flower.ask(path, method=method, password=password)
                assert status in {401, 405}, (path, method, status)
    assert flower.ask("/tasks")[0] == 200


def test_it_listens_where_it_is_told_to(fleet, flower):
    assert listening(start(fleet, flower, "--address=0.0.0.0")) == {"0.0.0.0"}


def test_it_keeps_as_many_tasks_as_it_may(fleet, flower):
    """And shows which run each was for."""
    start(fleet, flower, "--max_tasks=3")
    fleet.worker()
    wait_until(lambda: flower.api("/workers?json=true")["data"], within=PATIENCE, what="Flower to hear of the worker")
    for number in range(3):
        fleet.submit("book", f"run_{number}")
        fleet.rests(f"run_{number}")
    last = "'run_2'"
    wait_until(
        lambda: [task for task in flower.tasks().values() if last in task["kwargs"] and task["state"] == "SUCCESS"],
        within=PATIENCE,
        what="Flower to have seen the last run",
    )
    # Two iterations each.
    assert len(flower.tasks()) == 3
    assert not [task for task in flower.tasks().values() if "'run_0'" in task["kwargs"]]


class TestOurDefaults:
    @pytest.fixture
    def options(self):
        """Flower's, as they are before anybody has said anything."""
        from flower.options import options  # noqa: PLC0415 - imported, it defines them

        fresh = OptionParser()
        for option in vars(options)["_options"].values():
            if option.name != "help":
                fresh.define(option.name, default=option.default, type=option.type, multiple=option.multiple)
        fresh.basic_auth = ["ann:secret"]
        return fresh

    def test_stand_in_the_place_of_flower_s_own(self, options):
        """Of another release of Flower, perhaps with other defaults, this says so."""
        assert {name: getattr(options, name) for name in OURS} == {name: theirs for name, (theirs, _) in OURS.items()}
        settle_flower(options)
        assert {name: getattr(options, name) for name in OURS} == {name: ours for name, (_, ours) in OURS.items()}

    def test_leave_alone_what_somebody_has_said(self, options):
        options.address, options.max_tasks, options.tasks_columns = "10.0.0.7", 50, "name,state"
        settle_flower(options)
        assert (options.address, options.max_tasks, options.tasks_columns) == ("10.0.0.7", 50, "name,state")

    def test_name_columns_that_there_are(self, options):
        from flower.views.tasks import visible_task_columns  # noqa: PLC0415

        settle_flower(options)
        shown = [name for name, _ in visible_task_columns(options.tasks_columns)]
        assert tuple(shown) == COLUMNS

    def test_a_login_elsewhere_will_do(self, options):
        options.basic_auth, options.auth = [], r".*@example\.com"
        settle_flower(options)
        options.auth = ""
        with pytest.raises(ConfigurationError, match="FLOWER_BASIC_AUTH"):
            settle_flower(options)
