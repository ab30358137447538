"""Which kind of store ``adk db upgrade`` makes, by the URL's scheme."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from adk_worker.errors import ConfigurationError
from stores import opening
from stores.upgrading import migrator


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("postgresql+psycopg2://app@db/x", "stores.sql.migrate"),
        (" SQLITE:///a.db", "stores.sql.migrate"),
        ("redis://a:1/0", "stores.redis.migrate"),
        ("rediss+cluster://a:1/0", "stores.redis.migrate"),
    ],
)
def test_each_of_our_schemes_has_its_migrator(url, kind):
    assert migrator(url).__name__ == kind


def test_a_store_of_another_package_is_said_to_be_that_packages_to_make(monkeypatch):
    file = EntryPoint(name="file", value="their:open_file", group=opening.ENTRY_POINTS)
    monkeypatch.setattr(opening, "entry_points", lambda **_: [file])

    with pytest.raises(ConfigurationError, match="What a store of file:// needs"):
        migrator("file:///var/lib/runs.json")


def test_a_store_in_memory_is_nothing_to_make():
    with pytest.raises(ConfigurationError, match="PostgreSQL, SQLite and Redis"):
        migrator("memory://")
