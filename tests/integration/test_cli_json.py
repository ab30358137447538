"""Every command's ``--json``, as a process, against the schema that is published for it."""

from __future__ import annotations

import json
import shlex
import time

import jsonschema
import pytest

from adk_worker.cli import schemas
from adk_worker.cli.answers import ANSWERS
from adk_worker.liveness import Holder
from adk_worker.pulse import Phase, Pulse, PulseFile
from adk_worker.sealing.keys import SealKey
from tests.integration.given import given
from tests.integration.test_cli import Adk
from tests.servers.daemon import free_port

pytestmark = pytest.mark.timeout(240)

# The command as it is typed; the state of run_1; what stands behind the command; the exit code.
ROWS = [
    ("alive", "nothing", "", 0),
    ("approvals", "granted", "run_1 --tenant acme", 0),
    ("approve", "asking", "run_1 req-2 --tenant acme --by ana --for 2h", 0),
    ("budget raise", "limited", "run_1 --tenant acme --tokens 1000", 0),
    ("budget set", "parked", "run_1 --tenant acme --cost 2.50", 0),
    ("budget set", "parked", "--tenant acme --tokens none", 0),
    ("budget show", "parked", "run_1 --tenant acme", 0),
    ("cancel", "queued", "run_1 --tenant acme", 0),
    ("cancel", "held", "run_1 --tenant acme", 0),
    ("cancel", "held", "--tenant acme --status running --yes", 0),
    ("cancel", "parked", "--all-tenants --attention over_budget --dry-run", 0),
    ("check-deploy", "queued", "", 4),
    ("db bump-epoch", "nothing", "", 0),
    ("db upgrade", "nothing", "", 0),
    ("db verify", "nothing", "", 0),
    ("find", "queued", "run_1", 0),
    ("deny", "asking", "run_1 req-1 --tenant acme --by ana --why 'too dear'", 0),
    ("doctor", "queued", "--timeout 1", 4),
    ("inspect", "nothing", "run_1 --tenant acme", 1),
    ("inspect", "held", "run_1 --tenant acme", 3),
    ("inspect", "undecided", "run_1 --tenant acme --events", 4),
    ("inspect", "over budget", "run_1 --tenant acme", 65),
    ("inspect", "asking", "run_1 --tenant acme", 4),
    ("inspect", "completed", "run_1 --tenant acme", 0),
    ("list", "waiting for an approval", "", 0),
    ("list", "parked", "--attention", 0),
    ("prune", "completed", "--older-than 0s", 0),
    ("resume", "failed", "--tenant acme --since 1h --yes", 0),
    ("resume", "lost", "--all-tenants --attention frontier_lost --yes", 65),
    ("revoke", "granted", "run_1 grant-1 --tenant acme --by ana", 0),
    ("run", "nothing", "booking 'book the flight' --tenant acme", 0),
    ("run", "parked", "--resume run_1 --tenant acme --no-wait", 0),
    ("run", "parked", "--resume run_1 --tenant acme --timeout 0.1", 75),
    ("run", "undecided", "--resume run_1 --tenant acme", 4),
    ("run", "held", "--resume run_1 --tenant acme", 3),
    ("run", "completed", "--resume run_1 --tenant acme", 1),
    ("watch", "completed", "run_1 --tenant acme", 0),
    ("watch", "parked", "run_1 --tenant acme", 65),
    ("run", "nothing", "--resume run_1 --tenant acme", 1),
    ("scan", "unmasked", "", 4),
    ("seal keys list", "nothing", "", 0),
    ("seal keys new", "nothing", "", 0),
    ("seal keys new", "nothing", "--file adk.keys", 0),
    ("seal rotate", "nothing", "", 0),
    (
        "settle",
        "undecided",
        """run_1 book --tenant acme --completed '{"seat": "12A"}' --why 'they say so' --by ana""",
        0,
    ),
    ("settle", "undecided", "run_1 call_0 --tenant acme --never-ran --owner-may-live --why 'they say so' --by ana", 0),
]

SHOP = """
from adk_worker import Agent
booking = Agent(name="booking", instructions="Book.", model="scripted:shop:turns", revision="r2")
turns = ["Booked."]
"""


@pytest.fixture
def adk(tmp_path, sqlite_store_url):
    """A store, agents, the signs of life of a worker, and a broker that nobody reaches."""
    (tmp_path / "shop.py").write_text(SHOP)
    now = time.monotonic()
    pulse = Pulse(
        name="worker@here",
        process=str(Holder.new("worker")),
        queues=("adk",),
        slots=2,
        beat_within=600,
        heard_within=600,
        at=now,
        phase=Phase.CONSUMING,
        since=now,
        heard_at=now,
    )
    PulseFile(tmp_path / "alive", pid=1).write(pulse)
    return Adk(
        tmp_path,
        ADK_STORE_URL=sqlite_store_url,
        ADK_BROKER_URL=f"redis://127.0.0.1:{free_port()}/0",
        ADK_AGENTS="shop",
        ADK_ALIVE_DIR=str(tmp_path / "alive"),
        ADK_SEAL_KEYS=SealKey.new("k1").text,
    )


@pytest.mark.parametrize(("command", "state", "rest", "code"), ROWS, ids=lambda value: str(value) or "-")
def test_each_line_of_json_is_as_its_schema_says(adk, sqlite_store_url, command, state, rest, code):
    given(state, sqlite_store_url)
    ran = adk(*command.split(), *shlex.split(rest), "--json")

    assert ran.returncode == code, ran.stderr
    assert ran.stdout
    for line in ran.stdout.splitlines():
        jsonschema.validate(json.loads(line), json.loads(schemas.read(command)))


def test_every_command_with_a_schema_is_looked_at():
    assert {command for command, *_ in ROWS} == set(ANSWERS)


# Without the store they do what they are for.
_NEEDS_NO_STORE = {"alive", "seal keys list", "seal keys new"}


@pytest.mark.parametrize("command", sorted(set(ANSWERS) - _NEEDS_NO_STORE))
def test_without_its_store_every_command_says_so_and_shows_no_password(adk, command):
    """69 and not an answer about runs; whoever reads its output is not told half of it."""
    rest = next(rest for name, _, rest, _ in ROWS if name == command)
    store_url = f"postgresql://app:tiger@127.0.0.1:{free_port()}/adk"
    ran = adk(*command.split(), *shlex.split(rest), ADK_STORE_URL=store_url)

    assert ran.returncode == 69
    assert "is not answering" in ran.stdout + ran.stderr
    assert "tiger" not in ran.stdout + ran.stderr
    assert ran.stdout == "" or command == "doctor"
