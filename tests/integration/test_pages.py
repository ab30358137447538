"""The examples of the pages below, each typed into a shell, and compared with what the page shows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.packages import ROOT
from tests.integration.fleet import CeleryFleet
from tests.integration.given import STATES, given
from tests.pages import fits, stories

pytestmark = pytest.mark.timeout(300)

PAGES = [ROOT / "docs" / name for name in ("cli.md", "people.md", "secrets.md")]
STORIES = [story for page in PAGES for story in stories(page)]
_PATIENCE = 120

AGENTS = '''
"""The agents of the pages' shop."""

from adk_worker import Agent, tool


@tool(effect="effectful")
def book(seat: str) -> str:
    """Book a seat."""
    return f"booked {seat}"


booking = Agent(name="booking", instructions="Book.", model="scripted:myshop.script:turns", tools=[book], revision="r1")
'''
SCRIPT = 'turns = ["Booked.", "Booked."]\n'


class Shell:
    """One shell in a reader's folder: what is typed into it finds what was done before."""

    def __init__(self, fleet):
        self._fleet = fleet
        ours = {
            "PYTHONPATH": f"{fleet.folder}{os.pathsep}{ROOT}",
            "XDG_RUNTIME_DIR": str(fleet.folder),
            "COLUMNS": "120",
            "ADK_TEST_FOLDER": None,
        }
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self._environment = fleet.environment(ADK_AGENTS="myshop.agents", PATH=path, **ours)
        self._before = ""

    def type(self, command):
        """What the command printed, and its exit code; the variables that it has set stay."""
        state = self._fleet.folder / "shell"
        script = f"{self._before}\n{command}\n__code=$?\ndeclare -px >{state}\nexit $__code\n"
        ran = subprocess.run(
            ["bash", "-c", script],
            check=False,
            cwd=self._fleet.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_PATIENCE,
        )
        # `$?` is the exit code of what was typed before.
        self._before = f"source {state}\n(exit {ran.returncode})"
        return ran.stdout, ran.returncode


@pytest.fixture
def fleet(tmp_path, migrated_sqlite_file, redis_url, orphan_guard):
    shutil.copy(migrated_sqlite_file, tmp_path / "runs.db")
    (tmp_path / "myshop").mkdir()
    (tmp_path / "myshop" / "agents.py").write_text(AGENTS)
    (tmp_path / "myshop" / "script.py").write_text(SCRIPT)
    fleet = CeleryFleet(tmp_path, redis_url, orphan_guard)
    yield fleet
    fleet.close()


def prepare(fleet, said):
    for what in (part.strip() for part in said.split(";")):
        if what == "a worker":
            path = f"{fleet.folder}{os.pathsep}{ROOT}"
            fleet.worker(PYTHONPATH=path, ADK_AGENTS="myshop.agents", ADK_ALIVE_DIR=str(fleet.folder / "adk-worker"))
        elif what == "what reaps":
            fleet.backstage()
        else:
            given(what, fleet.store_url)


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_an_example_prints_what_the_page_shows(fleet, story):
    prepare(fleet, story.given)
    shell = Shell(fleet)
    for block in story.blocks:
        if block.file is not None:
            (fleet.folder / block.file).write_text(block.text)
            continue
        dialogue = block.dialogue
        for typed, after in zip(dialogue, [*dialogue[1:], None], strict=True):
            printed, code = shell.type(typed.command)
            where = f"docs/{story.page}, the block at line {block.line}: $ {typed.command}"
            if typed.shown:
                shown = "\n".join(typed.shown)
                assert fits(typed.shown, printed), f"{where}\n--- shows\n{shown}\n--- prints\n{printed}"
            if after is None or after.command != "echo $?":
                assert code == 0, f"{where}\nends with {code}; show it with `$ echo $?`, or mend it\n{printed}"


def test_every_state_that_a_page_begins_with_is_one():
    named = {part.strip() for story in STORIES for part in story.given.split(";")}
    assert named <= {*STATES, "a worker", "what reaps"}
