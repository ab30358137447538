"""URLs of servers, as they may be shown."""

from __future__ import annotations

import re

_PASSWORD = re.compile(r"(://[^/?#:\s]*):.*@", re.DOTALL)
_SECRET_PARAMETER = re.compile(r"([?&][^=&]*(?:password|passwd|secret|token|key)[^=&]*=)[^&#;\s]*", re.IGNORECASE)


def without_secrets(url: str) -> str:
    """``url`` with its password, and parameters named like one, replaced by ``***``.

    Meant for errors, logs and reprs, so it errs on the side of hiding: all between the first user's name and the last
    ``@`` is taken for a password, other servers of a list included.
    """
    return _SECRET_PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))
