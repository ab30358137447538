"""Which values can be secrets, and which stand in for one: templates, types, references, words about secrets."""

from __future__ import annotations

import re
from typing import Final

from adk_worker.detection.names import named_by, words

_LONGEST_STAND_IN: Final = 256
"""Whatever is longer is itself: nothing that stands in for a secret is."""

_LONGEST_WORD: Final = 20
"""More letters than this in a row are no word."""

_STAND_IN: Final = re.compile(
    r"""
      :?(?:[*•.?_–…-]+|[xX\#][*•.xX\#_?–…-]{2,})   # blotted out already
    | [\[\](){}]+ | \{\w+                         # the begin of a list or of an object
    | \[[A-Za-z][\w -]*\] | <[^<>]*> | __\w+__   # [REDACTED], <password>
    | [^\w\s{%]*(?:(?:\{[^{}"']*\}|%(?:\(\w+\))?[sdr])[^\w\s{%]*)+   # format strings
    | %[A-Za-z_]+% | \$[A-Z_][A-Z0-9_]* | \$[a-z_]+ | \$\d
    | !(?i:vault|secret|ref|sub|env|reference|getatt|include|importvalue|encrypted)\S*   # YAML's tags
    | (?i:basic|bearer|digest|negotiate|token|aws4-hmac-sha256)\ *
    | (?i:your|insert|example)[-_\ ].*
    | (?i:your(?:api|secret|access|auth)?(?:key|token|password|secret)).*
    | (?i:none|null|nil|true|false|yes|no|on|off|undefined|nan|n/a|tbd|todo|unset|empty|void|str|string)
    """,
    re.VERBOSE,
)
_SCHEME: Final = re.compile(r"(?i:bearer|basic|token|api-?key|bot|oauth)[ ]{1,4}(?=\S+$)")
_EXPANDED: Final = re.compile(r"\$\{|\{\{|\$\(|<%")
_REFERENCE: Final = re.compile(r"[A-Za-z_]*[._][A-Za-z_.]*|&?[A-Za-z_][\w.]{0,100}[(\[].*|\(.*", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_][\w.-]{0,40}")
_PARTED: Final = re.compile(r"[_.-]")
_NUMBER: Final = re.compile(r"[\d.,:%/x×+–$€-]+")
_WORD_BREAK: Final = re.compile("['\u2019-]")
_TYPE_NAME: Final = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]+)+")
_TECHNICAL: Final = re.compile(
    r"(?i)(?:sha|md|aes|utf|base|rsa|ed|argon|pbkdf|bcrypt|oauth|http|tls|ssl|rfc|iso|hs|rs|es|v|x|p)?"
    r"[-/]?\d{1,5}(?:id|k|w|d)?(?:[-./+][A-Za-z0-9]{1,8}){0,3}"
)

# Names of other things: addresses, dates, folders, resources, and keys of our own calls.
_ELSEWHERE: Final = re.compile(
    r"""
      [a-z][a-z0-9+.-]{1,20}://\S*
    | (?:~|\.{1,2})?/[a-z0-9_.-]+(?:/[a-z0-9_.-]+)*/?
    | (?:arn|urn):\S+
    | \d{4}-\d\d-\d\d(?:[T ][\d:.,+Z-]+)?
    | adk1-[0-9a-f]{40}
    | \#(?:[0-9A-Fa-f]{3}){1,2}
    """,
    re.VERBOSE,
)
_EMAIL: Final = re.compile(r"[\w.+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}")

_ABOUT_SECRETS: Final = words("""
    a absent accepted access admin after algorithm all allowed an and any are argument as asked at attribute auth
    authentication auto available based basic bearer before below blank bool boolean bucket budget bytes cannot
    changed char character characters choose combination compromised confirm copied correct count counts created
    credential credentials default deleted denied deprecated described disabled display do does empty enabled
    encrypted end enter entered entry error exhausted expired expires expiry failed failure false field fields file
    first for forbidden forgotten format found from generate generated generator get given granted guide handling
    hash hashed header help here hidden hint how if ignored in incorrect input insert invalid is issue issued it key
    last leaked length letter letters like limit limits lost manager mandatory masked match matches may method
    mismatch missing mixed model must name needed new nil no none not null number ok old omitted on one only
    optional or output page parameter pass password passwords please policies policy present private prompt property
    protected protection provided public random received recovery redacted refresh refused rejected removed renewed
    replaced request required reset revoked ring rotated rotation rules same saved secret secrets secure see select
    sent server session set settings short should shown something status stored str strength string strings strong
    success test text that the their them then they this to token tokens too true type types unchanged undefined
    unknown unset up update updated usage use used user username using valid validation value values variable
    verified wait was weak when where which will with wrong yes you your
""")


def stands_in(value: str) -> bool:
    """Whether ``value`` is no secret but the place of one: ``${TOKEN}``, ``<password>``, ``****``, ``None``."""
    if len(value) > _LONGEST_STAND_IN:
        return False
    return not value or bool(_STAND_IN.fullmatch(value) or _EXPANDED.search(value))


def scheme_end(value: str) -> int:
    """Where the scheme of an ``Authorization`` header ends and its credential begins; 0 if ``value`` has no scheme."""
    match = _SCHEME.match(value)
    return 0 if match is None else match.end()


def is_technical(value: str) -> bool:
    """Whether ``value`` is the name of an algorithm, a standard or a version: ``sha256``, ``v1.2``."""
    return _TECHNICAL.fullmatch(value) is not None


def is_elsewhere(value: str) -> bool:
    """Whether ``value`` names where something is: an address, a folder, a date, a resource."""
    return len(value) <= _LONGEST_STAND_IN and _ELSEWHERE.fullmatch(value) is not None


def is_email(value: str) -> bool:
    """Whether ``value`` is an e-mail address."""
    return len(value) <= _LONGEST_STAND_IN and _EMAIL.fullmatch(value) is not None


def is_reference(value: str) -> bool:
    """Whether ``value`` reads as code that gets the secret from elsewhere: ``self.s3_token``, ``getpass()``."""
    if len(value) > _LONGEST_STAND_IN:
        return False
    if _REFERENCE.fullmatch(value) is not None:
        return True
    return _NAME.fullmatch(value) is not None and _reads_as_name(value)


def _reads_as_name(value: str) -> bool:
    # Random characters may happen to end like the name of a secret, and people choose `Password1`: names have few
    # digits, and none where nothing parts their words.
    digits = sum(map(str.isdigit, value))
    return named_by(value) is not None and digits <= (2 if _PARTED.search(value) else 0)


def is_number(value: str) -> bool:
    """Whether ``value`` is made of digits and what goes with them."""
    return _NUMBER.fullmatch(value) is not None


def is_word(value: str) -> bool:
    """Whether ``value`` could be a word of some language, with hyphens and apostrophes."""
    return all(len(part) <= _LONGEST_WORD and part.isalpha() for part in _WORD_BREAK.split(value))


def is_type_name(value: str) -> bool:
    """Whether ``value`` reads as the name of a class: ``SecretStr``."""
    return _TYPE_NAME.fullmatch(value) is not None


def is_about_secrets(value: str) -> bool:
    """Whether ``value`` is a word that people use when they write about passwords and tokens."""
    return value.lower() in _ABOUT_SECRETS


def is_telling(value: str) -> bool:
    """Whether ``value`` looks like a secret even in mid-sentence: letters and digits, and nothing technical."""
    return (
        len(value) >= 6  # noqa: PLR2004 - shorter ones are versions, ordinals, units
        and any(character.isalpha() for character in value)
        and any(character.isdigit() for character in value)
        and not is_technical(value)
    )
