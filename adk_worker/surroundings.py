"""What an iteration works with: :class:`Surroundings`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from adk_worker.agent import Agent
from adk_worker.approvals.requests import EXPIRES_IN
from adk_worker.continuation import DEFAULT_CONTINUATION, ContinuationPolicy
from adk_worker.interruption import Interruption
from adk_worker.ledger.spending import Spending
from adk_worker.model import ModelProvider
from adk_worker.redaction.masking import Masker
from adk_worker.results import MAX_RESULT_BYTES
from adk_worker.scribes.port import Scribe


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an iteration works with, besides its frontier: all of one run under one acquisition."""

    agent: Agent
    provider: ModelProvider
    scribe: Scribe
    masker: Masker
    interruption: Interruption
    executor: Executor
    """Runs sync tools and probes."""
    keep_late: Callable[[asyncio.Task[None]], None]
    """Holds on to a task that records a late outcome, until it is done."""
    max_result_bytes: int = MAX_RESULT_BYTES
    continuation: ContinuationPolicy = DEFAULT_CONTINUATION
    approval_expires: float = EXPIRES_IN
    """How long a request waits for its answer where its tool does not say, in seconds (P1)."""
    spending: Spending = field(default_factory=Spending)
    """Shared with the scribe."""
