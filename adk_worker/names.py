"""Names that a caller chooses: tenants and run ids.

Every store keys its rows by the pair (tenant, run_id) in two columns, never by one joined string, so that no name can
reach into another's rows (T1). What remains for this module is to refuse the names that some store or terminal could
not carry unchanged: it is one place, so that every store refuses the same ones.
"""

from __future__ import annotations

import unicodedata

from adk_worker.errors import InvalidNameError

MAX_NAME_BYTES = 512
"""Longest name in bytes of UTF-8: three of them still fit into one B-tree entry of PostgreSQL (2,704 bytes)."""


def check_name(value: object, *, what: str) -> str:
    """Return ``value`` if it can name a tenant or a run, else raise :class:`InvalidNameError`.

    A name is a non-empty string of at most ``MAX_NAME_BYTES`` bytes without control characters (NUL among them), lone
    surrogates, or white space at either end. Anything else is allowed and is taken literally: ``*``, ``:``, ``%``,
    ``../`` and every script.
    """
    if not isinstance(value, str):
        raise InvalidNameError(what=what, reason=f"it must be a string, not {type(value).__name__}")
    if not value.strip():
        raise InvalidNameError(what=what, reason="it is empty")
    if value != value.strip():
        raise InvalidNameError(what=what, reason="it begins or ends with white space")
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in value):
        raise InvalidNameError(what=what, reason="it contains a control character or a lone surrogate")
    if len(value.encode()) > MAX_NAME_BYTES:
        raise InvalidNameError(what=what, reason=f"it is longer than {MAX_NAME_BYTES} bytes of UTF-8")
    return value


def check_run(tenant: object, run_id: object) -> tuple[str, str]:
    """Return ``(tenant, run_id)`` if both are names (see :func:`check_name`), else raise ``InvalidNameError``."""
    return check_name(tenant, what="tenant"), check_name(run_id, what="run id")
