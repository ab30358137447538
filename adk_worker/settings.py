"""The settings of a process, ``ADK_*`` in its environment, each described here and nowhere else.

They are read and checked once, at the edge of a process, by :meth:`Settings.load`, and passed on as a frozen value.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from adk_worker.approvals.requests import EXPIRES_IN
from adk_worker.continuation import DEFAULT_CONTINUATION, ContinuationPolicy
from adk_worker.errors import ConfigurationError
from adk_worker.lease import LeasePolicy
from adk_worker.ledger.amounts import HIGHEST, Budget
from adk_worker.log import get_logger
from adk_worker.providers.policy import Endpoint, ModelPolicy, Prefix, Price
from adk_worker.results import MAX_RESULT_BYTES
from adk_worker.spelling import sentence, strangers
from adk_worker.transitions.runs import FleetPolicy
from adk_worker.urls import without_secrets

if TYPE_CHECKING:
    from adk_worker.redaction.masking import Redactor
    from adk_worker.sealing.keys import SealKeys

PREFIX: Final = "ADK_"

_log = get_logger(__name__)

_PASSWORD_WITH_AT: Final = re.compile(r"://[^/?#:\s]*:.*@.*@", re.DOTALL)
_LONGEST: Final = 366 * 86400


def _url(value: str) -> str:
    value = value.strip()  # a secret that was read from a file ends with a newline
    scheme, separator, _ = value.partition("://")
    if not (scheme and separator):
        # The value stays out of the message: it may hold a password.
        raise PydanticCustomError("url", "has to be a URL, such as {example}", {"example": "postgresql://user@host/db"})
    if any(_PASSWORD_WITH_AT.search(one.partition("?")[0]) for one in value.split(";")):
        # Whatever reads such a URL takes the rest of the password for the host's name, and tells everybody.
        raise PydanticCustomError("url", "has an @ in its password: write %40 for it, and encode / ? # : so too")
    return value


def _target(value: str) -> str:
    module, separator, name = value.strip().partition(":")
    if not (separator and module and name.isidentifier()):
        wanted = "has to name a function of a module, such as {example}"
        raise PydanticCustomError("target", wanted, {"example": "myshop.rights:may"})
    return value.strip()


Url = Annotated[str, AfterValidator(_url)]
Seconds = Annotated[float, Field(gt=0, le=_LONGEST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Limit = Annotated[int, Field(ge=0, le=HIGHEST)]
Target = Annotated[str, AfterValidator(_target)]


class Settings(BaseSettings):
    """What a worker, a web app or a terminal needs to know. All times are in seconds, all sizes in bytes.

    ``repr`` shows URLs without their passwords. Fields given by name come before the environment.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    store_url: Url = Field(
        description="The store of the fleet's state: postgresql://… or redis://…; sqlite:///… on one machine. Required."
    )
    broker_url: Url | None = Field(
        default=None, description="Celery's broker: redis://…, amqp://…. Required by whatever publishes or works."
    )
    queue_type: Literal["classic", "quorum"] = Field(
        default="classic",
        description="RabbitMQ's queues: classic, or quorum for a cluster of three nodes or more. One choice per fleet.",
    )
    agents: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Modules that hold the agents, separated by commas: myshop.agents,myshop.refunds."
    )
    verifier: Target | None = Field(
        default=None,
        description="What says who may do what (P5): a function, as myshop.rights:may. The same wherever people act.",
    )
    migrate_url: Url | None = Field(
        default=None,
        description="The store again, past any pooler, with rights to change its schema. ADK_STORE_URL by default.",
    )

    lease_ttl: Seconds = Field(
        default=60, description="How long a lease lives unless renewed: a dead worker's runs wait this long (L6)."
    )
    lease_renew_within: Seconds = Field(
        default_factory=lambda data: data["lease_ttl"] / 3,
        description="How often a lease is renewed, at most a third of ADK_LEASE_TTL (L10). That third by default.",
    )
    reap_every: Seconds = Field(default=5, description="How often beat sends the reaper to look for lapsed leases.")
    dispatch_grace: Seconds = Field(
        default=30, description="How long a queued run waits for its message before that is published again."
    )
    dispatch_grace_max: Seconds = Field(
        default=600, description="Up to how much that wait doubles, so that a backlog is not multiplied."
    )
    retry_backoff: Seconds = Field(
        default=1, description="How long a run waits after an iteration that failed, doubled each time."
    )
    retry_backoff_max: Seconds = Field(default=300, description="Up to how much that wait doubles.")
    max_crashes: Count = Field(
        default=5, description="How many times a run may die without a new boundary before it is parked as poisoned."
    )
    iteration_timeout: Seconds = Field(
        default=600, description="How long one iteration may take; its lease is not renewed beyond that (L8)."
    )
    drain_timeout: Seconds = Field(
        default=20, description="How long a worker that is told to stop waits for effectful calls in flight."
    )

    model_timeout: Seconds = Field(
        default_factory=lambda data: data["iteration_timeout"] / 4,
        description="How long one attempt of a model call may take. A quarter of ADK_ITERATION_TIMEOUT by default.",
    )
    model_attempts: Count = Field(
        default=3, description="How often a model call is tried at once, where its failure is transient."
    )
    model_backoff: Seconds = Field(
        default=1, description="The pause before a model call is tried again, doubled each time, and jittered."
    )
    model_backoff_max: Seconds = Field(
        default=20,
        description="Up to how much that pause doubles. A provider that asks for more has the run wait in the queue.",
    )
    model_max_tokens: Count | None = Field(
        default=None, description="How long a model's answer may be, in tokens. The provider's own limit by default."
    )
    model_prices: dict[str, Price] = Field(
        default={},
        description='Prices per million tokens that come before those known, as JSON: {"openai:my-model": '
        '{"input_mtok": 2, "output_mtok": 8}}. Also cache_read_mtok and cache_write_mtok.',
    )
    model_endpoints: dict[Prefix, Endpoint] = Field(
        default={},
        description="Servers that speak OpenAI's chat completions, by the prefix of their models' names, as JSON: "
        '{"vllm": {"base_url": "http://vllm:8000/v1"}} serves vllm:…. Also api_key.',
    )

    checkpoint_max_bytes: Count = Field(
        default=1024 * 1024, description="Largest stored frontier; a larger one is refused, never trimmed (C2)."
    )
    tool_result_max_bytes: Count = Field(
        default=MAX_RESULT_BYTES, description="Largest result of a tool, as JSON; a larger one is dropped (I10)."
    )
    continue_after_steps: Count = Field(
        default=DEFAULT_CONTINUATION.max_steps,
        description="After how many boundaries a run crosses into a new execution (K1); an iteration has two.",
    )
    continue_after_bytes: Count = Field(
        default=DEFAULT_CONTINUATION.max_history_bytes,
        description="The same by how much an execution has added to the transcript, in bytes.",
    )
    approval_expires: Seconds = Field(
        default=EXPIRES_IN,
        description="How long a call waits for an approval where its tool does not say; then it is denied (P1).",
    )
    redact: bool = Field(
        default=True, description="Whether secrets are masked where text enters a run (R1). The same in every process."
    )
    redact_patterns: tuple[str, ...] = Field(
        default=(), description='More secrets to mask, as a JSON array of regular expressions: ["shop_[a-z0-9]{32}"].'
    )
    seal_keys: SecretStr | None = Field(
        default=None,
        description="Keys that seal masked secrets, so that tools are given them: ID:SECRET,ID:SECRET, the first one "
        "seals, all open (R2). `adk seal keys new` makes one. The same in every process, web apps included.",
    )
    seal_keys_file: Path | None = Field(
        default=None, description="The same in a file, a key to a line, that nobody else may read (chmod 600)."
    )
    run_budget_tokens: Limit | None = Field(
        default=None,
        description="How many tokens, in and out, a run may use that is given no budget itself. No limit by default.",
    )
    run_budget_cost_micros: Limit | None = Field(
        default=None, description="The same for its cost, in millionths of a currency unit. No limit by default."
    )
    tool_threads: Count = Field(default=32, description="How many sync tools may run at once in a process.")
    store_pool: Count = Field(default=10, description="How many connections to the store a process may hold.")
    socket_timeout: Seconds = Field(
        default=10,
        description="How long a connection to the store or the broker may stay silent before it is given up.",
    )
    alive_dir: Path | None = Field(
        default=None,
        description="Where a worker keeps the file that `adk alive` reads. A folder of the user's own by default.",
    )

    @classmethod
    def load(cls, **given: Any) -> Self:
        """Read the environment and check it; ``given`` fields come before it.

        :raises ConfigurationError: some are missing or not usable. It names each variable with what it has to be, and
            repeats no value.
        """
        unread = cls.unread()
        try:
            settings = cls(**given)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            wrong = [(entry["loc"], entry["type"], entry["msg"]) for entry in found]
            raise ConfigurationError(_message([*wrong, *(((), "unread", line) for line in unread)])) from None
        except SettingsError as error:
            raise ConfigurationError(_message([_not_json(error)])) from None
        for line in unread:
            _log.warning("not_a_setting", said=line)
        return settings

    @classmethod
    def unread(cls) -> Sequence[str]:
        """A sentence for each ``ADK_*`` in the environment that is no setting: misspelt, or another program's."""
        known = {_variable(field) for field in cls.model_fields}
        return [sentence(name, nearest) for name, nearest in strangers(os.environ, known, prefix=PREFIX).items()]

    @property
    def required_broker_url(self) -> str:
        """``broker_url``, for what cannot do without it.

        :raises ConfigurationError: it is not set.
        """
        if self.broker_url is None:
            raise ConfigurationError(_message([(("broker_url",), "missing", "")]))
        return self.broker_url

    @property
    def fleet_policy(self) -> FleetPolicy:
        """The times and counts by which runs and leases move."""
        return FleetPolicy(
            lease_ttl=self.lease_ttl,
            dispatch_grace=self.dispatch_grace,
            dispatch_grace_max=self.dispatch_grace_max,
            retry_backoff=self.retry_backoff,
            retry_backoff_max=self.retry_backoff_max,
            max_crashes=self.max_crashes,
        )

    @property
    def continuation_policy(self) -> ContinuationPolicy:
        """When a run crosses into a new execution."""
        return ContinuationPolicy(max_steps=self.continue_after_steps, max_history_bytes=self.continue_after_bytes)

    @property
    def run_budget(self) -> Budget:
        """What a run may spend that is submitted without a budget."""
        return Budget(self.run_budget_tokens, self.run_budget_cost_micros)

    @property
    def lease_policy(self) -> LeasePolicy:
        """How long a lease lives, and how often it is renewed."""
        return LeasePolicy(ttl_seconds=self.lease_ttl, renew_within=self.lease_renew_within)

    @property
    def model_policy(self) -> ModelPolicy:
        """How the calls of real models are made."""
        return ModelPolicy(
            timeout=self.model_timeout,
            attempts=self.model_attempts,
            backoff=self.model_backoff,
            backoff_max=self.model_backoff_max,
            max_tokens=self.model_max_tokens,
            prices=self.model_prices,
            endpoints=self.model_endpoints,
        )

    @property
    def redactor(self) -> Redactor:
        """What masks the text that enters a run, and seals what it masks if there are keys.

        :raises ConfigurationError: one of ``redact_patterns`` is no regular expression, or the seal keys cannot be
            read.
        """
        from adk_worker.redaction.masking import Redactor  # noqa: PLC0415 - for those who mask

        patterns, keys = self.redact_patterns, self.read_seal_keys()
        if keys is None:
            return Redactor(extra_patterns=patterns, enabled=self.redact)
        return Redactor(extra_patterns=patterns, enabled=self.redact, seal_keys=keys)

    def read_seal_keys(self) -> SealKeys | None:
        """The keys that seal, read now; ``None`` where neither setting names any.

        :raises ConfigurationError: they cannot be read, or others may read the file.
        """
        if self.seal_keys_file is not None:
            from adk_worker.sealing.key_file import read_keys  # noqa: PLC0415 - for those who have a file

            return read_keys(self.seal_keys_file)
        if self.seal_keys is None:
            return None
        from adk_worker.sealing.keys import SealKeys  # noqa: PLC0415 - for those who seal

        return SealKeys.parse(self.seal_keys.get_secret_value().split(","))

    @field_validator("agents", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(name for name in (part.strip() for part in value.split(",")) if name)
        return value

    @field_validator("model_prices", "model_endpoints", "redact_patterns", mode="before")
    @classmethod
    def _decode(cls, value: Any) -> Any:
        # The environment's own value comes decoded; one that is given by name may be a variable's text.
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                return json.loads(value)
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        wrong = []
        if self.lease_renew_within > self.lease_ttl / 3:
            wrong.append(
                "ADK_LEASE_RENEW_WITHIN has to be at most a third of ADK_LEASE_TTL, so that two renewals may fail"
            )
        if self.dispatch_grace_max < self.dispatch_grace:
            wrong.append("ADK_DISPATCH_GRACE_MAX has to be at least ADK_DISPATCH_GRACE")
        if self.retry_backoff_max < self.retry_backoff:
            wrong.append("ADK_RETRY_BACKOFF_MAX has to be at least ADK_RETRY_BACKOFF")
        if self.model_backoff_max < self.model_backoff:
            wrong.append("ADK_MODEL_BACKOFF_MAX has to be at least ADK_MODEL_BACKOFF")
        if self.model_timeout >= self.iteration_timeout:
            wrong.append("ADK_MODEL_TIMEOUT has to be below ADK_ITERATION_TIMEOUT, which ends the whole iteration")
        if self.seal_keys is not None and self.seal_keys_file is not None:
            wrong.append("ADK_SEAL_KEYS and ADK_SEAL_KEYS_FILE are both set: keep the one that has the keys")
        if self.queue_type == "quorum" and self.broker_url and not self.broker_url.startswith(("amqp", "pyamqp")):
            wrong.append("ADK_QUEUE_TYPE quorum is RabbitMQ's: ADK_BROKER_URL has to be amqp://… or amqps://…")
        if wrong:
            raise PydanticCustomError("at_odds", "{wrong}", {"wrong": "\n  ".join(wrong)})
        return self

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, without_secrets(value) if isinstance(value, str) else value


def _variable(field: str) -> str:
    return PREFIX + field.upper()


def _not_json(error: SettingsError) -> tuple[tuple[str, ...], str, str]:
    named = re.search(r'field "(\w+)"', str(error))
    return ((named[1],), "json", "has to be JSON") if named else ((), "json", f"the environment: {error}")


def _message(found: Iterable[tuple[tuple[int | str, ...], str, str]]) -> str:
    lines = []
    for where, kind, said in found:
        if kind == "default_factory_not_called":  # what it was to be made from is in the list already
            continue
        if not where:
            lines.append(said)
            continue
        name = str(where[0])
        wanted = {"missing": "is not set", "extra_forbidden": "is no setting"}.get(
            kind, said.replace("Input should be", "has to be", 1)
        )
        known = Settings.model_fields.get(name)
        lines.append(f"{_variable(name)} {wanted}" + (f". {known.description}" if known else ""))
    return "the settings are not usable:\n" + "\n".join(f"  {line}" for line in lines)
