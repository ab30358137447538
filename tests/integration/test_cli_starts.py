"""What ``adk inspect`` imports: an operator at night waits for it, so it imports what it uses.

How long it takes is measured in docs/measurements.md; what is counted here is what that time goes into.
"""

from __future__ import annotations

import json
import subprocess
import sys

from tests.architecture.packages import ROOT
from tests.integration.given import given

_HEAVY = {
    "alembic",
    "amqp",
    "anthropic",
    "boto3",
    "billiard",
    "celery",
    "cryptography",
    "fakeredis",
    "flower",
    "genai_prices",
    "httpx",
    "kombu",
    "openai",
    "pydantic_ai",
    "pygments",
    "redis",
    "rich",
    "structlog",
    "tasks",
}
_MOST = 650
"""Modules in all; they were 524 on Python 3.11 as this was written, 92 of them SQLAlchemy's."""

_CODE = """
import json, sys
from adk_worker.cli import main
code = main(sys.argv[1:])
print(json.dumps({"code": code, "modules": sorted(sys.modules)}), file=sys.stderr)
"""


def imported(store_url, *argv):
    """The exit code, and the modules that the command has imported."""
    ran = subprocess.run(
        [sys.executable, "-c", _CODE, *argv],
        check=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"ADK_STORE_URL": store_url, "PYTHONPATH": str(ROOT)},
    )
    told = json.loads(ran.stderr.splitlines()[-1])
    return told["code"], told["modules"]


def test_inspect_imports_what_it_uses(sqlite_store_url):
    given("undecided", sqlite_store_url)

    code, modules = imported(sqlite_store_url, "inspect", "run_1", "--tenant", "acme")

    assert code == 4
    assert {name.partition(".")[0] for name in modules} & _HEAVY == set()
    assert "sqlalchemy.dialects.postgresql" not in modules
    assert len(modules) <= _MOST


def test_a_list_that_is_piped_on_imports_no_broker(sqlite_store_url):
    given("parked", sqlite_store_url)

    _, modules = imported(sqlite_store_url, "list", "--json")

    assert {name.partition(".")[0] for name in modules} & _HEAVY == set()


def test_help_opens_no_store(sqlite_store_url):
    _, modules = imported(sqlite_store_url, "--help")

    assert {name.partition(".")[0] for name in modules} & {*_HEAVY, "sqlalchemy", "stores"} == set()
