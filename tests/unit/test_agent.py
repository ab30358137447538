from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from adk_worker.agent import Agent, digest_of
from adk_worker.errors import ConfigurationError
from adk_worker.providers import ScriptedProvider
from adk_worker.tools.declaring import tool
from adk_worker.tools.probe import Unknown


@tool(effect="read_only")
def search(origin: str) -> list[str]:
    """Search flights."""
    return []


@tool
async def book_seat(flight: str) -> str:
    """Book a seat."""
    return flight


def no_probe(key: str, arguments: dict[str, Any]) -> Unknown:
    return Unknown()


def booking(**given: Any) -> Agent:
    return Agent(
        **{
            "name": "booking",
            "instructions": "Book flights.",
            "model": "scripted:myshop.scripts:booking",
            "tools": [search, book_seat],
        }
        | given
    )


def test_an_agent_is_frozen_and_finds_its_tools():
    agent = booking()

    assert agent.tools == (search, book_seat)
    assert agent.tool_names == ("search", "book_seat")
    assert agent.tool("search") is search
    assert agent.tool("sell") is None
    assert agent.max_iterations == 20
    with pytest.raises(FrozenInstanceError):
        agent.name = "selling"


def test_an_agents_tools_are_specified_as_the_model_is_shown_them():
    (spec, _) = booking().specs

    assert (spec.name, spec.description) == ("search", "Search flights.")
    assert spec.schema == search.schema


def test_the_models_name_is_that_of_its_provider():
    assert booking().model_name == "scripted:myshop.scripts:booking"
    assert booking(model=ScriptedProvider(["done"], name="script")).model_name == "script"


# --- the revision --------------------------------------------------------------------------------------------------


def test_an_explicit_revision_stands():
    """C7."""
    assert booking(revision="2026-12-01.1").revision == "2026-12-01.1"


def test_a_revision_is_sixteen_hex_digits():
    """C7."""
    revision = booking().revision

    assert len(revision) == 16
    assert set(revision) <= set("0123456789abcdef")
    assert booking().revision == revision


def _retold(**declared: Any) -> Agent:
    def book_seat(flight: str) -> str:
        """Book a seat."""
        return flight

    return booking(tools=[search, tool(**declared)(book_seat)])


def _rebuilt(flight: int, seats: int = 1) -> str:
    """Book a seat."""
    return str(flight + seats)


@pytest.mark.parametrize(
    "other",
    [
        booking(name="selling"),
        booking(instructions="Book flights!"),
        booking(model="scripted:myshop.scripts:selling"),
        booking(model=ScriptedProvider([], name="another")),
        booking(tools=[search]),
        _retold(name="book"),
        _retold(description="Book one seat."),
        _retold(effect="idempotent"),
        _retold(requires_approval=True),
        booking(tools=[search, tool(name="book_seat")(_rebuilt)]),
    ],
    ids=["name", "instructions", "model", "provider", "tools", "tool", "description", "effect", "approval", "schema"],
)
def test_what_decides_how_a_run_goes_on_is_in_the_revision(other):
    """C7."""
    assert other.revision != booking().revision


@pytest.mark.parametrize(
    "same",
    [
        _retold(),
        _retold(timeout=5, did_not_happen=OSError, max_in_flight=3, max_result_bytes=10, probe=no_probe),
        booking(tools=[book_seat, search]),
        booking(max_iterations=3),
        booking(model=ScriptedProvider(["other turns"], name="scripted:myshop.scripts:booking")),
    ],
    ids=["source", "options", "order", "iterations", "provider"],
)
def test_what_leaves_a_run_able_to_go_on_is_not_in_the_revision(same):
    """C7: never of source."""
    assert same.revision == booking().revision


def test_a_revision_is_the_same_in_every_process():
    """C7."""
    program = "from tests.unit.test_agent import booking; print(booking().revision)"
    printed = set()
    for seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        printed.add(ran.stdout.strip())

    assert printed == {booking().revision}


def test_the_digest_of_a_plain_agent_is_pinned():
    """C7: a release that changes this strands every run under way, so it has to be meant."""
    assert digest_of("booking", "Book flights.", "scripted:m:a", [search, book_seat]) == "f9da8994ed04285c"


# --- what is no agent ----------------------------------------------------------------------------------------------


def plain(flight: str) -> str:
    return flight


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": ""}, "'' cannot name an agent"),
        ({"name": "book a flight"}, "cannot name an agent"),
        ({"name": "a:b"}, "cannot name an agent"),
        ({"name": "x" * 101}, "cannot name an agent"),
        ({"name": None}, "None cannot name an agent"),
        ({"instructions": None}, "the instructions of agent 'booking' have to be a string"),
        ({"model": " "}, "has to be the name of a model or a ModelProvider"),
        ({"model": None}, "has to be the name of a model or a ModelProvider"),
        ({"model": ScriptedProvider}, "has to be the name of a model or a ModelProvider"),
        ({"tools": [plain]}, "lists plain, which is no tool; decorate it with @tool"),
        ({"tools": [search, search]}, "has two tools named 'search'"),
        ({"max_iterations": 0}, "max_iterations=0"),
        ({"max_iterations": True}, "max_iterations=True"),
        ({"revision": ""}, "revision=''"),
        ({"revision": "one two"}, "revision='one two'"),
    ],
)
def test_what_cannot_be_an_agent_is_refused_where_it_is_made(given, said):
    with pytest.raises(ConfigurationError, match=said):
        booking(**given)
