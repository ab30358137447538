from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections import Counter

import pytest

from adk_worker.conformance import RunStoreConformance
from tests.architecture.packages import PACKAGES, ROOT, modules

_LONGEST = 450


def test_alembic_is_no_package():
    """With an `__init__.py`, the folder would shadow the library of that name for all that runs in the checkout."""
    assert not (ROOT / "alembic" / "__init__.py").exists()
    assert "site-packages" in str(importlib.import_module("alembic").__file__)


@pytest.mark.parametrize("taken", ["stores", "tasks", "alembic"])
def test_no_folder_of_tests_is_called_like_a_package(taken):
    assert not (ROOT / "tests" / taken).exists()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_that_it_is_typed(package):
    assert (ROOT / package / "py.typed").is_file()


def test_a_module_answers_one_question():
    """At about 400 lines ask for the second one in it; here is the hard stop."""
    long = {
        str(path.relative_to(ROOT)): lines
        for folder in (*PACKAGES, "examples", "benchmarks", "alembic")
        for path in (ROOT / folder).rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > _LONGEST
    }

    assert long == {}


def only_told(folder):
    """Whether the package's own text only tells what is in it: names are imported from its modules."""
    body = ast.parse((folder / "__init__.py").read_text()).body
    return len(body) == 1 and isinstance(body[0], ast.Expr)


TOLD = sorted(text.parent for text in (ROOT / "adk_worker").glob("*/__init__.py") if only_told(text.parent))


@pytest.mark.parametrize("folder", TOLD, ids=lambda folder: folder.name)
def test_a_package_tells_of_each_of_its_modules(folder):
    told = (folder / "__init__.py").read_text()
    names = {path.stem for path in folder.glob("*.py")} - {"__init__"}

    assert names
    assert names - set(re.findall(rf"`~adk_worker\.{folder.name}\.(\w+)", told)) == set()


@pytest.mark.parametrize("name", modules())
def test_every_public_name_is_there(name):
    """Ruff keeps `__all__` sorted (RUF022) and free of names that nothing defines; this holds lazily made ones too."""
    module = importlib.import_module(name)
    names = getattr(module, "__all__", [])

    assert [name for name in names if not hasattr(module, name)] == []
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_every_entry_point_opens():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    for target in project["scripts"].values():
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name)), target


def test_no_suite_of_runs_hides_a_test_of_another():
    """They are one class in the end, where two tests of one name are one test."""
    suites = RunStoreConformance.__bases__
    names = Counter(name for suite in suites for name in vars(suite) if name.startswith("test_"))
    assert {name for name, times in names.items() if times > 1} == set()
