"""What a model call cost: by the prices of the policy, else by the published ones that genai-prices brings."""

from __future__ import annotations

import warnings
from decimal import Decimal

from genai_prices import Usage, calc_price
from pydantic_ai.messages import ModelResponse

from adk_worker.log import get_logger
from adk_worker.model import Estimate
from adk_worker.providers.policy import ModelPolicy, rounded_micros

_log = get_logger(__name__)


class Prices:
    """Prices calls, and says once of each model that its price is not known."""

    def __init__(self, policy: ModelPolicy) -> None:
        self._policy = policy
        self._unknown: set[str] = set()

    def cost_micros(self, response: ModelResponse, *, model: str) -> int:
        """Millionths of a currency unit, rounded up; 0 where nobody knows the price."""
        usage = response.usage
        own = self._policy.prices.get(model)
        if own is not None:
            return own.micros(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cache_read=usage.cache_read_tokens,
                cache_write=usage.cache_write_tokens,
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                price: Decimal = response.cost().total_price
        except (LookupError, AssertionError, ValueError) as error:
            self._say_unknown(model, error)
            return 0
        return rounded_micros(price * 1_000_000)

    def estimate_micros(self, estimate: Estimate, *, model: str) -> int | None:
        """What a call of so many tokens costs, none of them from a cache; ``None`` where nobody knows the price."""
        tokens = {"input_tokens": estimate.input_tokens, "output_tokens": estimate.output_tokens}
        own = self._policy.prices.get(model)
        if own is not None:
            return own.micros(**tokens)
        provider, separator, named = model.partition(":")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                price: Decimal = calc_price(
                    Usage(**tokens), named if separator else model, provider_id=provider if separator else None
                ).total_price
        except (LookupError, AssertionError, ValueError) as error:
            self._say_unknown(model, error)
            return None
        return rounded_micros(price * 1_000_000)

    def _say_unknown(self, model: str, error: Exception) -> None:
        if model not in self._unknown:
            self._unknown.add(model)
            _log.warning("price_unknown", model=model, reason=str(error), set="ADK_MODEL_PRICES")
