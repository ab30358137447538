"""What docs/operations.md and docs/deploy.md say, as far as a machine can tell: they are taken literally."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from adk_worker.cli.exits import ExitCode
from adk_worker.settings import PREFIX, Settings
from adk_worker.transitions.runs import Attention
from stores.sql.migrate import upgrade
from tests.travel import ROOT

DOCS = ROOT / "docs"
PAGE = (DOCS / "operations.md").read_text()
BOTH = PAGE + (DOCS / "deploy.md").read_text()
QUERIES = re.findall(r"`(SELECT [^`]*)`", PAGE)


def test_every_attention_has_its_row():
    documented = set(re.findall(r"^\| `(\w+)` \| (?:parked|queued|waiting_approval|–) \|", PAGE, re.MULTILINE))

    assert documented == {attention.value for attention in Attention}


def test_every_setting_that_they_name_is_one():
    named = set(re.findall(rf"{PREFIX}[A-Z_]+", BOTH))

    assert {name.removeprefix(PREFIX).lower() for name in named} <= set(Settings.model_fields)


def test_the_defaults_that_they_give_are_the_settings_own():
    units = {"": 1, " s": 1, " KiB": 1024, " MiB": 1024 * 1024}
    rows = re.findall(rf"^\| `{PREFIX}([A-Z_]+)` \| ([0-9]+)( s| KiB| MiB|) \|", BOTH, re.MULTILINE)

    assert len(rows) >= 10
    for name, number, unit in rows:
        assert int(number) * units[unit] == Settings.model_fields[name.lower()].default, name


def test_every_exit_code_has_its_row():
    rows = {
        int(code)
        for row in re.findall(r"^\| ([0-9, ]+)(?: and above)? \|", PAGE, re.MULTILINE)
        for code in row.split(",")
    }

    assert {int(code) for code in ExitCode} <= rows


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_the_links_of_every_page_lead_somewhere(page: Path):
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", page.read_text()) if not target.startswith("https://")]

    assert targets
    for target in targets:
        file, _, heading = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        if not heading:
            assert found.exists(), target
            continue
        assert found.is_file(), target
        assert heading in _anchors(found.read_text()), target


def _anchors(page: str) -> set[str]:
    # As GitHub makes them: a mark at the beginning leaves the space behind it.
    headings = [line.lstrip("#").strip() for line in page.splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in headings}


def test_there_are_queries():
    assert len(QUERIES) >= 3


@pytest.mark.parametrize("query", QUERIES)
def test_its_queries_run_on_postgresql(postgres_url: str, query: str):
    upgrade(postgres_url)
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg2://"))
    try:
        with engine.connect() as connection:
            connection.execute(text(query)).all()
    finally:
        engine.dispose()
