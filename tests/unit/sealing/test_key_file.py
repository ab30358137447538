"""Files of seal keys: nobody else's to read, and never half written."""

from __future__ import annotations

import os
import stat

import pytest

from adk_worker.errors import ConfigurationError
from adk_worker.sealing.key_file import add_key, make_keys, read_keys
from adk_worker.sealing.keys import SealKey, SealKeys

OLD, NEW = SealKey.new("old"), SealKey.new("new")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "adk.keys"


def mode(file):
    return stat.S_IMODE(file.stat().st_mode)


@pytest.fixture(params=[0o000, 0o077], ids=["umask 000", "umask 077"])
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_a_file_that_is_made_is_its_owner_s_alone_whatever_the_umask(file):
    assert make_keys(file, OLD)
    assert mode(file) == 0o600
    assert read_keys(file) == SealKeys((OLD,))


def test_a_file_that_is_there_is_not_made_anew(file):
    make_keys(file, OLD)
    assert not make_keys(file, NEW)
    assert read_keys(file) == SealKeys((OLD,))


@pytest.mark.usefixtures("umask")
def test_a_key_is_added_behind_those_there_are(file):
    """So that other processes can open what it seals before any of them seals with it."""
    assert add_key(file, OLD) == SealKeys((OLD,))
    file.write_text(file.read_text().rstrip("\n") + "  \n\n# the year's")
    assert add_key(file, NEW) == SealKeys((OLD, NEW)) == read_keys(file)
    assert mode(file) == 0o600
    assert "# the year's\n" in file.read_text()
    assert [found.name for found in file.parent.iterdir()] == ["adk.keys"]


def test_a_key_of_an_id_that_is_taken_is_not_added(file):
    make_keys(file, OLD)
    before = file.read_text()
    with pytest.raises(ConfigurationError, match="two seal keys"):
        add_key(file, SealKey.new("old"))
    assert file.read_text() == before


@pytest.mark.parametrize("shared", [0o644, 0o640, 0o604, 0o660, 0o602, 0o610])
def test_one_that_others_may_touch_is_refused_with_what_to_do(file, shared):
    make_keys(file, OLD)
    file.chmod(shared)
    with pytest.raises(ConfigurationError, match=rf"mode is {shared:04o}.*chmod 600 {file}"):
        read_keys(file)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        add_key(file, NEW)


@pytest.mark.skipif(os.getuid() != 0, reason="gives a file to root")
@pytest.mark.parametrize(("shared", "taken"), [(0o440, True), (0o444, False), (0o460, False)])
def test_one_of_root_s_may_be_read_by_a_group(file, monkeypatch, shared, taken):
    """As a platform mounts secrets for a process that is not root."""
    make_keys(file, OLD)
    file.chmod(shared)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    if taken:
        assert read_keys(file) == SealKeys((OLD,))
    else:
        with pytest.raises(ConfigurationError, match="chmod"):
            read_keys(file)


def test_one_that_is_missing_is_refused_with_what_makes_it(file):
    with pytest.raises(ConfigurationError, match="adk seal keys new --file"):
        read_keys(file)


def test_what_is_no_file_of_keys_is_refused_and_not_repeated(file, tmp_path):
    for content in (b"k1 " + OLD.text.encode(), b"\xff\xfe\x00", OLD.text.partition(":")[2].encode()):
        file.write_bytes(content)
        file.chmod(0o600)
        with pytest.raises(ConfigurationError, match=r"adk\.keys") as refused:
            read_keys(file)
        assert OLD.text.partition(":")[2][:8] not in str(refused.value)
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    with pytest.raises(ConfigurationError):
        read_keys(folder)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    with pytest.raises(ConfigurationError, match="a folder or a device"):
        read_keys(pipe)


def test_one_that_is_larger_than_any_is_refused_and_not_cut_off(file):
    """A key in the part that was left out would be lost with the next one that is added."""
    make_keys(file, OLD)
    with file.open("a") as writing:
        writing.write("# a comment\n" * 6_000 + f"{NEW.text}\n")
    for work in (read_keys, lambda file: add_key(file, SealKey.new("newer"))):
        with pytest.raises(ConfigurationError, match="65536 bytes"):
            work(file)
    assert file.read_text().endswith(f"{NEW.text}\n")


def test_one_without_a_key_has_none(file):
    file.touch(0o600)
    assert read_keys(file) == SealKeys()


def test_one_that_cannot_be_made_says_why(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be made: No such file or directory"):
        make_keys(tmp_path / "none" / "adk.keys", OLD)
