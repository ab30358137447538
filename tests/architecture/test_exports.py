"""The flat names of a package, whose modules are imported when a name is first asked for."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.packages import ROOT

PACKAGES = ("adk_worker", "adk_worker.providers")


def declared(package):
    """The names for those who read the package's text: editors, mypy. By the module that each is imported from."""
    tree = ast.parse(Path(package.__file__).read_text())
    (seen,) = (node for node in tree.body if isinstance(node, ast.If))
    return {
        name.name: node.module.removeprefix(f"{package.__name__}.")
        for node in seen.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }


@pytest.mark.parametrize("name", PACKAGES)
def test_what_is_declared_is_what_is_there(name):
    """A new name stands in three places: the imports for readers, ``__all__``, and the table of modules."""
    package = importlib.import_module(name)
    table = {one: module for module, said in package.NAMES.items() for one in said.split()}

    assert declared(package) == table
    assert set(package.__all__) == set(table)
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = package.no_such_name


@pytest.mark.parametrize("name", PACKAGES)
def test_no_name_is_a_module_s_own(name):
    """Importing that module would put it in the name's place, and which of the two one gets would depend on others."""
    package = importlib.import_module(name)

    assert {module.name for module in pkgutil.iter_modules(package.__path__)}.isdisjoint(package.__all__)


def test_a_name_is_the_same_whatever_was_imported_before():
    code = """
import importlib, json, pkgutil, adk_worker
for module in pkgutil.iter_modules(adk_worker.__path__):
    if module.name not in {"cli", "conformance", "_migrations"}:
        importlib.import_module(f"adk_worker.{module.name}")
homes = {name: module for module, said in adk_worker.NAMES.items() for name in said.split()}
other = [name for name in adk_worker.__all__
         if getattr(adk_worker, name) is not getattr(importlib.import_module(f"adk_worker.{homes[name]}"), name)]
print(json.dumps(other))
"""
    ran = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
    assert json.loads(ran.stdout) == []


def test_importing_the_kit_imports_nothing_of_it():
    code = "import adk_worker, json, sys; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
    loaded = json.loads(ran.stdout)

    assert [name for name in loaded if name.startswith("adk_worker.")] == ["adk_worker.exports"]
    assert "pydantic" not in loaded
