"""`adk seal`, as a process: what an operator sees of keys, and what nobody does."""

from __future__ import annotations

import json
import stat

import pytest

from adk_worker.sealing import SealKey, SealKeys
from tests.integration.test_cli import Adk

KEY = SealKey.new("k1")


@pytest.fixture
def adk(tmp_path):
    return Adk(tmp_path, ADK_STORE_URL=f"sqlite:///{tmp_path}/none.db")


def test_a_key_is_printed_as_the_settings_take_it(adk):
    """R2: a new one each time; what is said about it goes elsewhere."""
    texts = [adk("seal", "keys", "new").stdout for _ in range(2)]
    assert len(set(SealKeys.parse(texts).ids)) == 2
    ran = adk("seal", "keys", "new", "--json", "--id", "k9")
    assert SealKeys.parse([json.loads(ran.stdout)["key"]]).ids == ("k9",)


def test_a_key_that_goes_into_a_file_is_shown_to_nobody(adk, tmp_path):
    """R2: the file is its owner's alone."""
    file = tmp_path / "adk.keys"
    ran = [adk("seal", "keys", "new", "--file", "adk.keys", "--id", key_id, *more) for key_id, more in
           (("k1", ()), ("k2", ("--json",)))]  # fmt: skip
    assert [one.returncode for one in ran] == [0, 0]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    keys = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    shown = "".join(one.stdout + one.stderr for one in ran)
    assert not [key for key in keys if key.partition(":")[2] in shown]
    listed = adk("seal", "keys", "list", "--json", ADK_SEAL_KEYS_FILE=str(file))
    assert [json.loads(line) for line in listed.stdout.splitlines()] == [
        {"id": "k1", "seals": True},
        {"id": "k2", "seals": False},
    ]
    again = adk("seal", "keys", "new", "--file", "adk.keys", "--id", "k1")
    assert (again.returncode, "two seal keys with the id 'k1'" in again.stderr) == (78, True)


def test_without_keys_it_says_how_to_make_one(adk):
    ran = adk("seal", "keys", "list")
    assert (ran.returncode, ran.stdout) == (0, "")
    assert "`adk seal keys new` makes one" in ran.stderr


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"ADK_SEAL_KEYS": KEY.text.partition(":")[2]}, "seal key number 1 cannot be read: it has to be ID:SECRET"),
        ({"ADK_SEAL_KEYS": f"{KEY.text},{KEY.text}"}, "two seal keys with the id 'k1'"),
        ({"ADK_SEAL_KEYS": KEY.text[:20]}, "seal key"),
        ({"ADK_SEAL_KEYS": KEY.text, "ADK_SEAL_KEYS_FILE": "x"}, "ADK_SEAL_KEYS and ADK_SEAL_KEYS_FILE are both set"),
        ({"ADK_SEAL_KEYS_FILE": "none.keys"}, "adk seal keys new --file none.keys"),
    ],
)
@pytest.mark.parametrize("command", [("seal", "keys", "list"), ("run", "booking", "x", "--tenant", "acme")])
def test_keys_that_cannot_be_read_are_told_and_not_shown(adk, settings, says, command):
    """R2: before anything is submitted."""
    ran = adk(*command, ADK_BROKER_URL="redis://127.0.0.1:1/0", **settings)
    assert ran.returncode == 78, ran.stderr
    assert says in ran.stderr
    assert KEY.text.partition(":")[2][:12] not in ran.stderr + ran.stdout
