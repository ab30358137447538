from __future__ import annotations

import os
import pickle

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from adk_worker.errors import ConfigurationError
from adk_worker.settings import Settings
from adk_worker.urls import without_secrets

STORE = "postgresql://adk@localhost/adk"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    for name in os.environ:
        if name.startswith("ADK_"):
            monkeypatch.delenv(name)


@pytest.fixture
def load(monkeypatch):
    """Load the settings from ``ADK_*`` variables."""

    def loaded(**variables: str) -> Settings:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return Settings.load()

    return loaded


def test_the_store_alone_has_to_be_given(load):
    settings = load(ADK_STORE_URL=STORE)

    assert settings.store_url == STORE
    assert settings.broker_url is None
    assert settings.migrate_url is None
    assert settings.agents == ()
    assert (settings.lease_ttl, settings.lease_renew_within, settings.reap_every) == (60, 20, 5)
    assert (settings.dispatch_grace, settings.dispatch_grace_max) == (30, 600)
    assert (settings.retry_backoff, settings.retry_backoff_max, settings.max_crashes) == (1, 300, 5)
    assert (settings.iteration_timeout, settings.drain_timeout) == (600, 20)
    assert settings.checkpoint_max_bytes == 1024 * 1024


def test_every_setting_says_what_it_is():
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_the_environment_is_read_when_asked_for_and_what_is_given_comes_first(load, monkeypatch):
    first = load(ADK_STORE_URL=STORE, ADK_LEASE_TTL="90")
    monkeypatch.setenv("ADK_LEASE_TTL", "30")

    assert first.lease_ttl == 90
    assert Settings.load().lease_ttl == 30
    assert Settings.load(lease_ttl=3).lease_ttl == 3


def test_settings_are_frozen(load):
    settings = load(ADK_STORE_URL=STORE)

    with pytest.raises(ValidationError):
        settings.lease_ttl = 1


@pytest.mark.parametrize(
    ("given", "agents"),
    [
        ("myshop.agents", ("myshop.agents",)),
        (" myshop.agents , myshop.refunds,", ("myshop.agents", "myshop.refunds")),
        (",", ()),
    ],
)
def test_agents_are_separated_by_commas(load, given, agents):
    assert load(ADK_STORE_URL=STORE, ADK_AGENTS=given).agents == agents


def test_a_variable_that_is_empty_is_not_set(load):
    assert load(ADK_STORE_URL=STORE, ADK_MIGRATE_URL="", ADK_LEASE_TTL="").migrate_url is None


def test_a_url_read_from_a_file_loses_its_newline(load):
    assert load(ADK_STORE_URL=f"{STORE}\n").store_url == STORE


def test_without_a_broker_whatever_needs_one_says_so(load):
    assert load(ADK_STORE_URL=STORE, ADK_BROKER_URL="redis://localhost/0").required_broker_url == "redis://localhost/0"
    with pytest.raises(ConfigurationError, match="ADK_BROKER_URL is not set"):
        _ = load(ADK_STORE_URL=STORE, ADK_BROKER_URL="").required_broker_url


# --- renewal and the other pairs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ttl", ["0.3", "1", "7", "60", "86400"])
def test_a_lease_is_renewed_within_a_third_of_its_life_unless_said_otherwise(load, ttl):
    """L10."""
    settings = load(ADK_STORE_URL=STORE, ADK_LEASE_TTL=ttl)

    assert settings.lease_renew_within == pytest.approx(float(ttl) / 3)
    assert load(ADK_LEASE_RENEW_WITHIN=str(float(ttl) / 3)).lease_ttl == float(ttl)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"ADK_LEASE_TTL": "30", "ADK_LEASE_RENEW_WITHIN": "10.1"},
            "ADK_LEASE_RENEW_WITHIN has to be at most a third of ADK_LEASE_TTL",
        ),
        ({"ADK_DISPATCH_GRACE_MAX": "29"}, "ADK_DISPATCH_GRACE_MAX has to be at least ADK_DISPATCH_GRACE"),
        ({"ADK_RETRY_BACKOFF": "301"}, "ADK_RETRY_BACKOFF_MAX has to be at least ADK_RETRY_BACKOFF"),
        ({"ADK_QUEUE_TYPE": "quorum", "ADK_BROKER_URL": "redis://b"}, "ADK_QUEUE_TYPE quorum is RabbitMQ's"),
    ],
)
def test_settings_that_are_at_odds_are_named_together(load, variables, said):
    """L10."""
    with pytest.raises(ConfigurationError) as caught:
        load(ADK_STORE_URL=STORE, **variables)

    assert said in str(caught.value)


