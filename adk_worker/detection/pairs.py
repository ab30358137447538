"""Secrets that only the name before them gives away: ``password=…``, ``token: …``, ``--api-key …``, ``<secret>…``.

The same characters may be a secret, a type, a template or the next word of a sentence. So the more a context reads like
code or prose, the more a value has to look like a secret by itself:

========  ============================  ===========================================================================
context   looks like                    what counts
========  ============================  ===========================================================================
field     ``"password": "…"``           all but what stands in for a secret
quoted    ``password = "…"``            the same, less references and words that people use to write *about* secrets
assigned  ``PASSWORD=…``, ``?token=…``  the same; as a token no word and no small number either
set       ``password = …``              a word only in a line like those of a settings file
stated    ``password: …``               a word only where the value ends the line; else what looks chosen as a secret
said      ``my password is …``          what looks chosen as a secret
flag      ``--password …``              what looks chosen as a secret
========  ============================  ===========================================================================
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from adk_worker.detection.names import Named, named_by
from adk_worker.detection.rule import Rule
from adk_worker.detection.values import (
    is_about_secrets,
    is_elsewhere,
    is_email,
    is_number,
    is_reference,
    is_technical,
    is_telling,
    is_type_name,
    is_word,
    scheme_end,
    stands_in,
)

_HINTS: Final = (
    "pass",
    "pwd",
    "token",
    "secret",
    "key",
    "authorization",
    "bearer",
    "credential",
    "jwt",
    "kennwort",
    "pw",
)


_LONGEST_OTHER: Final = 256
"""Whatever is longer is a secret, under a name of one. (It also bounds how much of a text is looked at twice.)"""


class _Context(Enum):
    """Where an unquoted value stands."""

    ASSIGNED = auto()
    SET = auto()
    STATED = auto()
    SAID = auto()
    FLAG = auto()


_NO_WORD: Final = 12
"""So many letters right behind an equals sign are rather a token than a word."""

_SHORTEST_QUOTED_TOKEN: Final = 3
_SHORTEST_TOKEN: Final = {
    _Context.ASSIGNED: 6,
    _Context.SET: 7,
    _Context.STATED: 7,
    _Context.SAID: 16,
    _Context.FLAG: 8,
}


# A name of one or two words, and what ties it to a value. `==`, `::` and `://` tie nothing.
_TIE: Final = re.compile(
    r"""
    (?:(?<![\w.\\-])|(?<=\\[nrt]))(?P<name>-*+(?:[A-Za-z]++[ ])?(?!is\b)[A-Za-z_][\w.-]*+)
    (?P<close>[\\"'`*]*+)(?:[ ]\([^()\n]{1,40}\)|\?)?(?P<before>[ \t]*+)
    (?:(?P<assigns>:=|=>|=(?!=|~[\s/]))|(?P<states>->|:(?![:/]))[*]*+|(?P<says>(?<=[ \t])is:?(?=[ \t])))
    (?P<after>[ \t]*+)
    """,
    re.VERBOSE | re.ASCII,
)

# A value in quotes (also in escaped ones: JSON within JSON), or cut off with the text; else as far as white space, a
# quote, or the next pair.
_VALUE: Final = re.compile(
    r"""
      [fbrFBR]{0,2}"(?P<double>[^"\\\n]*+(?:\\.[^"\\\n]*+)*)"
    | [fbrFBR]{0,2}'(?P<single>[^'\\\n]*+(?:\\.[^'\\\n]*+)*)'(?!\w)
    | \\++"(?P<escaped>[^"\\\n]*+(?:\\++(?!")[^"\\\n]*+)*)\\++"
    | `(?P<ticked>[^`\n]*+)`
    | \\*+["'](?P<torn>[^"'\\\n]++)\Z
    | (?P<bare>[^\s"'`,;&<>\\\ue000]++
        (?:[,;&\\](?![\s"'`,;&<>\\\ue000]|[nrt]|$|[\w.-]{1,40}[=:])[^\s"'`,;&<>\\\ue000]*+)*)
    """,
    re.VERBOSE,
)
_CLOSING: Final = ".:)]}!?*"

# Nothing more on the line, or the next pair: the value stands by itself.
_ENDS: Final = re.compile(
    r"""[)\]}"'`*.]{0,4}[ \t]{0,8}(?:$|[\r\n|]|\\[nr]"""
    r"""|[,;&][ \t]{0,8}(?:$|[\r\n]|["'\\]{0,3}[A-Za-z][\w.-]{0,40}["'\\]{0,3}[ \t]{0,8}[:=]))"""
)

_LINE_BEGINS: Final = re.compile(r"(?:^|\n|\\[nr])[ \t]*$")

_FLAG: Final = re.compile(r"(?:(?<![\w-])|(?<=\\[nrt]))--?(?P<name>[A-Za-z_][\w.-]*+)[ \t]++(?=[^\s-])", re.ASCII)
# `name="DB_PASSWORD" value="…"`, in XML, HTML, JSON and YAML.
_NAMED_BESIDE: Final = re.compile(
    r"""\b(?:name|key|id)[\\"']{0,4}\s{0,2}[:=]\s{0,2}[\\"']{0,4}(?P<name>[\w.-]{1,64})[\\"']{0,4}(?:,\s{0,40}|\s{1,40})"""
    r"""[\\"']{0,4}value[\\"']{0,4}\s{0,2}[:=]\s{0,2}[\\"']{0,4}(?P<secret>[^\s"'\\,}\ue000][^"'\\\n\ue000]{0,400})""",
    re.ASCII,
)
_ELEMENT: Final = re.compile(
    r"<(?P<name>[A-Za-z_][\w:.-]{0,63})(?:\s[^<>]{0,200})?>(?P<secret>[^<>\s][^<>\n]{0,500})</", re.ASCII
)
_NETRC: Final = re.compile(r"\blogin\s{1,4}\S{1,100}\s{1,4}password\s{1,4}(?P<secret>[^\s\"'\ue000]{1,200})", re.ASCII)
_CURL: Final = re.compile(
    r"(?<![\w-])(?:-u|--user|--proxy-user)[ =]{0,2}[\"']?(?P<user>[^\s:\"'\ue000]{1,100}):"
    r"(?P<secret>[^\s\"'\ue000]{1,200})"
)


