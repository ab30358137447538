"""One model call in several attempts: each bounded in time, repeated with a growing pause where that may help."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_random_exponential,
)
from tenacity.stop import stop_base

from adk_worker.errors import ModelError, ModelUnavailableError
from adk_worker.log import get_logger
from adk_worker.providers.failures import cut_off, failure, no_answer, nothing_said, refusal, timed_out
from adk_worker.providers.policy import ModelPolicy

_MOST_TOKENS: Final = 10**12
"""More than any call can take, and little enough that a run's sum and its cost fit into every store's numbers."""

_log = get_logger(__name__)


async def attempted(call: Callable[[], Awaitable[ModelResponse]], *, policy: ModelPolicy, model: str) -> ModelResponse:
    """Make ``call`` until it brings a whole answer, ``policy.attempts`` times at most.

    :raises ModelError: it failed for good, or the last attempt did.
    :raises ModelUnavailableError: the same, or the provider asks to be left alone for longer than
        ``policy.backoff_max``.
    """

    async def once() -> ModelResponse:
        return await _once(call, policy=policy, model=model)

    def said(state: RetryCallState) -> None:
        # Not what the provider said: it may quote the transcript, and only the run can mask that (R1).
        error = _error(state)
        kind = type(error.__cause__ if error and error.__cause__ else error).__name__
        _log.info("model_call_failed", model=model, again_in=round(state.upcoming_sleep, 2), kind=kind)

    jittered = wait_random_exponential(multiplier=policy.backoff, max=policy.backoff_max)

    def pause(state: RetryCallState) -> float:
        return _retry_after(state) or jittered(state)

    retrying = AsyncRetrying(
        retry=retry_if_exception(lambda error: isinstance(error, ModelError) and error.transient),
        wait=pause,
        stop=stop_after_attempt(policy.attempts) | _TooLong(policy.backoff_max),
        before_sleep=said,
        reraise=True,
    )
    return await retrying(once)


class _TooLong(stop_base):
    """The provider asks for a pause that would keep a slot of the worker: the run had better wait in the queue."""

    def __init__(self, longest: float) -> None:
        self._longest = longest

    def __call__(self, retry_state: RetryCallState) -> bool:
        return (_retry_after(retry_state) or 0) > self._longest


async def _once(call: Callable[[], Awaitable[ModelResponse]], *, policy: ModelPolicy, model: str) -> ModelResponse:
    try:
        async with asyncio.timeout(policy.timeout):
            response = await call()
    except TimeoutError as error:
        raise timed_out(model, policy.timeout) from error
    except Exception as error:
        known = failure(error, model=model)
        if known is None:
            raise
        raise known from error
    _check_whole(response, model)
    return response


def _check_whole(response: ModelResponse, model: str) -> None:
    """An answer that was refused, cut off or empty must not end a run as if it were one."""
    if response.finish_reason == "content_filter":
        raise refusal(model, response.text)
    if response.finish_reason == "length":
        raise cut_off(model, response.usage.output_tokens)
    tokens = max(response.usage.input_tokens, response.usage.output_tokens)
    if tokens > _MOST_TOKENS:
        raise no_answer(f"a use of {tokens:.3g} tokens", model)
    if not any(
        isinstance(part, ToolCallPart) or (isinstance(part, TextPart) and part.content) for part in response.parts
    ):
        raise nothing_said(model)


def _error(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _retry_after(state: RetryCallState) -> float | None:
    error = _error(state)
    return error.retry_after if isinstance(error, ModelUnavailableError) else None
