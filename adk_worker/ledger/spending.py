"""What a model call may take, before it is made, and what one acquisition knows of the calls that it makes (C6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from adk_worker.errors import ConfigurationError
from adk_worker.ledger.amounts import Amount
from adk_worker.ledger.booking import Charge, Reservation
from adk_worker.messages import BinaryPart, Message, Part, TextPart, canonical_json
from adk_worker.model import Estimate, Estimates, ModelAnswer, ModelProvider, ModelRequest

OUTPUT_TOKENS: Final = 4096
"""How long an answer is taken to be at most where nobody says (ADK_MODEL_MAX_TOKENS)."""

_BYTES_PER_TOKEN: Final = 3
"""Few, so that it is rather too much that is reserved: of English text there are four, of code and JSON about three."""
_BINARY_TOKENS: Final = 2_000
"""For an image or another binary part, whatever its size: what the larger ones cost with most providers."""


@dataclass(slots=True)
class Spending:
    """One acquisition's. ``limited`` says that each call has to be reserved."""

    limited: bool = False
    asked: bool = False
    """Whether a model call was begun of which no boundary has told yet what it took."""
    charge: Charge | None = None
    """What the newest model call took, for the boundary that it leads to."""

    def answered(self, answer: ModelAnswer, *, iteration: int) -> None:
        """A call has brought an answer."""
        usage = answer.usage
        self.charge = Charge(iteration, Amount(usage.input_tokens + usage.output_tokens, answer.cost_micros))

    def booked(self) -> None:
        """A boundary has told of the newest call."""
        self.asked, self.charge = False, None


def reservation_for(provider: ModelProvider, request: ModelRequest) -> Reservation:
    """What the call may take at most, as far as its provider knows. The fence is the store's to add.

    :raises ConfigurationError: the provider's estimate is none.
    """
    found = provider.estimate(request) if isinstance(provider, Estimates) else by_size(request)
    if not isinstance(found, Estimate):
        raise ConfigurationError(
            f"the model's provider gave a {type(found).__name__} for what a call may take; have estimate() return an "
            "adk_worker.Estimate."
        )
    amount = Amount(found.input_tokens + found.output_tokens, found.cost_micros or 0)
    return Reservation(request.iteration, 0, amount, priced=found.cost_micros is not None)


def by_size(request: ModelRequest, *, output_tokens: int = OUTPUT_TOKENS) -> Estimate:
    """An estimate by the size of what is sent, at no known price."""
    tools = [[spec.name, spec.description, dict(spec.schema)] for spec in request.tools]
    size = len(request.instructions.encode()) + len(canonical_json(tools))
    size += sum(_size(message) for message in request.messages)
    binary = sum(isinstance(part, BinaryPart) for message in request.messages for part in message.parts)
    return Estimate(size // _BYTES_PER_TOKEN + 1 + binary * _BINARY_TOKENS, output_tokens)


def _size(message: Message) -> int:
    return sum(map(_size_of, message.parts))


def _size_of(part: Part) -> int:
    match part:
        case TextPart():
            return len(part.text.encode())
        case BinaryPart():
            return 0
        case _:
            return len(canonical_json(part.model_dump(mode="json")))
