"""Masking with seal keys: what is kept, what is put back where, and what a text that repeats it is told as (R1, R2)."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adk_worker.errors import CheckpointFormatError, SealKeyMissingError
from adk_worker.outcomes import OutcomeKind, ToolOutcome
from adk_worker.redaction.masking import Masker, Redactor
from adk_worker.sealing.keys import SealKey, SealKeys, key_of
from adk_worker.sealing.originals import SEALED_BYTES

# Put together here: scanners of repositories would take whole ones for real.
GITHUB = "ghp_" + "a1B2c3" * 6
PASSWORD = "hunter22"
RUN = ("acme", "run_1")
OLD, NEW = SealKey.new("old"), SealKey.new("new")


def keyed(*keys: SealKey) -> Redactor:
    return Redactor(seal_keys=SealKeys(keys or (NEW,)))


def carried(masker: Masker, *keys: SealKey, of: tuple[str, str] = RUN) -> Masker:
    """The masker that another process goes on with."""
    return keyed(*keys).masker(json.loads(json.dumps(masker.state())), of=of)


@pytest.fixture
def masker() -> Masker:
    return keyed().masker(of=RUN)


def returned(content: object, **more: object) -> ToolOutcome:
    return ToolOutcome(kind=OutcomeKind.RETURNED, content=content, **more)


# --- put back --------------------------------------------------------------------------------------------------------


def test_the_original_is_put_back_at_any_depth_and_within_a_text(masker):
    """R2: nested arguments, a placeholder inside a longer string, names of entries."""
    masker.json({"token": GITHUB, "text": f"password={PASSWORD}"})
    arguments = {"a": [{"b": "x [secret:1] y"}, {"[secret:1]": 7}], "dsn": "postgres://bob:[secret:2]@db/x", "n": 1}
    assert masker.put_back(arguments) == {
        "a": [{"b": f"x {GITHUB} y"}, {GITHUB: 7}],
        "dsn": f"postgres://bob:{PASSWORD}@db/x",
        "n": 1,
    }


def test_what_a_url_was_masked_of_is_put_back_as_it_was(masker):
    url = f"https://bob:{PASSWORD}@example.com/x?y=1"
    masked = masker.text(url)
    assert PASSWORD not in masked
    assert masker.put_back(masked) == url


@pytest.mark.parametrize("spelt", ["[secret:1]", "[SECRET:1]", "[ secret : 1 ]", "[secret:01]"])
def test_a_placeholder_counts_as_a_model_may_copy_it(masker, spelt):
    masker.text(f"password={PASSWORD}")
    assert masker.put_back(spelt) == PASSWORD
    assert masker.without_original(spelt) == ()


def test_a_placeholder_that_nobody_gave_out_has_no_original(masker):
    """R2: one that a model invents, and one of another run's, are refused."""
    masker.text(f"password={PASSWORD}")
    other = keyed().masker(of=("acme", "run_2"))
    assert masker.without_original({"x": ["[secret:1] [secret:99]", "[secret:0]"]}) == ("[secret:99]", "[secret:0]")
    assert other.without_original("[secret:1]") == ("[secret:1]",)
    assert masker.put_back("[secret:99]") == "[secret:99]"
    assert masker.without_original("[secret:" + "9" * 4000 + "]")


def test_one_that_a_text_had_forged_before_has_none_either(masker):
    """R2: no secret gets a number that a text has used."""
    assert masker.text(f"[secret:1] password={PASSWORD}") == "[secret:1] password=[secret:2]"
    assert masker.without_original("[secret:1] [secret:2]") == ("[secret:1]",)


@given(st.recursive(st.text(max_size=20), lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner)))
def test_masked_and_put_back_is_what_it_was(value):
    """R2: whatever the text, tools are given it as it was, unless it had a placeholder of its own."""
    masker = keyed().masker(of=RUN)
    whole = {"password": "abc DEF 123", "token": GITHUB, "x": value, "y": [f"secret: {GITHUB}", value]}
    masked = masker.json(whole)
    if not masker.without_original(masked):
        assert masker.put_back(masked) == whole


# --- what is stored --------------------------------------------------------------------------------------------------


def test_the_state_has_no_original_and_another_process_can_put_it_back(masker):
    """R2: encrypted in the state, and bound to the run."""
    masker.text(f"password={PASSWORD} and {GITHUB}")
    stored = json.dumps(masker.state())
    assert PASSWORD not in stored
    assert GITHUB not in stored
    assert carried(masker).put_back("[secret:1] [secret:2]") == f"{PASSWORD} {GITHUB}"


