"""What a tool is told about the call that it is making: :class:`ToolContext`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import quote

from pydantic import JsonValue

_log = logging.getLogger(__name__)

ProgressSink = Callable[[str, float | None], None]
"""Takes a message and, where the tool knows it, the fraction that is done (0 to 1). Called from any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Given to the parameter of a tool that is annotated with this class, and never shown to the model (F3).

    For a test of your own tool, make one with the four names and whatever else the tool reads.
    """

    tenant: str
    run_id: str
    agent: str
    call_id: str
    """The model provider's id of the call, unique within its turn."""
    iteration: int = 1
    """Which model call asked for it, counted from 1."""
    idempotency_key: str | None = None
    """The same for this call across retry, redelivery and resume, and different for every other call (I1). ``None``
    where no idempotency store is there to record an intent."""
    fence: int | None = None
    """Rises with every worker that takes the run: a far side that remembers the highest one it saw can refuse a worker
    that was superseded (F3). ``None`` where the run holds no lease."""
    metadata: Mapping[str, JsonValue] = field(default_factory=dict, repr=False)
    """What the submitter gave with the run, secrets included where there are seal keys (R2). Read-only."""
    sink: ProgressSink | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", MappingProxyType(dict(self.metadata)))

    def headers(self) -> dict[str, str]:
        """The key, the fence and the run as HTTP headers, so that the far side can refuse a repetition too (F3).

        ``Adk-Run`` is ``tenant/run_id``, each percent-encoded, so that no name can pass for another pair (T1) or break
        out of its header. A key or fence that is ``None`` is left out.
        """
        headers = {"Adk-Run": f"{quote(self.tenant, safe='')}/{quote(self.run_id, safe='')}"}
        if self.idempotency_key is not None:
            headers["Idempotency-Key"] = self.idempotency_key
        if self.fence is not None:
            headers["Adk-Fence"] = str(self.fence)
        return headers

    def progress(self, message: str, *, fraction: float | None = None) -> None:
        """Say how far the call is, for whoever watches the run. Never raises, and nothing is built on it."""
        if self.sink is None:
            return
        try:
            self.sink(message, fraction)
        except Exception:  # noqa: BLE001 - a report of progress must not decide how a call with an effect ends
            _log.debug("progress of call %s was not reported", self.call_id, exc_info=True)


_CALLING: ContextVar[ToolContext | None] = ContextVar("adk_calling", default=None)


def current_call() -> ToolContext | None:
    """The call that is being made, for tools whose functions take something else: those of a pydantic-ai agent.

    ``None`` outside of one, as where such an agent is run by itself.
    """
    return _CALLING.get()


@contextmanager
def calling(context: ToolContext) -> Iterator[None]:
    """Have :func:`current_call` give ``context`` within the block, and in threads that are started from it."""
    token = _CALLING.set(context)
    try:
        yield
    finally:
        _CALLING.reset(token)
