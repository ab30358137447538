"""Masking in a run: what is masked, what the placeholders are called, and what leads to a refusal (R1, R2).

What counts as a secret is tested in test_detection.py.
"""

from __future__ import annotations

import copy
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adk_worker.errors import CheckpointFormatError, ConfigurationError
from adk_worker.redaction.masking import Masker, Redactor, contains_placeholder, placeholders_in

# Put together here: scanners of repositories would take whole ones for real.
GITHUB = "ghp_" + "a1B2c3" * 6
STRIPE = "sk_live_" + "Zy9x" * 6
PASSWORD = "hunter2"


@pytest.fixture
def masker() -> Masker:
    return Redactor().masker()


def carried(masker: Masker) -> Masker:
    """The masker that another process goes on with."""
    return Redactor().masker(json.loads(json.dumps(masker.state())))


# --- what is masked --------------------------------------------------------------------------------------------------


def test_only_the_secret_is_replaced(masker):
    """R1."""
    assert masker.text(f"use {GITHUB}, please") == "use [secret:1], please"


def test_secrets_are_found_at_any_depth_and_in_names_of_entries(masker):
    """R1: nested arguments and metadata too."""
    value = {"a": [{"b": (f"x {GITHUB}", 1)}, [[f"password={PASSWORD}"]]], GITHUB: "y"}

    masked = masker.json(value)

    assert masked == {"a": [{"b": ("x [secret:1]", 1)}, [["password=[secret:2]"]]], "[secret:1]": "y"}


def test_the_given_value_is_left_as_it_is(masker):
    value = {"a": [{"password": PASSWORD}], "b": {"c": GITHUB}}
    before = copy.deepcopy(value)

    masker.json(value)

    assert value == before


@pytest.mark.parametrize("value", [None, True, 0, 12345678901234567890, 1.5, b"password=hunter2", "", [], {}])
def test_what_is_no_text_is_left_alone(masker, value):
    """R1: binary parts are left alone."""
    assert masker.json({"password": value, "x": [value]}) == {"password": value, "x": [value]}
    assert masker.state() == {}


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "DB_PASSWORD",
        "apiKey",
        "api_key",
        "token",
        "secret",
        "authorization",
        "client_secret",
        "X-Api-Key",
        "access_token",
        "refreshToken",
        "private_key",
        "passphrase",
        "aws_secret_access_key",
        "credentials",
        "smtp_pass",
    ],
)
def test_a_text_under_a_name_for_secrets_is_masked_whole(masker, name):
    """R3: pairs, in nested metadata and arguments as in text."""
    assert masker.json({"x": {name: "two words"}}) == {"x": {name: "[secret:1]"}}


@pytest.mark.parametrize(
    "name",
    [
        "password_hint",
        "token_count",
        "max_tokens",
        "next_page_token",
        "nextPageToken",
        "idempotency_key",
        "primary_key",
        "public_key",
        "has_password",
        "boarding_pass",
        "compass",
        "keyboard",
        "secret_name",
        "key",
        "tokens",
        "PWD",
    ],
)
def test_a_text_under_another_name_is_not(masker, name):
    """R3."""
    assert masker.json({name: "two words"}) == {name: "two words"}


def test_texts_in_a_list_under_a_name_for_secrets_are_masked_one_by_one(masker):
    assert masker.json({"api_key": ["a b", "c d", 3, {"e": "f"}]}) == {
        "api_key": ["[secret:1]", "[secret:2]", 3, {"e": "f"}]
    }


@pytest.mark.parametrize("word", ["name", "key"])
def test_an_entry_that_is_named_beside_its_value_is_masked(masker, word):
    masked = masker.json([{word: "DB_PASSWORD", "value": "two words"}, {word: "HOME", "value": "two words"}])

    assert masked == [{word: "DB_PASSWORD", "value": "[secret:1]"}, {word: "HOME", "value": "two words"}]


def test_the_scheme_before_a_credential_stays_readable(masker):
    assert masker.json({"Authorization": f"Bearer {GITHUB}", "x": GITHUB}) == {
        "Authorization": "Bearer [secret:1]",
        "x": "[secret:1]",
    }


def test_a_disabled_redactor_masks_nothing_and_keeps_the_state_that_it_was_given():
    """R1: `redact=False`."""
    state = {"last": 3}
    masker = Redactor(enabled=False).masker(state)

    assert masker.text(f"password={PASSWORD}") == f"password={PASSWORD}"
    assert masker.json({"password": PASSWORD}) == {"password": PASSWORD}
    assert masker.state() == state


