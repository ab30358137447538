"""What docs/writing-a-store.md says to whoever writes a store: its code runs, its package is found by its URL."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.architecture.packages import ROOT

PAGE = (ROOT / "docs" / "writing-a-store.md").read_text()
PACKAGE = ROOT / "examples" / "filestore"
_IN_MEMORY = Path("/dev/shm")

_SUBMITS = """
import asyncio, sys
from adk_worker.runs import NewRun
from adk_worker.transitions.runs import FleetPolicy
from stores import open_stores

stores = open_stores(sys.argv[1])
new = NewRun("acme", "run_1", "booking", "book the flight")
print(asyncio.run(stores.runs.submit(new, policy=FleetPolicy())).ticket)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder in which the example's package is installed, as pip does it anywhere."""
    folder = tmp_path_factory.mktemp("site")
    quietly = ("-q", "--no-deps", "--no-build-isolation", "--no-index")
    ran = subprocess.run(
        [sys.executable, "-m", "pip", "install", *quietly, "--target", folder, PACKAGE],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


def _run(*arguments, folder, **environ):
    return subprocess.run(
        [sys.executable, *arguments],
        check=False,
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
    )


def _pytest(*arguments, folder, paths):
    options = ("-q", "-W", "error", "-p", "no:cacheprovider")
    return _run("-m", "pytest", *options, *arguments, folder=folder, PYTHONPATH=os.pathsep.join(map(str, paths)))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_somebody_elses_store_passes_the_suites_through_its_entry_point(site):
    """F1-F5, L1-L7: every suite, over a store that this project does not ship."""
    # It syncs every write, and no test can tell: none has the machine crash.
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None) as folder:
        options = ("--basetemp", f"{folder}/tests", "-o", "tmp_path_retention_policy=none")
        project = ("-c", PACKAGE / "pyproject.toml", PACKAGE / "tests")
        ran = _pytest(*options, *project, folder=PACKAGE, paths=(site, ROOT))

    assert ran.returncode == 0, ran.stdout + ran.stderr
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed is not None
    # All of them: as many as there are suites for, and not a few that were found by chance.
    assert int(passed[1]) > 500


def test_the_terminal_opens_somebody_elses_store_by_its_url(site, tmp_path):
    """What one process has submitted, another one lists."""
    url = f"file://{tmp_path}/runs.json"
    paths = f"{site}{os.pathsep}{ROOT}"
    submitted = _run("-c", _SUBMITS, url, folder=tmp_path, PYTHONPATH=paths)
    assert submitted.returncode == 0, submitted.stderr

    listed = _run("-m", "adk_worker.cli", "list", "--json", folder=tmp_path, PYTHONPATH=paths, ADK_STORE_URL=url)
    unknown = _run("-m", "adk_worker.cli", "list", folder=tmp_path, PYTHONPATH=str(ROOT), ADK_STORE_URL=url)

    assert listed.returncode == 0, listed.stderr
    run = json.loads(listed.stdout)
    assert (run["run_id"], run["status"]) == ("run_1", "queued")
    assert unknown.returncode != 0
    assert "no store is registered" in unknown.stderr


@pytest.mark.parametrize("url", ["file://", "file:///", "file://host/x", "file:relative", "file:///x?y=1"])
def test_a_url_that_names_no_file_is_refused(site, tmp_path, url):
    opened = f"from stores import open_stores; open_stores({url!r})"

    ran = _run("-c", opened, folder=tmp_path, PYTHONPATH=f"{site}{os.pathsep}{ROOT}")

    assert ran.returncode == 1
    assert "ConfigurationError" in ran.stderr


def test_the_pages_own_store_passes_its_suite(tmp_path):
    """L1-L7, L10, T1: the code of the page, as it stands there."""
    files = dict(re.findall(r"```python\n# (\w+\.py)[^\n]*\n(.*?)```", PAGE, re.DOTALL))
    assert set(files) == {"my_leases.py", "test_my_leases.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")

    ran = _pytest("--rootdir", tmp_path, tmp_path, folder=tmp_path, paths=(tmp_path, ROOT))

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_page_names_every_suite_and_no_other():
    import adk_worker.conformance  # noqa: PLC0415 - after pytest has learnt to rewrite its assertions

    named = set(re.findall(r"`(\w+Conformance)`", PAGE))

    assert named == set(adk_worker.conformance.__all__)
