"""Why a call of a real model failed, as an error of ours that says what to do."""

from __future__ import annotations

from typing import Any, Final

from pydantic_ai import exceptions as theirs

from adk_worker.errors import ModelError, ModelUnavailableError
from adk_worker.results import shortened, text_of

_MAX_SAID: Final = 400

_PASSES: Final = (theirs.ModelRateLimitError, theirs.ModelUnavailableError, theirs.ModelServerError)
"""What passes by itself: a limit, or a fault of the provider's own. Nothing is charged for such a call."""

_FOR_GOOD: Final = (theirs.ModelRequestRejectedError, theirs.ModelQuotaExceededError)

_PASSING_STATUSES: Final = frozenset({408, 409, 425})

_WHAT_TO_DO: Final[tuple[tuple[type[Exception], str], ...]] = (
    (theirs.ModelQuotaExceededError, "Add credit to the account of its provider, or raise its limit"),
    (
        theirs.ModelContextWindowExceededError,
        "The transcript is too long: let tools return less, or take a model with a larger context",
    ),
    (
        theirs.ModelAuthenticationError,
        "Check the key of its provider in the environment of the workers, and that it may use this model",
    ),
    (theirs.ModelNotFoundError, "Check the model's name, its base URL, and that the key of its provider may use it"),
    (Exception, "See what it says, and mend the agent, its tools or the input"),
)


def failure(error: Exception, *, model: str) -> ModelError | None:
    """What ``error`` of a call of ``model`` means; ``None`` for what is no failure of the call, but a fault of code."""
    found: ModelError | None = None
    match error:
        case ModelError():
            found = error
        case theirs.ModelConnectionError() | OSError():
            found = _connection(error, model)
        case theirs.ModelAPIError():
            found = _answered(error, model)
        case theirs.ContentFilterError():
            found = refusal(model, str(error))
        case theirs.IncompleteToolCall():
            found = cut_off(model)
        case theirs.UnexpectedModelBehavior():
            found = no_answer(error.message, model)
        case IndexError():
            # A 200 without a choice, as gateways send it; pydantic-ai takes the first.
            found = no_answer(f"it holds none ({text_of(error)})", model)
        case theirs.UserError():
            said = shortened(error.message, _MAX_SAID)
            found = ModelError(f"{model} cannot be asked this: {said} Mend the agent, or its model's settings.")
    return found


def refusal(model: str, said: str | None) -> ModelError:
    """The model, or a filter of its provider, refused to answer: asked again, it would refuse again."""
    what = _sentence(
        f"{model} refused to answer: {shortened(said, _MAX_SAID)}" if said else f"{model} refused to answer"
    )
    return ModelError(f"{what} Change the agent's instructions or the input, or take another model, and run it anew.")


def cut_off(model: str, tokens: int | None = None) -> ModelError:
    """The answer is not whole: it must not be taken for one, and asked again it would be cut again."""
    at = f" after {tokens} tokens" if tokens else ""
    return ModelError(
        f"the answer of {model} was cut off at its token limit{at}. Raise ADK_MODEL_MAX_TOKENS (or max_tokens in the "
        "model's settings), or ask for less; then resume the run."
    )


def timed_out(model: str, seconds: float) -> ModelError:
    """No answer in time. It may have been charged for, so that it is not repeated without an end."""
    return ModelError(
        f"{model} did not answer within {seconds:g} s (ADK_MODEL_TIMEOUT). Raise that if it needs longer.",
        transient=True,
    )


def nothing_said(model: str) -> ModelError:
    """Neither a text nor a call."""
    return ModelError(f"{model} answered with nothing at all.", transient=True)


def no_answer(said: str, model: str) -> ModelError:
    """The answer is not as the protocol says, or cannot be true. Asked again, the model may give a better one."""
    return ModelError(
        _sentence(f"{model} answered with what is no answer: {shortened(said, _MAX_SAID)}"), transient=True
    )


def _connection(error: Exception, model: str) -> ModelError:
    said = shortened(text_of(error.__cause__ or error), _MAX_SAID)
    phase = error.phase if isinstance(error, theirs.ModelConnectionError) else None
    if phase in {"connect", "pool"}:
        return ModelUnavailableError(_sentence(f"{model} cannot be reached: {said}"))
    # It was sent, and may have been charged for.
    return ModelError(_sentence(f"the connection to {model} broke before its answer was whole: {said}"), transient=True)


def _answered(error: theirs.ModelAPIError, model: str) -> ModelError:
    status = error.status_code if isinstance(error, theirs.ModelHTTPError) else None
    code = error.provider_error_code or error.provider_error_type
    about = " ".join(filter(None, [str(status or ""), f"({code})" if code else ""])) or "with an error"
    if status is None and not isinstance(error, (*_PASSES, *_FOR_GOOD)):
        return no_answer(error.message, model)
    what = _sentence(f"{model} answered {about}: {shortened(_said(error.body) or error.message, _MAX_SAID)}")
    if isinstance(error, _PASSES) or status in _PASSING_STATUSES:
        return ModelUnavailableError(what, retry_after=error.retry_after)
    advice = next(advice for kind, advice in _WHAT_TO_DO if isinstance(error, kind))
    return ModelError(f"{what} {advice}; then resume the run.")


def _said(body: Any) -> str:
    """The message of an error, as OpenAI, Anthropic, AWS and those who follow them write it."""
    if isinstance(body, dict):
        inner = body.get("error") or body.get("Error") or body
        return str(inner.get("message") or inner.get("Message") or "") if isinstance(inner, dict) else str(inner)
    return "" if body is None else str(body)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