# --- patterns of one's own -------------------------------------------------------------------------------------------


def test_an_extra_pattern_masks_its_whole_match_or_its_group():
    """R1: `extra_patterns`."""
    masker = Redactor(extra_patterns=[r"ACME-\d+", re.compile(r"badge (?P<secret>\w+)", re.IGNORECASE)]).masker()

    assert masker.text("ACME-123 and Badge x77 and badge") == "[secret:1] and Badge [secret:2] and badge"


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        (["("], "no regular expression"),
        ([7], "no regular expression"),
        ([b"x"], "for bytes"),
        (["x*"], "matches the empty text"),
        ("abc", "a sequence of patterns"),
    ],
)
def test_a_pattern_that_cannot_work_is_refused_at_once(patterns, said):
    with pytest.raises(ConfigurationError, match=said):
        Redactor(extra_patterns=patterns)


def test_an_extra_pattern_that_matches_nothing_in_places_still_ends():
    assert Redactor(extra_patterns=[r"(?=b)|a+"]).masker().text("aab b") == "[secret:1]b b"


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_a_machine_made_secret_keeps_its_number_in_every_process(masker):
    """R2: stable in the run."""
    first = masker.text(f"{STRIPE} then {GITHUB}")

    second = carried(masker).json({"x": f"{GITHUB} again", "y": f"token={STRIPE}"})

    assert first == "[secret:1] then [secret:2]"
    assert second == {"x": "[secret:2] again", "y": "token=[secret:1]"}


def test_a_secret_that_people_choose_keeps_its_number_within_a_value_only(masker):
    """R2: the store must have nothing to try guesses on."""
    assert masker.text(f"password={PASSWORD} PASSWORD={PASSWORD}") == "password=[secret:1] PASSWORD=[secret:1]"
    assert masker.text(f"password={PASSWORD}") == "password=[secret:2]"


def test_the_state_has_no_fingerprint_of_what_could_be_guessed(masker):
    masker.json({"password": PASSWORD, "x": f"https://bob:{PASSWORD}@h.example/ Authorization: Basic Ym9iOng="})

    assert masker.state() == {"last": 2}


def test_the_state_has_no_original_and_differs_between_runs():
    states = []
    for _ in range(2):
        masker = Redactor().masker()
        masker.text(f"{GITHUB} and password={PASSWORD}")
        states.append(masker.state())

    assert GITHUB[4:12] not in json.dumps(states)
    assert PASSWORD not in json.dumps(states)
    assert not states[0]["known"].keys() & states[1]["known"].keys()
    assert states[0]["salt"] != states[1]["salt"]


def test_the_state_stays_small_and_remembers_the_newest():
    """H1: what a step writes does not grow with the run."""
    masker = Redactor().masker()
    made = [f"ghp_{number:036d}" for number in range(600)]
    for secret in made:
        masker.text(secret)

    assert len(json.dumps(masker.state())) < 12_000
    assert carried(masker).text(made[-1]) == "[secret:600]"
    assert carried(masker).text(made[0]) == "[secret:601]"


@pytest.mark.parametrize(
    "state", [{"last": -1}, {"last": "1"}, {"last": 1, "vault": {}}, {"salt": "x"}, {"known": {"x": 1}}, {"known": []}]
)
def test_a_state_of_another_version_is_refused(state):
    """C4."""
    with pytest.raises(CheckpointFormatError):
        Redactor().masker(state)


# --- placeholders that somebody wrote --------------------------------------------------------------------------------


def test_a_number_that_a_text_has_used_is_not_given_to_a_secret(masker):
    """R2: neither a forged placeholder nor one from an outcome that another process masked."""
    assert masker.text("I write [secret:1] and [secret:7]") == "I write [secret:1] and [secret:7]"
    assert masker.text(GITHUB) == "[secret:8]"
    assert masker.json({"a": STRIPE, "b": "[secret:9]"}) == {"a": "[secret:10]", "b": "[secret:9]"}


def test_a_number_beyond_all_bounds_is_left_alone(masker):
    text = f"[secret:{'9' * 5000}]"

    assert masker.text(text) == text
    assert contains_placeholder(text)
    assert masker.text(GITHUB) == "[secret:1]"