def _tied(match: re.Match[str]) -> tuple[int, int] | None:
    named = named_by(match["name"])
    value = None if named is None else _VALUE.match(match.string, match.end())
    if named is None or value is None:
        return None
    if value["bare"] is None:
        return _quoted(value, named, field='"' in match["close"] or "'" in match["close"])
    if match["says"]:
        context = _Context.SAID
    elif match["states"]:
        context = _Context.STATED
    else:
        context = _Context.SET if match["before"] or match["after"] else _Context.ASSIGNED
    # In a file of constants, `DB_PASSWORD=super_secret` is no reference to a variable.
    constant = context is _Context.ASSIGNED and match["name"].isupper()
    return _bare(value, named, context, constant=constant, leads=_leads_its_line(match))


def _leads_its_line(match: re.Match[str], most: int = 40) -> bool:
    start = match.start()
    return _LINE_BEGINS.search(match.string[max(0, start - most) : start]) is not None


def _quoted(value: re.Match[str], named: Named, *, field: bool) -> tuple[int, int] | None:
    group = value.lastgroup or 0
    start, end = value.span(group)
    if end - start > _LONGEST_OTHER:
        return start, end
    if named is Named.TOKEN:
        start += scheme_end(value[group])
    text = value.string[start:end]
    if stands_in(text):
        return None
    if field:
        return start, end
    if is_about_secrets(text.strip()) or is_reference(text) or is_elsewhere(text):
        return None
    # In HTML, an `accesskey` is one letter.
    return (start, end) if named is Named.PASSWORD or len(text) >= _SHORTEST_QUOTED_TOKEN else None


def _bare(
    value: re.Match[str], named: Named, context: _Context, *, constant: bool = False, leads: bool = False
) -> tuple[int, int] | None:
    if len(value["bare"]) > _LONGEST_OTHER:
        return value.span("bare")
    text = value["bare"].rstrip(_CLOSING)
    if stands_in(value["bare"]) or stands_in(text) or is_about_secrets(text) or is_elsewhere(text):
        return None
    if not constant and (is_reference(value["bare"]) or is_reference(text)):
        return None
    start = value.start("bare")
    alone = _ENDS.match(value.string, start + len(text)) is not None
    if named is Named.TOKEN:
        counts = constant or _is_token(text, context, alone=alone)
    else:
        counts = _is_password(text, context, alone=alone, leads=leads)
    return (start, start + len(text)) if counts else None


def _is_password(text: str, context: _Context, *, alone: bool, leads: bool) -> bool:
    if context in {_Context.SAID, _Context.FLAG}:
        return is_telling(text)
    if context is _Context.ASSIGNED:
        return True
    if is_word(text):
        return alone and (leads if context is _Context.SET else not is_type_name(text))
    if is_number(text):
        return alone and len(text) >= 4  # noqa: PLR2004 - the shortest PIN
    return not is_email(text) and (alone or is_telling(text))


def _is_token(text: str, context: _Context, *, alone: bool) -> bool:
    if context is _Context.ASSIGNED and text.isalpha() and len(text) >= _NO_WORD:
        return True
    if is_word(text) or is_email(text) or is_technical(text):
        return False
    if is_number(text):
        return text.isdigit() and len(text) >= 10  # noqa: PLR2004 - shorter ones are counts
    opaque = any(map(str.isdigit, text)) or len(text) >= 20 or alone  # noqa: PLR2004 - no word is as long
    return opaque and len(text) >= _SHORTEST_TOKEN[context]


def _flagged(match: re.Match[str]) -> tuple[int, int] | None:
    named = named_by(match["name"])
    value = None if named is None else _VALUE.match(match.string, match.end())
    if named is None or value is None:
        return None
    return _quoted(value, named, field=False) if value["bare"] is None else _bare(value, named, _Context.FLAG)


def _named_beside(match: re.Match[str]) -> tuple[int, int] | None:
    named = named_by(match["name"])
    return None if named is None or stands_in(match["secret"]) else match.span("secret")


def _element(match: re.Match[str]) -> tuple[int, int] | None:
    named = named_by(match["name"])
    return None if named is None else _quoted(match, named, field=True)


def _login(match: re.Match[str]) -> tuple[int, int] | None:
    secret = match["secret"]
    return None if stands_in(secret) or is_about_secrets(secret) else match.span("secret")


def _curl(match: re.Match[str]) -> tuple[int, int] | None:
    secret = match["secret"]
    # `-u 1000:1000` is a user and a group.
    return None if stands_in(secret) or secret.isdigit() or secret == match["user"] else match.span("secret")


PAIRS: Final[tuple[Rule, ...]] = (
    Rule("pair", _TIE, _HINTS, locate=_tied),
    Rule("flag", _FLAG, _HINTS, locate=_flagged),
    Rule("named beside", _NAMED_BESIDE, _HINTS, locate=_named_beside, resume="name"),
    Rule("element", _ELEMENT, _HINTS, locate=_element, resume="name"),
    Rule("netrc", _NETRC, ("machine ", "default login"), locate=_login),
    Rule("curl", _CURL, ("curl",), locate=_curl),
)
"""Every rule that goes by name."""
