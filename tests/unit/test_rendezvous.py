"""How one terminal finds the fleet of another."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace

import pytest

from adk_worker.cli.rendezvous import DevFleet, announced, find, running, told
from adk_worker.cli.source import FromSettings
from adk_worker.errors import ConfigurationError
from adk_worker.liveness import Holder
from adk_worker.settings import Settings


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path, monkeypatch):
    folder = tmp_path / "runtime"
    folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


def a_fleet(folder, holder=None):
    return DevFleet(str(folder), holder or str(Holder.new("dev")), {"ADK_STORE_URL": f"sqlite:///{folder}/adk.db"})


def of_another_process(fleet, pid):
    """The same fleet under a number of its own: the files are named by it."""
    holder = Holder.parse(fleet.holder)
    process = replace(holder.process, pid=pid, started="")
    return replace(fleet, holder=str(replace(holder, process=process)))


def test_a_fleet_is_found_for_as_long_as_it_runs(tmp_path, runtime_folder):
    with announced(a_fleet(tmp_path)) as file:
        assert find(tmp_path) == a_fleet(tmp_path, find(tmp_path).holder)
        assert find(tmp_path).pid == os.getpid()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert find(tmp_path) is None
    assert [file for file in runtime_folder.rglob("*") if file.is_file()] == []


def test_the_fleet_of_the_folder_is_meant_before_any_other(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    with announced(a_fleet(here)), announced(of_another_process(a_fleet(there), 1)):
        assert find(here).folder == str(here)
        assert find(there).folder == str(there)
        with pytest.raises(ConfigurationError, match=r"several fleets of adk dev run:\n  pid 1 in .*there"):
            find(tmp_path)


def test_the_only_fleet_is_found_from_anywhere(tmp_path):
    with announced(a_fleet(tmp_path / "there")):
        assert find(tmp_path).folder == str(tmp_path / "there")


def test_what_a_killed_fleet_has_left_behind_is_nobodys(tmp_path):
    """I11: it is known dead."""
    named = "from adk_worker.liveness import Holder; print(Holder.new('dev'))"
    died = subprocess.run([sys.executable, "-c", named], check=True, capture_output=True, text=True).stdout.strip()
    with announced(a_fleet(tmp_path, died)) as file:
        assert running() == []
        assert not file.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"folder": 1}'])
def test_a_file_that_is_none_of_ours_is_passed_over(tmp_path, text):
    with announced(a_fleet(tmp_path)) as file:
        file.with_name("1.dev.json").write_text(text)
        assert [fleet.folder for fleet in running()] == [str(tmp_path)]


def test_a_folder_to_which_others_may_write_is_not_trusted(tmp_path, runtime_folder):
    """Whoever writes there says where runs, and their secrets, are sent to."""
    with announced(a_fleet(tmp_path)):
        (runtime_folder / "adk-worker").chmod(0o777)
        assert running() == []
        with pytest.raises(ConfigurationError), announced(a_fleet(tmp_path)):
            pass


def test_without_a_runtime_folder_it_is_in_the_temporary_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with announced(a_fleet(tmp_path)) as file:
        assert file.parent.parent == tmp_path
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_fleets_settings_are_read_as_its_own_programs_read_them(tmp_path, monkeypatch):
    """JSON too; what is empty or no setting is passed over, and the environment of this terminal comes first."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"ADK_{name.upper()}", raising=False)
    told = {
        "ADK_STORE_URL": "sqlite:///a.db",
        "ADK_AGENTS": "shop.agents,shop.refunds",
        "ADK_MODEL_ENDPOINTS": '{"vllm": {"base_url": "http://vllm:8000/v1"}}',
        "ADK_REDACT_PATTERNS": '["shop_[a-z]{8}"]',
        "ADK_LEASE_TTL": "6",
        "ADK_REAP_EVERY": "7",
        "ADK_MODEL_PRICES": "",
        "ADK_VENV": "/somewhere",
    }
    monkeypatch.setenv("ADK_REAP_EVERY", "3")

    with announced(replace(a_fleet(tmp_path), environment=told)):
        settings, of_dev = FromSettings.settings()

    assert of_dev
    assert (settings.store_url, settings.agents) == ("sqlite:///a.db", ("shop.agents", "shop.refunds"))
    assert settings.model_endpoints["vllm"].base_url == "http://vllm:8000/v1"
    assert settings.redact_patterns == ("shop_[a-z]{8}",)
    assert (settings.lease_ttl, settings.reap_every, settings.model_prices) == (6, 3, {})


def test_no_key_of_the_environment_is_told():
    """R2: neither the seal's nor a model server's. Where the server is, is told."""
    endpoints = {"vllm": {"base_url": "http://vllm:8000/v1", "api_key": "sk-secret"}}
    environment = {
        "ADK_LEASE_TTL": "6",
        "ADK_SEAL_KEYS": "one:c2VjcmV0",
        "ADK_MODEL_ENDPOINTS": json.dumps(endpoints),
        "OPENAI_API_KEY": "sk-secret",
    }

    said = told(environment)

    assert set(said) == {"ADK_LEASE_TTL", "ADK_MODEL_ENDPOINTS"}
    assert json.loads(said["ADK_MODEL_ENDPOINTS"]) == {"vllm": {"base_url": "http://vllm:8000/v1"}}
    assert told({"ADK_MODEL_ENDPOINTS": ""}) == {"ADK_MODEL_ENDPOINTS": ""}
