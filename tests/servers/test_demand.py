from __future__ import annotations

import pytest

from tests.servers import ServerMissingError, binaries
from tests.servers.demand import or_skip


def missing():
    raise ServerMissingError("postgresql")


def test_at_a_desk_a_missing_server_skips_the_test(monkeypatch):
    monkeypatch.delenv("CI", raising=False)

    with pytest.raises(pytest.skip.Exception, match="apt-get install postgresql"):
        or_skip(missing)


def test_in_ci_a_missing_server_fails_the_test(monkeypatch):
    monkeypatch.setenv("CI", "true")

    with pytest.raises(pytest.fail.Exception, match="postgresql is not installed"):
        or_skip(missing)


def test_what_is_missing_is_named_by_its_package(monkeypatch):
    monkeypatch.setattr(binaries.shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(binaries.Path, "glob", lambda *_: iter(()))
    monkeypatch.setattr(binaries.Path, "is_file", lambda *_: False)

    assert binaries.missing_packages() == ["postgresql", "redis-server", "rabbitmq-server", "pgbouncer"]


def test_the_newest_of_several_installed_servers_is_taken(monkeypatch, tmp_path):
    for version in ("9.6", "14", "16"):
        folder = tmp_path / version / "bin"
        folder.mkdir(parents=True)
        for program in ("postgres", "initdb"):
            (folder / program).touch()
    monkeypatch.setattr(binaries.shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(binaries.Path, "glob", lambda *_: (path / "bin" for path in tmp_path.iterdir()))

    assert binaries.find_postgres() == tmp_path / "16" / "bin"
