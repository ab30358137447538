from __future__ import annotations

import subprocess
import sys
import traceback
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from adk_worker.errors import ConfigurationError
from adk_worker.memory import memory_stores
from adk_worker.runs import Stores
from stores import ENTRY_POINTS, known_schemes, open_stores, opening
from tests.architecture.packages import ROOT

SECRET = "hunter2"


@pytest.fixture
def register(monkeypatch):
    """Registers schemes as installed packages would."""
    points = []

    def found(**wanted):
        return EntryPoints(points).select(**wanted)

    monkeypatch.setattr(opening, "entry_points", found)
    return lambda scheme, target: points.append(EntryPoint(name=scheme, value=target, group=ENTRY_POINTS))


def open_theirs(url, **options):
    assert (url, options) == (f"theirs+fast://app:{SECRET}@host/db", {"pool_size": 3})
    return memory_stores()


def open_something(url):
    return {"url": url}


NOT_A_FUNCTION = 7


@pytest.mark.parametrize("url", ["memory://", " memory://\n", "MEMORY://"])
def test_memory_opens_a_bundle_of_its_own(url):
    first, second = open_stores(url), open_stores("memory://", pool_size=3, socket_timeout=1)

    assert isinstance(first, Stores)
    assert first.runs is not second.runs


@pytest.mark.parametrize("url", ["memory://name", "memory:///", "memory://?clock=1"])
def test_no_two_bundles_in_memory_share_a_name(url):
    with pytest.raises(ConfigurationError, match="memory://"):
        open_stores(url)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///{folder}/adk.db",
        "sqlite+pysqlite:///{folder}/adk.db",
        "postgresql://app:hunter2@127.0.0.1:1/db",
        "postgresql+psycopg2://app@127.0.0.1:1/db",
        "postgres://app@127.0.0.1:1/db",
        "redis://:hunter2@127.0.0.1:1/0",
        "rediss://app:hunter2@127.0.0.1:1",
        "redis+cluster://127.0.0.1:1",
    ],
)
def test_a_database_is_opened_without_being_reached(tmp_path, url):
    """Importing and opening do nothing: whether the store answers is what `verify` asks."""
    stores = open_stores(url.format(folder=tmp_path), pool_size=2, socket_timeout=3)

    assert isinstance(stores, Stores)
    assert list(tmp_path.iterdir()) == []


def test_a_scheme_of_somebody_elses_is_opened(register):
    register("theirs", f"{__name__}:open_theirs")

    assert isinstance(open_stores(f"theirs+fast://app:{SECRET}@host/db", pool_size=3), Stores)
    assert known_schemes() == ("memory", "postgres", "postgresql", "redis", "rediss", "sqlite", "theirs")


def test_an_unknown_scheme_is_told_of_those_that_are_known():
    with pytest.raises(ConfigurationError) as refused:
        open_stores(f"mysql://app:{SECRET}@host/db")

    assert "mysql://app:***@host/db" in str(refused.value)
    for told in ("memory://", "postgresql://", "sqlite://", ENTRY_POINTS):
        assert told in str(refused.value)


@pytest.mark.parametrize("url", ["", f"app:{SECRET}@host/db", f"://app:{SECRET}@host", f"postgresql:app:{SECRET}"])
def test_a_url_without_a_scheme_is_refused_and_not_repeated(url):
    with pytest.raises(ConfigurationError, match="ADK_STORE_URL") as refused:
        open_stores(url)

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("no_such_module_of_theirs:open", "no_such_module_of_theirs"),
        (f"{__name__}:no_such_function", "no_such_function"),
        (f"{__name__}:NOT_A_FUNCTION", "is not a function"),
        (f"{__name__}:open_something", "opened a dict"),
    ],
)
def test_a_broken_plugin_is_named(register, target, why):
    register("theirs", target)

    with pytest.raises(ConfigurationError, match="theirs://") as refused:
        open_stores(f"theirs://app:{SECRET}@host/db")

    assert why in str(refused.value)
    shown = "".join(traceback.format_exception(refused.value))
    assert SECRET not in shown.replace(f'open_stores(f"theirs://app:{SECRET}@host/db")', "")


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_a_plugin_that_fails_to_import_is_the_errors_cause(register, tmp_path, monkeypatch, error):
    (tmp_path / "theirs_broken.py").write_text(f"raise {error.__name__}('their own mistake')\n")
    monkeypatch.syspath_prepend(tmp_path)
    register("theirs", "theirs_broken:open")

    with pytest.raises(ConfigurationError, match="their own mistake") as refused:
        open_stores("theirs://host")

    assert isinstance(refused.value.__cause__, error)


def test_a_scheme_that_two_packages_bring_is_refused(register):
    register("theirs", f"{__name__}:open_theirs")
    register("theirs", f"{__name__}:open_something")

    with pytest.raises(ConfigurationError, match="more than once") as refused:
        open_stores("theirs://host")

    assert f"{__name__}:open_theirs" in str(refused.value)
    assert f"{__name__}:open_something" in str(refused.value)


@pytest.mark.parametrize("url", ["sqlite:///adk.db", "postgresql+psycopg2://app@127.0.0.1:1/db", "REDIS://127.0.0.1:1"])
def test_no_package_takes_one_of_our_schemes(register, url):
    for scheme in ("sqlite", "postgresql", "postgresql+psycopg2", "redis"):
        register(scheme, f"{__name__}:open_something")

    assert isinstance(open_stores(url), Stores)


def test_a_checkout_that_is_not_installed_opens_its_own_stores(register):
    """No entry point is registered here."""
    assert isinstance(open_stores("memory://"), Stores)
    assert known_schemes() == ("memory", "postgres", "postgresql", "redis", "rediss", "sqlite")


def test_a_store_that_cannot_hold_the_policys_checkpoints_is_refused_at_start_up():
    """C2: the error names both caps; a higher one in the URL is taken."""
    url = "redis://127.0.0.1:1/0?max_value_bytes="
    with pytest.raises(ConfigurationError) as refused:
        open_stores(f"{url}2000000", checkpoint_max_bytes=2_000_001)

    assert "2000000 bytes" in str(refused.value)
    assert "2000001" in str(refused.value)
    assert open_stores(f"{url}2000001", checkpoint_max_bytes=2_000_001).max_value_bytes == 2_000_001
    assert open_stores("memory://", checkpoint_max_bytes=2**60).max_value_bytes is None


def test_a_store_in_memory_needs_no_driver():
    code = (
        "import sys, stores; stores.open_stores('memory://'); "
        "sys.exit(any(name in sys.modules for name in ('sqlalchemy', 'psycopg2', 'redis')))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0
