"""What ``--json`` prints has a published schema, for every command that has the option."""

from __future__ import annotations

import json
import re

import click
import jsonschema
import pytest

from adk_worker.cli import main, schemas
from adk_worker.cli.answers import ANSWERS
from adk_worker.cli.root import COMMANDS, root
from tests import schemas as making
from tests.architecture.packages import ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text()


def commands(group=root, path=()):
    """Each command that carries something out, by how it is typed."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def with_json():
    return {path for path, command in commands() if any(param.name == "as_json" for param in command.params)}


def test_every_command_with_json_has_its_model():
    """A new one: give it a model in adk_worker/cli/answers, and run scripts/schemas."""
    assert set(ANSWERS) == with_json()


def test_every_command_that_has_an_answer_takes_json():
    """``schema`` prints JSON as it is, and ``dev`` what its processes print."""
    assert {path for path, _ in commands()} - with_json() == {"dev", "schema"}


def test_the_published_schemas_are_those_of_the_models():
    """If not: scripts/schemas."""
    made = making.made()
    found = {name + ".json": schemas.read(name) for name in schemas.published()}
    assert found.keys() == made.keys()
    for name, text in made.items():
        assert found[name] == text, f"{name} is not what its model says: run scripts/schemas"


@pytest.mark.parametrize("command", sorted(ANSWERS))
def test_a_published_schema_is_one_and_is_printed(capsys, command):
    assert main(["schema", *command.split()]) == 0
    out, err = capsys.readouterr()
    jsonschema.Draft202012Validator.check_schema(json.loads(out))
    assert err == ""


def test_a_command_without_a_schema_is_told_which_have_one(capsys):
    assert main(["schema", "dev"]) == 2
    assert "no schema of 'dev': there are those of alive, approvals" in capsys.readouterr().err


def test_every_command_and_option_stands_on_its_page():
    sections = {part.partition("\n")[0].strip(): part for part in PAGE.split("\n## ")}
    for path, command in commands():
        section = sections.get(f"adk {path}") or sections[f"adk {path.split()[0]}"]
        resume = sections["adk run --resume"] if path == "run" else ""
        for param in command.params:
            if isinstance(param, click.Option) and param.name not in {"as_json", "debug", "help"}:
                for name in param.opts:
                    assert re.search(rf"{name}\b", section + resume), f"docs/cli.md does not tell of adk {path} {name}"


def test_every_command_is_where_it_is_looked_for():
    for name in COMMANDS:
        assert root.get_command(click.Context(root), name).name == name


@pytest.mark.parametrize("path", sorted(path for path, _ in commands()))
def test_every_help_keeps_its_lines_and_says_what_a_number_is_called(capsys, path):
    r"""In a raw docstring ``\b`` is no backspace: click then prints it, and runs the examples behind it together."""
    assert main([*path.split(), "--help"]) == 0
    said = capsys.readouterr().out
    assert "\\b" not in said
    assert " RANGE" not in said, "give its option a metavar"
