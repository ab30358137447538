"""The suites see every lie that a store is known to tell, and run in somebody else's project."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from xml.etree import ElementTree as ET

import pytest

from tests.architecture.packages import ROOT
from tests.conformance.liars.suites import LIES, class_of

_SUITES = "tests/conformance/liars/suites.py"
_BROKEN = ("AttributeError", "ImportError", "IndexError", "KeyError", "NameError", "TypeError")


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """The names of the tests that failed, by the liar's class: the published suites, run over all liars by pytest."""
    report = tmp_path_factory.mktemp("liars") / "report.xml"
    wanted = sorted({f"{_SUITES}::{class_of(lie)}::{lie.seen_by}" for lie in LIES})
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", f"--junitxml={report}", *wanted],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    seen = defaultdict(set)
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - of our own making
        if (failure := case.find("failure")) is not None:
            # A liar that merely breaks has told no lie.
            assert not failure.get("message", "").startswith(_BROKEN), ET.tostring(case)
            seen[case.get("classname", "").rpartition(".")[2]].add(case.get("name", "").partition("[")[0])
    return seen


@pytest.mark.timeout(300)
@pytest.mark.parametrize("lie", LIES, ids=lambda lie: f"{class_of(lie)}-{lie.seen_by}")
def test_a_store_that_lies_is_seen(lie, failed):
    """F1, F4, F5, C2, C3, C5, C6, H2, H3, I1, I3, I4, I7, I9, L1-L7, L10, P1-P3, T1, T2: by the test that says so."""
    assert lie.seen_by in failed[class_of(lie)]


_ELSEWHERE = """
import pytest
import pytest_asyncio
from adk_worker.conformance import LeaseStoreConformance
from adk_worker.memory import MemoryLeaseStore

class TestTheirs(LeaseStoreConformance):
    @pytest.fixture
    def make_store(self):
        return MemoryLeaseStore

class TestTheirsAwaited(LeaseStoreConformance):
    @pytest_asyncio.fixture
    async def make_store(self):
        async def opened():
            return MemoryLeaseStore()

        yield opened
"""


def test_the_suites_run_in_somebody_elses_project(tmp_path):
    """Without a line of this project's configuration: in pytest-asyncio's strict mode, which is its default."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    (tmp_path / "test_theirs.py").write_text(_ELSEWHERE)

    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-W",
            "error",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            tmp_path,
            tmp_path,
        ],
        check=False,
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout


def test_an_assertion_that_fails_shows_its_values():
    """Every module of the suites that asserts is rewritten by pytest, as a test's own module is."""
    folder = ROOT / "adk_worker" / "conformance"
    asserting = {
        "adk_worker.conformance." + ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if "assert " in path.read_text()
    }

    plain = {name for name in asserting if not hasattr(sys.modules[name], "@pytest_ar")}

    assert plain == set()


def test_a_suite_without_a_store_says_what_is_missing(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_theirs.py").write_text(
        "from adk_worker.conformance import HistoryStoreConformance\nclass TestTheirs(HistoryStoreConformance): pass\n"
    )

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path],
        check=False,
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 1
    assert "override the fixture `make_store`" in ran.stdout