@pytest.mark.parametrize("of", [("acme", "run_2"), ("globex", "run_1")])
def test_the_state_of_another_run_does_not_open(masker, of):
    """R2, T1."""
    masker.text(f"password={PASSWORD}")
    moved = carried(masker, of=of)
    assert moved.without_original("[secret:1]") == ("[secret:1]",)
    with pytest.raises(SealKeyMissingError) as refused:
        moved.check_seals()
    assert refused.value.does_not_open


def test_without_its_key_a_run_is_not_carried_on_and_its_texts_are_still_masked(masker):
    masker.text(f"password={PASSWORD}")
    for without in (carried(masker, OLD), Redactor().masker(masker.state(), of=RUN)):
        with pytest.raises(SealKeyMissingError, match="'new'"):
            without.check_seals()
        assert without.text(f"password={PASSWORD}") == "password=[secret:2]"
        assert without.state()["sealed"]["1"] == masker.state()["sealed"]["1"]


def test_a_state_in_another_form_is_refused():
    """C4."""
    for sealed in ({"0": "x"}, {"one": "x"}, {"1": 7}):
        with pytest.raises(CheckpointFormatError):
            keyed().masker({"last": 1, "sealed": sealed}, of=RUN)


def test_what_was_sealed_under_an_old_key_is_sealed_anew_by_whoever_goes_on():
    """R2: keys rotate, by the run's own boundaries."""
    masker = keyed(OLD).masker(of=RUN)
    masker.text(f"password={PASSWORD}")
    state = carried(masker, NEW, OLD).state()
    assert [key_of(seal) for seal in state["sealed"].values()] == ["new"]
    assert keyed(NEW).masker(state, of=RUN).put_back("[secret:1]") == PASSWORD


def test_seals_that_are_current_are_left_as_they_are(masker):
    masker.text(f"password={PASSWORD}")
    assert carried(masker, NEW, OLD).state() == masker.state()


def test_there_is_a_bound_to_what_a_run_keeps(masker):
    """C2: beyond it a secret has a placeholder and no original; the first ones, the input's, stay."""
    rng = random.Random(7)
    many = [f"password={rng.randbytes(1000).hex()}" for _ in range(100)]
    masked = [masker.text(text) for text in many]
    sealed = masker.state()["sealed"]
    assert sum(map(len, sealed.values())) <= SEALED_BYTES
    assert masker.put_back(masked[0]) == many[0]
    assert masker.without_original(masked[-1])
    assert many[-1][9:] not in masked[-1]


def test_nothing_is_kept_where_nothing_is_masked():
    """redact=False: the caller answers for what is stored."""
    masker = Redactor(enabled=False, seal_keys=SealKeys((NEW,))).masker(of=RUN)
    assert masker.text(f"password={PASSWORD}") == f"password={PASSWORD}"
    assert masker.state() == {}


def test_binary_parts_are_left_alone(masker):
    """R1."""
    masker.text(f"password={PASSWORD}")
    assert masker.json({"x": PASSWORD.encode()}) == {"x": PASSWORD.encode()}


# --- what repeats it -------------------------------------------------------------------------------------------------

CHOSEN = 'p"ä/s&1 x'


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (PASSWORD, "[secret:1]"),
        (f"bob logged in with {PASSWORD}.", "bob logged in with [secret:1]."),
        (f"({PASSWORD}) {PASSWORD}", "([secret:1]) [secret:1]"),
        (f"https://x.example/?q={PASSWORD}&r=1", "https://x.example/?q=[secret:1]&r=1"),
        (f"x{PASSWORD}", f"x{PASSWORD}"),  # part of another word
        (f"{PASSWORD}x", f"{PASSWORD}x"),
        (f'{{"said": {json.dumps(CHOSEN)}}}', '{"said": "[secret:2]"}'),
        (f"said {CHOSEN} twice", "said [secret:2] twice"),
        ("?q=p%22%C3%A4%2Fs%261%20x&r", "?q=[secret:2]&r"),
        ("?q=p%22%C3%A4%2Fs%261+x&r", "?q=[secret:2]&r"),
        (f"the token is{GITHUB}x", "the token is[secret:3]x"),
        ("refused: hunter…", "refused: [secret:1]…"),  # shortened in the middle of it
        (f"(… {GITHUB[:20]}…)", "(… [secret:3]…)"),
        ("hunte…", "hunte…"),
    ],
)
def test_a_text_that_repeats_an_original_has_its_placeholder(masker, text, masked):
    """R1, R2: a tool's result, whatever it looks like; the live run and a resumed one read the same."""
    masker.json({"a": {"password": PASSWORD}, "b": {"password": CHOSEN}, "c": GITHUB})
    assert carried(masker).text(text) == masker.text(text) == masked


