from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest

from tests.architecture.packages import PACKAGES, ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT],
        check=False,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.glob("adk_worker-*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_the_wheel_brings_three_packages_and_nothing_else(wheel):
    """A top-level celeryconfig would be loaded by other people's Celery apps, a top-level alembic shadow theirs."""
    names = {name.partition("/")[0] for name in wheel.namelist()}

    assert {name for name in names if not name.endswith(".dist-info")} == set(PACKAGES)


def test_the_wheel_brings_every_source_file(wheel):
    ours = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for kind in ("*.py", "*.lua", "*.json")
        for path in (ROOT / package).rglob(kind)
    }

    assert ours - set(wheel.namelist()) == set()


def test_the_wheel_brings_the_migrations(wheel):
    here = {str(path.relative_to(ROOT / "alembic")) for path in (ROOT / "alembic").rglob("*.py")}
    there = {name.removeprefix("adk_worker/_migrations/") for name in wheel.namelist() if "/_migrations/" in name}

    assert "env.py" in there
    assert here - there == set()
    assert not any(name.endswith(".pyc") for name in wheel.namelist())


@pytest.mark.parametrize("package", PACKAGES)
def test_the_wheel_says_that_its_packages_are_typed(wheel, package):
    assert f"{package}/py.typed" in wheel.namelist()


def test_the_wheel_carries_its_licence(wheel):
    (licence,) = (name for name in wheel.namelist() if name.endswith("/licenses/LICENSE"))

    assert wheel.read(licence).startswith(b"MIT License")
