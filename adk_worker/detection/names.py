"""Which names name a secret: of dict entries, of JSON and YAML fields, of variables, headers, flags and parameters."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final


class Named(Enum):
    """What kind of secret a name announces."""

    PASSWORD = "password"  # noqa: S105 - the name of a kind
    """People choose it: any word and any number may be one."""
    TOKEN = "token"  # noqa: S105 - the same
    """Machines make it: a plain word or a small number does not count."""


def words(listed: str) -> frozenset[str]:
    """The set of words in a text."""
    return frozenset(listed.split())


_LONGEST: Final = 96
"""Only the end of a longer name is looked at."""

_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_PASSWORDS: Final = ("password", "passwd", "passphrase", "pwd", "passwort", "kennwort")
_SHORT_PASSWORD: Final = re.compile(r"(?i)(?:^|[_.\s-])pw$")
_REPEATED: Final = frozenset({"again", "confirm", "confirmation", "repeat"})
_SHELLS_FOLDER: Final = frozenset({"PWD", "OLDPWD"})

# `pass` of one of these is a password; a boarding pass is not.
_WHOSE_PASS: Final = words("""
    account admin amqp auth basic bind broker cert database db default email ftp ftps http imap kafka key keystore
    ldap login mail mongo mqtt my mysql pg pgsql pop3 postgres proxy rabbit rabbitmq redis registry root router sftp
    smtp ssh sudo truststore user vpn wifi wlan
""")

# What stands before `token` in names that are about something else: pages, what models read, repeated requests.
_NO_CREDENTIAL: Final = words("""
    batch bos cached change checkpoint class cls completion continuation cursor delta end eos final first
    idempotency image input iterator last list lock marker mask max min mod next nextpage num offset out output pad
    page pagination paging per prev previous prompt reasoning request resume resumption sample sep sequence skip
    space special start starting stop sub sync text total unk watch word
""")

# What stands before `key` in the names of keys that open something.
_OPENS: Final = words("""
    access account admin aes api app application auth bot client consumer crypto decryption deploy encrypt
    encryption functions hmac host integration jwt license management master private pvt rsa seal secret security
    server service shared signature signing ssh storage subscription system webhook write
""")

_TOKENS: Final = frozenset({"authorization", "bearer", "credential", "credentials", "jwt"})

# `has_token`, `show_password`: about a secret, and not one.
_ABOUT: Final = words("""
    allow bad change check enable enter forget forgot has have hide invalid is max min missing need needs no num
    remember require required requires show use uses valid validate with without wrong
""")


def named_by(name: str) -> Named | None:
    """What ``name`` announces, or ``None``. Case, camelCase and separators do not matter, trailing numbers neither.

    >>> named_by("DB_PASSWORD"), named_by("x-api-key"), named_by("nextPageToken"), named_by("password_hint")
    (<Named.PASSWORD: 'password'>, <Named.TOKEN: 'token'>, None, None)
    """
    parts = [part.lower() for part in _PARTS.findall(name[-_LONGEST:])]
    while parts and parts[-1].isdigit():
        parts.pop()
    if not parts or (len(parts) == 2 and parts[0] in _ABOUT):  # noqa: PLR2004 - the modifier and what it is about
        return None
    *before, last = parts
    if _is_password(before, last) or _SHORT_PASSWORD.search(name):
        return None if name.strip("-") in _SHELLS_FOLDER else Named.PASSWORD
    return Named.TOKEN if _is_token(before, last) else None


def _is_password(before: list[str], last: str) -> bool:
    if last.endswith(_PASSWORDS) or last == "passcode":
        return True
    if last == "pass":
        return bool(before) and before[-1] in _WHOSE_PASS
    return bool(before) and (
        (last in _REPEATED and before[-1].endswith("password")) or (last == "phrase" and before[-1] == "pass")
    )


def _is_token(before: list[str], last: str) -> bool:
    # A lone `pass` also counts the tests that passed: a small number under it is no password.
    if last in _TOKENS or last.endswith("secret") or (last == "pass" and not before):
        return True
    for tail in ("token", "key"):
        if last.endswith(tail):
            # Glued names are taken apart too: `apikey`, `authtoken`.
            prior = last.removesuffix(tail) or (before[-1] if before else "")
            return prior not in _NO_CREDENTIAL if tail == "token" else prior in _OPENS
    return False
