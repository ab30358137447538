"""Errors about the store and the broker."""

from __future__ import annotations

from adk_worker.errors.tree import AdkError


class StoreUnavailableError(AdkError):
    """The store did not answer. Nothing was written, unless it is a :class:`CommitUnknownError`."""

    retryable = True

    def __init__(self, *, store: str, reason: str) -> None:
        super().__init__(f"the store {store} is not answering: {reason}. Check ADK_STORE_URL and that it is up.")
        self.store = store
        self.reason = reason


class StoreRefusedError(StoreUnavailableError):
    """The store answers, and lets nobody in with these settings: a wrong password, no such database, no TLS.

    Whoever starts with it should stop, for waiting mends nothing. Whoever is at work meanwhile goes on as in an outage:
    a password may be in the middle of its change. ``setting`` names the variable with the store's URL.
    """

    retryable = False

    def __init__(self, *, store: str, reason: str, hint: str = "", setting: str = "ADK_STORE_URL") -> None:
        AdkError.__init__(
            self,
            f"the store {store} refuses: {reason}. Check user, password, database and parameters in {setting}"
            f"{', ' + hint if hint else ''}.",
        )
        self.store = store
        self.reason = reason
        self.hint = hint
        self.setting = setting


class CommitUnknownError(StoreUnavailableError):
    """The connection was lost in COMMIT: the write may have happened. Read before anything is repeated (F5)."""


class ValueTooLargeError(AdkError):
    """A value is larger than is taken at once; nothing was written. ``what`` says which value, ``cap`` which cap."""

    def __init__(self, *, what: str, size: int, max_bytes: int, cap: str = "the store's max_value_bytes") -> None:
        super().__init__(
            f"{what} has {size} bytes, and at most {max_bytes} are taken ({cap}); store less, or raise that cap."
        )
        self.cap = cap
        self.what = what
        self.size = size
        self.max_bytes = max_bytes


class BrokerUnavailableError(AdkError):
    """The broker did not take a message. Its ticket is in the store: the reaper publishes it once its lease lapses."""

    retryable = True

    def __init__(self, *, broker: str, reason: str) -> None:
        super().__init__(
            f"the broker {broker} did not take the message: {reason.rstrip('.')}. Check ADK_BROKER_URL and that it is "
            "up; the reaper will publish the message again."
        )
        self.broker = broker
        self.reason = reason


class UnreadableMessageError(AdkError):
    """A message of another version, or none of ours. ``reason`` repeats nothing of its contents but names."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(f"the message cannot be read: {reason}. It is dropped; the reaper will publish its run again.")
        self.reason = reason