def test_all_that_is_at_odds_is_listed_at_once(load):
    with pytest.raises(ConfigurationError) as caught:
        load(ADK_STORE_URL=STORE, ADK_LEASE_RENEW_WITHIN="21", ADK_DISPATCH_GRACE="700", ADK_RETRY_BACKOFF="400")

    assert [line.split()[0] for line in str(caught.value).splitlines()[1:]] == [
        "ADK_LEASE_RENEW_WITHIN",
        "ADK_DISPATCH_GRACE_MAX",
        "ADK_RETRY_BACKOFF_MAX",
    ]


# --- what is not usable --------------------------------------------------------------------------------------------


def test_all_that_is_wrong_is_listed_at_once_with_what_it_should_be(load):
    with pytest.raises(ConfigurationError) as caught:
        load(ADK_LEASE_TTL="soon", ADK_MAX_CRASHES="0", ADK_REAP_EVERY="inf", ADK_STORE_POOL="2.5", ADK_BROKER_URL="x")

    lines = str(caught.value).splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        "ADK_STORE_URL",
        "ADK_BROKER_URL",
        "ADK_LEASE_TTL",
        "ADK_REAP_EVERY",
        "ADK_MAX_CRASHES",
        "ADK_STORE_POOL",
    ]
    assert "ADK_STORE_URL is not set. The store" in str(caught.value)
    assert "has to be greater than or equal to 1" in str(caught.value)
    assert "has to be a finite number" in str(caught.value)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "60s", "true", "1e300"])
def test_a_time_is_a_number_of_seconds_above_nought_and_within_a_year(load, value):
    with pytest.raises(ConfigurationError, match="ADK_LEASE_TTL has to be"):
        load(ADK_STORE_URL=STORE, ADK_LEASE_TTL=value)


def test_a_field_that_is_no_setting_is_refused(load):
    with pytest.raises(ConfigurationError, match="ADK_LEASE_TLL is no setting"):
        Settings.load(store_url=STORE, lease_tll=3)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ADK_LEASE_TLL", "ADK_LEASE_TLL is no setting, and is not read; was ADK_LEASE_TTL meant?"),
        ("adk_agent", "adk_agent is no setting, and is not read; was ADK_AGENTS meant?"),
        ("ADK_ZEBRA", "ADK_ZEBRA is no setting, and is not read."),
    ],
)
def test_a_name_in_the_environment_that_nobody_reads_is_told(load, name, said):
    """With the nearest one that is read; its value stays where it is."""
    with capture_logs() as lines:
        load(ADK_STORE_URL=STORE, **{name: "hunter2"})

    assert [(line["event"], line["said"]) for line in lines] == [("not_a_setting", said)]


def test_one_that_is_misspelt_is_told_where_the_right_one_is_missed(load):
    with pytest.raises(ConfigurationError) as caught:
        load(ADK_STORE_ULR=STORE)

    assert "ADK_STORE_URL is not set" in str(caught.value)
    assert "was ADK_STORE_URL meant?" in str(caught.value)


def test_what_is_not_json_is_named_with_its_variable(load):
    with pytest.raises(ConfigurationError, match="ADK_MODEL_ENDPOINTS has to be JSON") as caught:
        load(ADK_STORE_URL=STORE, ADK_MODEL_ENDPOINTS="{hunter2")
    assert "hunter2" not in str(caught.value)


# --- passwords -----------------------------------------------------------------------------------------------------


def test_passwords_are_in_no_repr_and_in_no_error(load):
    url = "postgresql://adk:hunter2@localhost/adk"
    settings = load(ADK_STORE_URL=url, ADK_BROKER_URL="redis://:hunter2@localhost/0", ADK_MIGRATE_URL=url)

    assert "hunter2" not in repr(settings) + str(settings)
    assert "postgresql://adk:***@localhost/adk" in repr(settings)
    assert settings.store_url == url
    for wrong in ({"ADK_STORE_URL": "hunter2"}, {"ADK_LEASE_TTL": "hunter2"}, {"ADK_LEASE_RENEW_WITHIN": "999"}):
        with pytest.raises(ConfigurationError) as caught:
            load(**({"ADK_STORE_URL": url} | wrong))
        assert "hunter2" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
        assert "hunter2" not in str(pickle.loads(pickle.dumps(caught.value)))  # noqa: S301 - our own


