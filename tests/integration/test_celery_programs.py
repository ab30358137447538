"""How Celery's programs start, and what they say when they cannot."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.acceptance.fleet import PATIENCE
from tests.architecture.packages import ROOT
from tests.integration.fleet import CeleryFleet
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def fleet(tmp_path, redis_url, orphan_guard):
    fleet = CeleryFleet(tmp_path, redis_url, orphan_guard)
    yield fleet
    fleet.close()


def celery(fleet, *arguments, folder=ROOT, **environment):
    """Run a program to its end; its exit code and all that it said."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "celery", "-A", "tasks.app", *arguments],
        check=False,
        cwd=folder,
        env=fleet.environment(**environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return ran.returncode, ran.stdout + ran.stderr


WORKER = ("worker", "-Q", "adk", "-P", "solo", "-l", "INFO")
ALL_QUEUES = ("worker", "-P", "solo", "-l", "INFO")


class TestAWorkerThatCanNeverWork:
    """It says what is wrong in a sentence, and ends with a code that tells a supervisor not to try again."""

    @pytest.mark.parametrize(
        ("arguments", "environment", "said"),
        [
            (WORKER, {"ADK_AGENTS": "tests.integration.broken_agents"}, "the price list is missing"),
            (ALL_QUEUES, {"ADK_AGENTS": None}, "ADK_AGENTS is not set"),
            (WORKER, {"ADK_STORE_URL": None}, "ADK_STORE_URL is not set"),
            (WORKER, {"ADK_BROKER_URL": None}, "ADK_BROKER_URL is not set"),
            (WORKER, {"ADK_STORE_URL": "memory://"}, "a store in memory"),
            (WORKER, {"ADK_REDACT_PATTERNS": '["(shop_"]'}, "is no regular expression"),
            (WORKER, {"ADK_BROKER_URL": "kafka://broker/0"}, "ADK_BROKER_URL"),
            (WORKER, {"ADK_BROKER_URL": "redis://:hunter22@broker:99999/0"}, "ADK_BROKER_URL"),
            (WORKER, {"ADK_STORE_URL": "postgresql://127.0.0.1/adk?sslmood=require"}, 'option "sslmood"'),
            (("beat",), {"ADK_BROKER_URL": None}, "ADK_BROKER_URL is not set"),
            (("--config", "nowhere", *WORKER), {}, "'nowhere' (--config) does not import"),
        ],
    )
    def test_says_why(self, fleet, arguments, environment, said):
        fleet.make_store()
        code, output = celery(fleet, *arguments, **environment)
        assert (code, said in output, "Traceback" in output) == (78, True, False), output

    def test_has_a_pool_of_greenlets(self, fleet):
        """A stand-in for gevent, which need not be installed for this."""
        pool = {"CELERY_CUSTOM_WORKER_POOL": "tests.integration.green_pool:TaskPool"}
        code, output = celery(fleet, "worker", "-Q", "adk", "-P", "custom", **pool)
        assert (code, "-P threads" in output, "Traceback" in output) == (78, True, False), output

    def test_has_an_agent_whose_model_has_no_key(self, fleet):
        none = dict.fromkeys(["OPENAI_API_KEY", "OPENAI_BASE_URL"])
        code, output = celery(fleet, *WORKER, ADK_AGENTS="tests.acceptance.modelled", **none)
        assert (code, "OPENAI_API_KEY" in output, "Traceback" in output) == (78, True, False), output

    def test_has_an_agent_whose_script_is_not_there(self, fleet):
        """Each of its runs would fail. The agent is found in the folder that the worker is started in."""
        agents = (
            "from adk_worker import Agent\n\nlost = Agent(name='lost', instructions='', model='scripted:lost:turns')\n"
        )
        (fleet.folder / "lost.py").write_text(agents)
        code, output = celery(fleet, *WORKER, folder=fleet.folder, ADK_AGENTS="lost")
        said = "the script of model 'scripted:lost:turns' cannot be imported"
        assert (code, said in output, "Traceback" in output) == (78, True, False), output

    def test_has_no_tables(self, fleet):
        """Another schema is nothing that waiting would mend."""
        code, output = celery(fleet, *WORKER)
        assert (code, "adk db upgrade" in output, "Traceback" in output) == (78, True, False), output

    def test_names_a_queue_that_is_not_there(self, fleet):
        code, output = celery(fleet, "worker", "-Q", "adk.contrl", "-P", "solo")
        assert code != 0
        assert "adk.contrl" in output


def test_a_module_of_the_app_s_own_that_hides_the_stores_is_named(fleet):
    """Celery's programs look in their working folder first."""
    file = fleet.folder / "stores.py"
    file.write_text("# the app's own")
    code, output = celery(fleet, *WORKER, folder=fleet.folder)
    assert (code != 0, f"{file} hides adk-worker's own package 'stores'" in output) == (True, True), output


def test_a_worker_waits_for_a_store_that_is_away_and_says_so(fleet):
    fleet.store_url = f"sqlite:///{fleet.folder}/later/runs.db"
    worker = fleet.worker(ready=None)
    wait_until(lambda: worker.log().count("store_away") >= 2, within=PATIENCE, what="the worker to wait")
    (fleet.folder / "later").mkdir()
    fleet.make_store()
    wait_until(lambda: worker.says("ready."), within=PATIENCE, what="the worker to consume")


def test_a_control_worker_needs_no_agents(fleet):
    """It reaps whatever the others do: a module that does not import must not stop it."""
    fleet.make_store()
    fleet.worker(queues="adk.control", ADK_AGENTS="tests.integration.broken_agents")


def test_importing_the_app_reads_nothing():
    program = "from tasks.app import app; print(app.main, app.configured)"
    ran = subprocess.run(
        [sys.executable, "-c", program], check=False, cwd=ROOT, env={}, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (ran.stdout.split(), ran.stderr) == (["adk", "False"], "")


def test_a_deployment_s_own_settings_stand_in_celeryconfig(fleet):
    fleet.make_store()
    (fleet.folder / "mine.py").write_text(
        "from celeryconfig import *\n\nworker_log_format = 'MINE %(message)s'\n", encoding="utf-8"
    )
    path = f"{ROOT}:{fleet.folder}"
    worker = fleet.celery(
        "--config", "mine", *WORKER, "--without-mingle", name="worker", ready="ready.", PYTHONPATH=path
    )
    assert worker.says("MINE event=agents_loaded")