def test_no_entry_is_lost_when_somebody_forged_its_name(masker):
    masker.text(GITHUB)

    masked = masker.json({"[secret:1]": "forged", GITHUB: "real"})

    assert list(masked.values()) == ["forged", "real"]


def test_what_stands_around_a_placeholder_is_still_masked(masker):
    masked = masker.json({"password": f"[secret:1]{PASSWORD}", "x": f'"password": "{PASSWORD}[secret:1]"'})

    assert masked == {"password": "[secret:2]", "x": '"password": "[secret:3]"'}


# --- what leads to a refusal -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "[secret:1]",
        "a [secret:12] b",
        "[SECRET: 3]",
        "[ secret : 4 ]",
        {"a": [{"b": ["[secret:1]"]}]},
        {"[secret:1]": 1},
        ("x", "[secret:1]"),
    ],
)
def test_a_placeholder_is_noticed_wherever_it_stands(value):
    """R2: masked text is never executed, also where a model has copied it carelessly."""
    assert contains_placeholder(value)


@pytest.mark.parametrize(
    "value",
    ["", "secret:1", "[secret]", "[secret:]", "[secret:x]", "[secrets:1]", 1, None, b"[secret:1]", {"a": ["b"]}],
)
def test_other_text_is_not_taken_for_a_placeholder(value):
    assert not contains_placeholder(value)
    assert placeholders_in(value) == ()


def test_placeholders_are_listed_once_in_order_of_occurrence():
    value = {"b": "[secret:3] [secret:1]", "a": ["[Secret:3]", {"[secret:20]": "[secret:1]"}]}

    assert placeholders_in(value) == ("[secret:3]", "[secret:1]", "[secret:20]")


# --- for all texts ---------------------------------------------------------------------------------------------------

WORDS = ["a", "page", "next", "x1", "hunter2", "letmein", "my", "is", "12345", "Bearer", "Basic", "Ym9iOng=", "日本"]
NAMES = [
    "password",
    "token",
    "API_KEY",
    "api-key",
    "Authorization",
    "secret",
    "--token",
    "curl -u",
    "login",
    "<secret>",
]
SIGNS = [
    " ",
    "\n",
    ":",
    "=",
    ": ",
    " = ",
    '"',
    "'",
    '\\"',
    "`",
    "\\",
    "\\n",
    ",",
    ";",
    "&",
    "(",
    ")",
    "{",
    "}",
    "<",
    ">",
]
SIGNS += ["/", "://", "@", ".", "-", "_", "*", "**", "$", "${", "</", "?", "[", "]", "+", "%", "\ue000"]
MADE = [GITHUB, STRIPE, "AKIA" + "ABCDEFGH23456723", "eyJ" + "hbGciOiJ9.eyJhIjoxfQ.c2ln", "-----BEGIN PRIVATE KEY-----"]
MADE += ["MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "-----END PRIVATE KEY-----", "[secret:1]", "[secret:2]", "[secret"]
texts = st.lists(st.sampled_from([*WORDS, *NAMES, *SIGNS, *MADE]) | st.text(max_size=3), max_size=14).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | texts, inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_masking_what_is_masked_changes_nothing(value):
    masker = Redactor().masker()
    once = masker.json(value)

    assert masker.json(once) == once
    assert carried(masker).json(once) == once
    assert Redactor().masker().json(once) == once


@given(values)
def test_the_structure_stays(value):
    def shape(of):
        if isinstance(of, dict):
            return [shape(item) for item in of.values()]
        if isinstance(of, list):
            return list(map(shape, of))
        return str if isinstance(of, str) else of

    assert shape(Redactor().masker().json(value)) == shape(value)


@given(texts, texts)
def test_no_machine_made_secret_is_left_wherever_it_stands(before, after):
    masked = Redactor().masker().text(f"{before} {GITHUB} {after}")

    assert f" {GITHUB} " not in f" {masked} "


@given(st.lists(values, max_size=5), st.integers(0, 5))
def test_a_resumed_run_reads_what_the_live_one_would_have_read(entering, crash):
    """R1: the live run and the resumed one read the same."""
    live = resumed = Redactor().masker()
    read_live = [live.json(value) for value in entering]

    resumed = Redactor().masker()
    read = [resumed.json(value) for value in entering[:crash]]
    resumed = carried(resumed)
    read += [resumed.json(value) for value in entering[crash:]]

    assert read == read_live
