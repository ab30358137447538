"""`adk seal`, as a process: what an operator sees of keys, and what nobody does."""

from __future__ import annotations

import json
import stat

import pytest

from adk_worker.sealing.keys import SealKey, SealKeys
from tests.integration.given import given
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


def test_keys_are_listed_where_no_store_is_named_yet(adk):
    """It asks none; and the keys are made before the rest is set up."""
    ran = adk("seal", "keys", "list", ADK_STORE_URL="", ADK_SEAL_KEYS=KEY.text)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "k1  seals and opens\n", "")


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


class TestRotating:
    """R2: the old key can be dropped once nothing needs it."""

    NEW, OLD = SealKey("new", b"n" * 32), SealKey("old", bytes(32))

    @pytest.fixture
    def sealing(self, tmp_path, sqlite_store_url):
        return Adk(tmp_path, ADK_STORE_URL=sqlite_store_url, ADK_SEAL_KEYS=f"{self.NEW.text},{self.OLD.text}")

    def test_it_says_what_is_still_needed_by_whom(self, sealing, sqlite_store_url):
        given("sealed", sqlite_store_url)
        given("sealed", sqlite_store_url, run_id="moved")
        lacking = sealing("seal", "rotate", ADK_SEAL_KEYS=self.NEW.text)
        assert lacking.returncode == 4
        assert "key old is still needed by 2 runs" in lacking.stdout
        assert [line.split() for line in lacking.stdout.splitlines() if "unopened" in line] == [
            ["acme", "moved", "parked", "unopened", "old"],
            ["acme", "run_1", "parked", "unopened", "old"],
        ]
        short = sealing("seal", "rotate", "--limit", "1", ADK_SEAL_KEYS=self.NEW.text)
        assert "--limit names more than 1 of 2" in short.stderr

        done = sealing("seal", "rotate")
        assert done.returncode == 0, done.stderr
        assert "2 runs sealed anew under new" in done.stdout
        assert "key old is needed by no run: it can be dropped" in done.stdout
        again = sealing("seal", "rotate", "--json", ADK_SEAL_KEYS=self.NEW.text)
        assert (again.returncode, json.loads(again.stdout)["current"]) == (0, 2)

    def test_of_one_tenant_it_says_that_of_that_tenant_alone(self, sealing, sqlite_store_url):
        """T1: another's may need the key."""
        given("sealed", sqlite_store_url)
        ran = sealing("seal", "rotate", "--tenant", "globex")
        assert (ran.returncode, "it can be dropped" in ran.stdout) == (0, False)
        assert "key old is needed by no run of that tenant" in ran.stdout

    def test_without_a_key_there_is_nothing_to_rotate_to(self, sealing):
        ran = sealing("seal", "rotate", ADK_SEAL_KEYS="")
        assert (ran.returncode, "set ADK_SEAL_KEYS or ADK_SEAL_KEYS_FILE" in ran.stderr) == (78, True)