def test_settings_made_by_hand_do_not_repeat_a_password_either():
    with pytest.raises(ValidationError) as caught:
        Settings(store_url="hunter2")

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgresql://adk:hunt@er2@host/db", "redis://:hunt@er2/x@host/0"])
def test_a_password_with_an_at_in_it_is_refused(load, url):
    """The rest of it would be taken for the host, and be shown as such."""
    for name in ("ADK_STORE_URL", "ADK_BROKER_URL"):
        with pytest.raises(ConfigurationError, match=f"{name} has an @ in its password") as caught:
            load(**{"ADK_STORE_URL": STORE, name: url})
        assert "er2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://adk@web-1:hunter2@host/db",
        "postgresql://adk:hunt%40er2@host/db?x=a@b",
        "sentinel://:one@a:1;sentinel://:two@b:2",
        "sqlite:////tmp/a:b@c@d.db",
    ],
)
def test_other_ats_are_none_of_the_password(load, url):
    assert load(ADK_STORE_URL=url).store_url == url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://adk:pa:ss@host/db", "postgresql://adk:***@host/db"),
        ("postgresql://adk:p/a?s#s@w@host:5432/db?x=1", "postgresql://adk:***@host:5432/db?x=1"),
        ("postgresql://adk@web-1:pass@host/db", "postgresql://adk@web-1:***@host/db"),
        ("redis://:pass@host:6379/0", "redis://:***@host:6379/0"),
        ("sentinel://:one@a:1;sentinel://:two@b:2", "sentinel://:***@b:2"),
        ("postgresql://host/db?password=pass&sslmode=require", "postgresql://host/db?password=***&sslmode=require"),
        ("postgresql://adk@host/db", "postgresql://adk@host/db"),
        ("sqlite:///adk.db", "sqlite:///adk.db"),
        ("amqp://host:5672//", "amqp://host:5672//"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url, shown):
    assert without_secrets(url) == shown


class TestMasking:
    """R1: on unless it is switched off, and with the deployment's own patterns."""

    def test_its_own_patterns_are_masked_too(self, monkeypatch):
        monkeypatch.setenv("ADK_STORE_URL", "sqlite:///a.db")
        monkeypatch.setenv("ADK_REDACT_PATTERNS", '["shop_[a-z]{8}"]')
        assert Settings.load().redactor.masker().text("it is shop_abcdefgh.") == "it is [secret:1]."

    def test_it_can_be_switched_off(self):
        settings = Settings(store_url="sqlite:///a.db", redact=False)
        assert settings.redactor.masker().text("password=hunter2") == "password=hunter2"

    def test_a_pattern_that_is_none_is_refused(self):
        with pytest.raises(ConfigurationError):
            _ = Settings(store_url="sqlite:///a.db", redact_patterns=("(",)).redactor


def test_how_models_are_asked_is_set_in_the_environment(load):
    settings = load(
        ADK_STORE_URL=STORE,
        ADK_ITERATION_TIMEOUT="300",
        ADK_MODEL_ATTEMPTS="5",
        ADK_MODEL_MAX_TOKENS="4000",
        ADK_MODEL_PRICES='{"openai:mine": {"input_mtok": "0.5", "output_mtok": 2}}',
        ADK_MODEL_ENDPOINTS='{"vllm": {"base_url": "http://vllm:8000/v1", "api_key": "s3cret"}}',
    )

    policy = settings.model_policy

    assert (policy.timeout, policy.attempts, policy.max_tokens) == (75, 5, 4000)
    assert policy.prices["openai:mine"].micros(input_tokens=3, output_tokens=1) == 4
    assert policy.endpoints["vllm"].base_url == "http://vllm:8000/v1"
    assert "s3cret" not in repr(settings)
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"ADK_MODEL_TIMEOUT": "600"}, "ADK_MODEL_TIMEOUT has to be below ADK_ITERATION_TIMEOUT"),
        ({"ADK_MODEL_BACKOFF": "30"}, "ADK_MODEL_BACKOFF_MAX has to be at least ADK_MODEL_BACKOFF"),
        ({"ADK_MODEL_PRICES": '{"openai:mine": {"input_mtok": -1, "output_mtok": 2}}'}, "ADK_MODEL_PRICES"),
        ({"ADK_MODEL_ENDPOINTS": '{"vllm": {"base_url": "vllm:8000"}}'}, "ADK_MODEL_ENDPOINTS"),
    ],
)
def test_a_policy_for_models_that_contradicts_itself_is_refused(load, variables, told):
    with pytest.raises(ConfigurationError, match=told):
        load(ADK_STORE_URL=STORE, **variables)