def test_short_originals_are_found_only_where_they_stand_alone(masker):
    """They are part of too much else."""
    masker.json({"a": {"password": "4711"}, "b": {"password": "abc"}})
    assert masker.json(["4711", "order 4711", "abc", "alphabet abc"]) == [
        "[secret:1]",
        "order 4711",
        "abc",
        "alphabet abc",
    ]


def test_a_secret_that_can_be_guessed_keeps_its_number(masker):
    """R1: with a key outside the store there is no need for a new one."""
    assert masker.text(f"password={PASSWORD}") == carried(masker).text(f"password={PASSWORD}")


def test_masking_what_is_masked_changes_nothing(masker):
    once = masker.json({"a": {"password": PASSWORD}, "b": f"{PASSWORD} {GITHUB} or password={PASSWORD}!"})
    assert masker.json(once) == once


# --- outcomes of other processes -------------------------------------------------------------------------------------


def test_an_outcome_brings_what_it_says_first_and_no_more(masker):
    """R2: whoever carries the run on after this process died can put it back."""
    masker.text(f"password={PASSWORD}")
    frontier = masker.state()
    outcome = masker.outcome(returned({"made": GITHUB, "with": PASSWORD}), besides=frontier)
    assert outcome.content == {"made": "[secret:2]", "with": "[secret:1]"}
    assert set(outcome.sealed) == {"2"}
    assert GITHUB not in outcome.model_dump_json()

    resumed = keyed().masker(frontier, of=RUN)
    replayed = resumed.outcome(ToolOutcome.model_validate_json(outcome.model_dump_json()), besides=frontier)
    assert replayed.content == outcome.content
    assert resumed.put_back("[secret:1] [secret:2]") == f"{PASSWORD} {GITHUB}"


def test_numbers_that_two_processes_gave_to_different_secrets_are_told_apart(masker):
    """R2: the tool must not be given the other one."""
    frontier = masker.state()
    superseded = keyed().masker(frontier, of=RUN).outcome(returned({"api_key": PASSWORD}), besides=frontier)
    masker.text(GITHUB)
    adopted = masker.outcome(superseded, besides=frontier)
    assert superseded.content == {"api_key": "[secret:1]"}
    assert adopted.content == {"api_key": "[secret:2]"}
    assert masker.put_back("[secret:1] [secret:2]") == f"{GITHUB} {PASSWORD}"


def test_numbers_that_two_processes_gave_to_the_same_secret_become_one(masker):
    frontier = masker.state()
    other = keyed().masker(frontier, of=RUN)
    other.text(f"password={PASSWORD}")
    theirs = other.outcome(returned(f"it is {GITHUB}"), besides=frontier)
    masker.text(GITHUB)
    assert theirs.content == "it is [secret:2]"
    assert masker.outcome(theirs, besides=frontier).content == "it is [secret:1]"


def test_a_number_that_a_text_had_forged_is_not_given_to_an_outcome_s_secret(masker):
    frontier = masker.state()
    theirs = keyed().masker(frontier, of=RUN).outcome(returned(GITHUB), besides=frontier)
    masker.text("[secret:1] is mine")
    assert masker.outcome(theirs, besides=frontier).content == "[secret:2]"


def test_an_outcome_whose_key_is_gone_is_not_used(masker):
    frontier = masker.state()
    theirs = keyed(OLD).masker(frontier, of=RUN).outcome(returned(GITHUB), besides=frontier)
    with pytest.raises(SealKeyMissingError, match="'old'"):
        masker.outcome(theirs, besides=frontier)


def test_nothing_shows_an_original(masker):
    masker.text(f"password={PASSWORD}")
    outcome = masker.outcome(returned(GITHUB), besides={})
    assert GITHUB not in repr(outcome) + repr(masker) + repr(keyed())
    assert "s1." not in repr(outcome)
