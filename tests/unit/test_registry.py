from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import pytest

from adk_worker.agent import Agent
from adk_worker.errors import AgentImportError, ConfigurationError, RevisionMismatchError, UnknownAgentError
from adk_worker.registry import Registry

_HEAD = "from adk_worker.agent import Agent\n"
_numbers = itertools.count()


def an_agent(name: str = "booking", **given) -> Agent:
    return Agent(name, "Book flights.", "scripted:m:a", **given)


@pytest.fixture
def module(tmp_path, monkeypatch) -> Callable[[str], str]:
    """Write a module of agents; its name, which no other test uses."""
    monkeypatch.syspath_prepend(tmp_path)
    written: list[str] = []

    def write(source: str) -> str:
        name = f"agents_of_test_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(source)
        written.append(name)
        return name

    yield write
    for name in written:
        sys.modules.pop(name, None)


# --- by name and revision ------------------------------------------------------------------------------------------


def test_several_revisions_of_one_agent_stand_side_by_side_and_new_runs_take_the_last():
    """C7."""
    old, new = an_agent(revision="1"), an_agent(revision="2")
    registry = Registry([old, new, an_agent("selling")])

    assert registry.get("booking") is new
    assert registry.resolve("booking", "1") is old
    assert registry.resolve("booking", "2") is new
    assert registry.revisions("booking") == ("1", "2")
    assert registry.names == ("booking", "selling")
    assert len(registry) == len(list(registry)) == 3


def test_a_run_of_another_revision_is_refused_by_name():
    """C7."""
    registry = Registry([an_agent(revision="1"), an_agent(revision="2")])

    with pytest.raises(RevisionMismatchError) as caught:
        registry.resolve("booking", "3")

    assert (caught.value.agent, caught.value.pinned, caught.value.registered) == ("booking", "3", ("1", "2"))


def test_an_unknown_agent_is_an_error_that_lists_the_known_ones():
    registry = Registry([an_agent(), an_agent("selling")])

    with pytest.raises(UnknownAgentError) as asked:
        registry.get("no")
    with pytest.raises(UnknownAgentError) as pinned:
        registry.resolve("no", "1")

    assert asked.value.known == pinned.value.known == ("booking", "selling")


def test_two_different_agents_of_one_name_and_revision_are_refused():
    """C7: a run's pin would say nothing."""
    with pytest.raises(ConfigurationError, match="two different agents are named 'booking'"):
        Registry([an_agent(), an_agent()])


def test_one_agent_that_comes_twice_counts_once():
    agent = an_agent()

    assert len(Registry([agent, agent])) == 1


# --- from modules --------------------------------------------------------------------------------------------------


def test_a_modules_agents_are_its_public_names_and_its_list(module):
    name = module(
        _HEAD
        + "booking = Agent('booking', '', 'scripted:m:a')\n"
        + "_draft = Agent('draft', '', 'scripted:m:a')\n"
        + "agents = [booking, Agent('selling', '', 'scripted:m:a')]\n"
    )

    assert Registry.load([name]).names == ("booking", "selling")


def test_an_agent_that_several_modules_import_counts_once(module):
    first = module(_HEAD + "booking = Agent('booking', '', 'scripted:m:a')\n")
    second = module(f"from {first} import booking\n")

    assert len(Registry.load([first, second, first])) == 1


def test_agents_of_several_modules_that_are_at_odds_are_refused(module):
    """C7."""
    source = _HEAD + "booking = Agent('booking', '', 'scripted:m:a')\n"

    with pytest.raises(ConfigurationError, match="two different agents"):
        Registry.load([module(source), module(source)])


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def broken(:\n", "SyntaxError: invalid syntax"),
        ("import no_such_package\n", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("raise RuntimeError('no database')\n", "RuntimeError: no database"),
        ("raise SystemExit('bye')\n", "SystemExit: bye"),
        ("assert False\n", "AssertionError"),
        (_HEAD + "Agent('a b', '', 'm')\n", "ConfigurationError: 'a b' cannot name an agent"),
    ],
)
def test_a_module_that_does_not_import_is_named_with_the_reason(module, source, reason):
    name = module(source)

    with pytest.raises(AgentImportError) as caught:
        Registry.load([name])

    assert caught.value.module == name
    assert reason in caught.value.reason
    assert "ADK_AGENTS" in str(caught.value)


@pytest.mark.parametrize("name", ["", ".agents", "my-shop", "my shop", "a..b", "myshop/agents.py", "no_such_module"])
def test_a_name_that_is_no_module_is_named(name):
    with pytest.raises(AgentImportError) as caught:
        Registry.load([name])

    assert caught.value.module == name


@pytest.mark.parametrize(
    ("source", "said"),
    [("number = 1\n", "has no agents"), ("agents = ['booking']\n", "lists a str, which is no Agent")],
)
def test_a_module_without_agents_is_named(module, source, said):
    name = module(source)

    with pytest.raises(ConfigurationError, match=said) as caught:
        Registry.load([name])

    assert name in str(caught.value)


def test_no_modules_make_an_empty_registry():
    assert list(Registry.load([])) == []
