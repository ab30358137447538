"""What the broker refuses for good, in words that say what to do."""

from __future__ import annotations

from typing import Final

from amqp import spec
from amqp.exceptions import PreconditionFailed

EX_CONFIG: Final = 78
"""The exit code of a program that can never work as it is set up."""


def other_queue_type(error: BaseException) -> str | None:
    """What to say of a queue that exists and is not what ``ADK_QUEUE_TYPE`` says, ``None`` of any other error."""
    if not isinstance(error, PreconditionFailed) or tuple(error.method_sig or ()) != spec.Queue.Declare:
        return None
    return (
        f"a queue of the fleet exists, and is another than this process would make it ({error.reply_text}). Set "
        "ADK_QUEUE_TYPE to what it is. Or, to change it, stop all processes of the fleet, delete the queues adk and "
        "adk.control, and start them again: the reaper publishes from the store what was in them."
    )
