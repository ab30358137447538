"""Sealing: keys, seals, and what is bound to what (R2)."""

from __future__ import annotations

import base64
import itertools
import pickle

import pytest

from adk_worker.errors import ConfigurationError, SealKeyMissingError
from adk_worker.sealing.keys import SealKey, SealKeys, key_of

# The same in every process that collects these tests, for they stand in some of their names.
OLD, NEW = SealKey("2025", bytes(range(32))), SealKey("2026", bytes(range(32, 64)))
SECRET = "hunter2 ✓ \ud800"


def seals(*keys: SealKey, tenant: str = "acme", run_id: str = "run_1"):
    return SealKeys(keys).of_run(tenant, run_id)


def test_what_is_sealed_opens_again():
    assert seals(NEW).open(seals(NEW).seal(SECRET, number=1), number=1) == SECRET


def test_a_seal_says_nothing_of_the_original_and_never_the_same_twice():
    one, two = (seals(NEW).seal("hunter22", number=1) for _ in range(2))
    assert one != two
    assert "hunter22" not in one
    assert b"hunter22" not in base64.urlsafe_b64decode(one.rpartition(".")[2] + "==")


def test_the_first_key_seals_and_all_of_them_open():
    """R2: keys rotate."""
    old, both = seals(OLD).seal(SECRET, number=1), seals(NEW, OLD)
    assert both.open(old, number=1) == SECRET
    assert (key_of(old), key_of(both.seal(SECRET, number=1))) == ("2025", "2026")
    assert [both.current(old), seals(OLD, NEW).current(old), seals().current(old)] == [False, True, False]


# `a:b` + `c` against `a` + `b:c`, and names that some encodings would join.
NAMES = [("a:b", "c"), ("a", "b:c"), ("a", 'b","c'), ("a\x00b", "c"), ("a", "c"), ("*", "*"), ("ä", "ß")]


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(NAMES, 2)))
def test_it_opens_in_its_own_run_alone(one, other):
    """R2, T1: bound to tenant and run, whatever they are called."""
    sealed = seals(NEW, tenant=one[0], run_id=one[1]).seal(SECRET, number=1)
    with pytest.raises(SealKeyMissingError) as refused:
        seals(NEW, tenant=other[0], run_id=other[1]).open(sealed, number=1)
    assert refused.value.does_not_open


def test_it_opens_for_its_own_placeholder_alone():
    """R2: who can write to the store cannot have a tool given another secret of the run."""
    with pytest.raises(SealKeyMissingError):
        seals(NEW).open(seals(NEW).seal(SECRET, number=1), number=11)


def test_one_that_was_changed_does_not_open():
    head, _, data = seals(NEW).seal(SECRET, number=1).rpartition(".")
    for place in (0, len(data) // 2):
        other = "A" if data[place] != "A" else "B"
        with pytest.raises(SealKeyMissingError):
            seals(NEW).open(f"{head}.{data[:place]}{other}{data[place + 1 :]}", number=1)


@pytest.mark.parametrize("text", ["", "s1", "s1.2026", "s1.2026.", "s1.2026.A", "s2.2026.AAAA", "s1.2026.AA.AA", "x"])
def test_what_is_no_seal_does_not_open(text):
    with pytest.raises(SealKeyMissingError):
        seals(NEW).open(text, number=1)


def test_a_key_that_is_missing_is_named_with_those_there_are():
    sealed = seals(OLD).seal(SECRET, number=1)
    with pytest.raises(SealKeyMissingError, match=r"sealed under the key '2025'.*it has: 2026\)") as refused:
        seals(NEW).open(sealed, number=1)
    assert (refused.value.key_id, refused.value.known, refused.value.does_not_open) == ("2025", ("2026",), False)
    with pytest.raises(SealKeyMissingError, match=r"it has: none\)"):
        seals().open(sealed, number=1)


def test_another_key_under_the_same_id_is_told_apart_from_one_that_is_missing():
    with pytest.raises(SealKeyMissingError, match="it is another key"):
        seals(SealKey.new("2025")).open(seals(OLD).seal(SECRET, number=1), number=1)


class TestKeysAsText:
    def test_they_are_read_as_they_are_written(self):
        assert SealKeys.parse([NEW.text, "", f"  {OLD.text}\n"]) == SealKeys((NEW, OLD))

    def test_base64_with_its_padding_is_read_too(self):
        assert SealKeys.parse([f"{NEW.text}="]) == SealKeys((NEW,))

    @pytest.mark.parametrize(
        "text",
        [
            NEW.text.partition(":")[2],  # without its id
            "2026:",
            "2026:short",
            "2026:" + "!" * 43,
            "2026:" + base64.b64encode(b"x" * 16).decode(),
            f":{NEW.text.partition(':')[2]}",
            f"a b:{NEW.text.partition(':')[2]}",
            f"-x:{NEW.text.partition(':')[2]}",
            f"{'x' * 33}:{NEW.text.partition(':')[2]}",
            f"{NEW.text.partition(':')[2]}:2026",
        ],
    )
    def test_what_is_none_is_refused_and_not_repeated(self, text):
        """An operator who pastes the wrong thing must not find it in a log."""
        with pytest.raises(ConfigurationError) as refused:
            SealKeys.parse([text])
        assert NEW.text.partition(":")[2][:8] not in str(refused.value)
        assert "adk seal keys new" in str(refused.value)
        assert refused.value.__cause__ is None

    def test_an_id_that_is_there_twice_is_refused(self):
        with pytest.raises(ConfigurationError, match="two seal keys with the id '2026'"):
            SealKeys.parse([NEW.text, SealKey.new("2026").text])


def test_nothing_shows_a_key():
    shown = "".join(map(repr, (NEW, SealKeys((NEW,)), seals(NEW)))) + str(NEW)
    secret = NEW.text.partition(":")[2]
    assert secret[:8] not in shown
    assert repr(NEW.secret)[2:10] not in shown


def test_the_error_carries_no_key():
    """It may cross processes, and be logged."""
    with pytest.raises(SealKeyMissingError) as refused:
        seals(NEW).open(seals(OLD).seal(SECRET, number=1), number=1)
    sent = pickle.dumps(refused.value)
    assert NEW.secret not in sent
    assert OLD.secret not in sent
