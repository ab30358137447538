from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.architecture.packages import ROOT

LOCKS = ("runtime", "checks")


def read(lock):
    return (ROOT / "requirements" / f"{lock}.lock").read_text()


def pins(lock):
    return {
        name: Version(version) for name, version in re.findall(r"^([\w.-]+)==([^\s;\\]+)", read(lock), re.MULTILINE)
    }


def asked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras, groups = project["project"]["optional-dependencies"], project["dependency-groups"]
    runtime = [*project["project"]["dependencies"], *extras["embedded"], *extras["flower"], *groups["build"]]
    return {"runtime": runtime, "checks": [*runtime, *extras["models"], *extras["test"], *groups["checks"]]}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_all_that_the_project_asks_for_in_versions_that_fit(lock):
    """If not: scripts/lock."""
    locked = pins(lock)

    for requirement in map(Requirement, asked_for()[lock]):
        assert locked[requirement.name.lower()] in requirement.specifier, requirement


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_its_hashes(lock):
    entries = re.split(r"^(?=[\w.-]+==)", read(lock), flags=re.MULTILINE)[1:]

    assert len(entries) == len(pins(lock))
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_index(lock):
    assert "://" not in read(lock)
    assert "index-url" not in read(lock)


def test_what_is_tested_is_what_is_deployed():
    checks = pins("checks")

    assert {name: checks.get(name) for name in pins("runtime")} == pins("runtime")
