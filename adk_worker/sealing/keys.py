"""Seals, and the keys that make and open them (R2).

A *seal* is a text, ``s1.KEY.DATA``: AES-256-GCM under the key named, with tenant, run and the placeholder's number as
associated data. So it opens in that run alone and for that placeholder alone, whoever moves rows about in the store.
``DATA`` is base64url of a random nonce of 12 bytes and the ciphertext with its tag; it tells the length of the original
and nothing else.

Keys are kept outside the store: in ``ADK_SEAL_KEYS``, or in a file (:mod:`adk_worker.sealing.key_file`). There may be
several, each with an id. The first one seals, all of them open, so that keys can be rotated while runs are under way.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Self

from adk_worker.errors import ConfigurationError, SealKeyMissingError
from adk_worker.messages import canonical_json

KEY_BYTES: Final = 32
"""Of AES-256."""

_NONCE_BYTES: Final = 12
_FORMAT: Final = "s1"
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_SEAL: Final = re.compile(rf"{_FORMAT}\.({_ID.pattern})\.([A-Za-z0-9_-]+)")
_WANTED: Final = f"ID:SECRET, the secret {KEY_BYTES} random bytes in base64url, as `adk seal keys new` prints it"


@dataclass(frozen=True, slots=True)
class SealKey:
    """A key and the id by which a seal names it: 1 to 32 letters of ASCII, digits, ``-`` and ``_``.

    :raises ConfigurationError: no such id, or no such key; it repeats nothing of the key.
    """

    id: str
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            # What stands there may be the key itself, put down without its id.
            raise ConfigurationError(
                "the id of a seal key has to be 1 to 32 letters of ASCII, digits, '-' and '_', and begin with none of "
                f"these two signs. A key is written as {_WANTED}."
            )
        if len(self.secret) != KEY_BYTES:
            raise ConfigurationError(
                f"the seal key {self.id!r} has {len(self.secret)} bytes; it has to have {KEY_BYTES}. `adk seal keys "
                "new` makes one."
            )

    @classmethod
    def new(cls, key_id: str) -> Self:
        """A key nobody has had before."""
        return cls(key_id, secrets.token_bytes(KEY_BYTES))

    @property
    def text(self) -> str:
        """The key as settings and files have it. Show it to nobody."""
        return f"{self.id}:{base64.urlsafe_b64encode(self.secret).decode().rstrip('=')}"


@dataclass(frozen=True, slots=True)
class SealKeys:
    """The keys of a process: the first one seals, all of them open. Without one, nothing is sealed.

    :raises ConfigurationError: an id is there twice.
    """

    keys: tuple[SealKey, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.ids)) < len(self.keys):
            twice = next(name for name in self.ids if self.ids.count(name) > 1)
            raise ConfigurationError(f"there are two seal keys with the id {twice!r}; each needs an id of its own.")

    def __bool__(self) -> bool:
        return bool(self.keys)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """The keys in these texts, each ``ID:SECRET``; empty texts are passed over.

        :raises ConfigurationError: one of them is no key; it is named by its place, and nothing of it repeated.
        """
        return cls(tuple(_key(text.strip(), place) for place, text in enumerate(texts, 1) if text.strip()))

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids, that of the key that seals first."""
        return tuple(key.id for key in self.keys)

    def of_run(self, tenant: str, run_id: str) -> RunSeals:
        """What seals and opens for one run."""
        return RunSeals(self, tenant, run_id)


def _key(text: str, place: int) -> SealKey:
    key_id, separator, secret = text.partition(":")
    try:
        decoded = base64.b64decode(secret + "=" * (-len(secret) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if not separator or not decoded:
        raise ConfigurationError(f"seal key number {place} cannot be read: it has to be {_WANTED}.")
    return SealKey(key_id, decoded)


def key_of(seal: str) -> str | None:
    """The id of the key that a seal was made with; ``None`` if it is no seal."""
    match = _SEAL.fullmatch(seal)
    return None if match is None else match[1]


@dataclass(frozen=True, slots=True)
class RunSeals:
    """Seals and opens for one run, by the keys of this process."""

    keys: SealKeys
    tenant: str
    run_id: str

    @property
    def can_seal(self) -> bool:
        """Whether there is a key to seal with."""
        return bool(self.keys)

    def seal(self, original: str, *, number: int) -> str:
        """The seal of the original of ``[secret:number]``, under the first key. Twice the same gives two seals."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - only what seals waits for it

        key = self.keys.keys[0]
        nonce = secrets.token_bytes(_NONCE_BYTES)
        data = AESGCM(key.secret).encrypt(
            nonce, original.encode("utf-8", "surrogatepass"), self._bound_to(key.id, number)
        )
        return f"{_FORMAT}.{key.id}.{base64.urlsafe_b64encode(nonce + data).decode().rstrip('=')}"

    def open(self, seal: str, *, number: int) -> str:
        """The original of ``[secret:number]``.

        :raises SealKeyMissingError: the key is not here, or the one of that id does not open it: it is another key, or
            the seal another run's or placeholder's, or damaged.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        match = _SEAL.fullmatch(seal)
        key_id = match[1] if match else "unknown"
        key = next((key for key in self.keys.keys if key.id == key_id), None)
        if match is None or key is None:
            raise self._missing(key_id)
        try:
            data = base64.urlsafe_b64decode(match[2] + "=" * (-len(match[2]) % 4))
            opened = AESGCM(key.secret).decrypt(
                data[:_NONCE_BYTES], data[_NONCE_BYTES:], self._bound_to(key.id, number)
            )
        except (InvalidTag, ValueError):
            raise self._missing(key_id, here=True) from None
        return opened.decode("utf-8", "surrogatepass")

    def current(self, seal: str) -> bool:
        """Whether a seal is under the key that seals now."""
        return bool(self.keys) and key_of(seal) == self.keys.ids[0]

    def _bound_to(self, key_id: str, number: int) -> bytes:
        return canonical_json([_FORMAT, key_id, self.tenant, self.run_id, number]).encode()

    def _missing(self, key_id: str, *, here: bool = False) -> SealKeyMissingError:
        return SealKeyMissingError(
            tenant=self.tenant, run_id=self.run_id, key_id=key_id, known=self.keys.ids, does_not_open=here
        )
