"""How the calls of real models are made: :class:`ModelPolicy`. Knows no provider's SDK."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints

from adk_worker.errors import ConfigurationError

Prefix = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""What stands before the colon of a model's name."""

_Price = Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]


class Price(BaseModel):
    """What a model costs, in currency units per million tokens. What is left out costs what ``input_mtok`` does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_mtok: _Price
    output_mtok: _Price
    cache_read_mtok: _Price | None = None
    cache_write_mtok: _Price | None = None

    def micros(self, *, input_tokens: int, output_tokens: int, cache_read: int = 0, cache_write: int = 0) -> int:
        """The cost in millionths of a currency unit, rounded up. ``input_tokens`` include those of the cache."""
        read = self.input_mtok if self.cache_read_mtok is None else self.cache_read_mtok
        write = self.input_mtok if self.cache_write_mtok is None else self.cache_write_mtok
        fresh = max(0, input_tokens - cache_read - cache_write)
        cost = fresh * self.input_mtok + cache_read * read + cache_write * write + output_tokens * self.output_mtok
        return rounded_micros(cost)


class Endpoint(BaseModel):
    """A server of one's own that speaks OpenAI's protocol of chat completions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: Annotated[str, StringConstraints(pattern=r"^https?://\S+$")]
    api_key: SecretStr | None = None


def rounded_micros(micros: Decimal) -> int:
    """Whole millionths, rounded up: a sum of many small calls must not read as nothing."""
    return int(micros.to_integral_value(ROUND_CEILING))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPolicy:
    """Times in seconds, and how often. One attempt is one request to the provider.

    :raises ConfigurationError: a time or a number is out of its range.
    """

    timeout: float = 150.0
    """How long one attempt may take, from its beginning to the answer's last byte."""
    attempts: int = 3
    backoff: float = 1.0
    """The pause before the second attempt; doubled each time, and jittered."""
    backoff_max: float = 20.0
    """The longest pause. Where the provider asks for a longer one, the call is given up instead."""
    max_tokens: int | None = None
    """How long an answer may be, in tokens. ``None`` leaves it to the provider."""
    prices: Mapping[str, Price] = field(default_factory=dict)
    """Prices by the model's name as agents write it; they come before all that is known otherwise."""
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    """Servers by the prefix of their models' names; they come before the providers of that name."""

    def __post_init__(self) -> None:
        for name in ("timeout", "backoff", "backoff_max"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigurationError(f"{name} of the model policy is {value}; it has to be above 0 seconds.")
        for name in ("attempts", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} of the model policy is {value}; it has to be at least 1.")
