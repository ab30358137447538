"""Masking: no secret goes further than where its text enters the run (R1, R2, R3).

Text, arguments and metadata are masked once, where they enter, and only the masked text goes on: to the model, to
sizing, to every store, event and log. The original is kept nowhere. What replaces it is a placeholder, ``[secret:1]``;
a call whose arguments contain one is refused, so masked text is never executed (:func:`contains_placeholder`).

**Numbers.** A placeholder's number rises by first occurrence in the run. A secret that cannot be guessed (a vendor's
key, a JWT, a private key: whatever a machine made) keeps its number for the rest of the run, in whichever process: the
frontier carries the masker's state, and in it a fingerprint per number, HMAC-SHA256 under a random salt of the run. A
secret that *can* be guessed (a password, and whatever else only its name gave away) keeps its number within one text or
one JSON value, and gets a new one in the next. The reason is the store's reader: the salt lies beside the fingerprint,
so trying words would soon find the one behind that of ``hunter2``, while nobody tries 160 random bits. A key that is
kept outside the store would lift the distinction.

The next number depends on nothing but the state and the text. So a resumed run numbers as the live one would have, and
both read the same.

**Forged placeholders.** Anyone may write ``[secret:7]``, the model included. It is left as it is, it leads to a refusal
like any other, and its number is passed over from then on: no secret is ever given a number that a text has used. That
also holds for outcomes that another process masked, provided that they pass through the masker when they come back in.

**Limits.** What neither looks like a secret nor is named as one is not found: a password in mid-sentence or behind a
short option (``-p``), a passphrase of several words without quotes, a value on the line after its name, a vendor's key
glued to a word, a secret repeated elsewhere without its name. Names are English ones. Session cookies, signatures of
presigned URLs and one-time codes are not masked. The other way round, a tool's argument called ``token`` counts as a
secret: one for paging is better called ``page_token``. ``python -m benchmarks.redaction_corpus`` measures misses and
false positives.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adk_worker.checkpoint import CHECKPOINT_FORMAT
from adk_worker.detection import RULES, Named, Rule, Span, named_by, spans_in
from adk_worker.detection.rule import FILLER
from adk_worker.detection.values import scheme_end
from adk_worker.errors import CheckpointFormatError, ConfigurationError

# Also as a model may copy it.
_PLACEHOLDER: Final = re.compile(r"\[[ ]{0,2}secret[ ]{0,2}:[ ]{0,2}([0-9]+)[ ]{0,2}\]", re.IGNORECASE | re.ASCII)

_REMEMBERED: Final = 256
"""Fingerprints kept per run, the newest ones: a bound on what the state adds to every checkpoint (about 10 KB)."""

_HIGHEST_FORGED: Final = 10**9
"""Numbers above this one are not passed over when they are met. None of ours gets there."""

_PASSES: Final = 4
"""How often masked text is searched again at most, for what only the mask has laid bare."""


class _State(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    last: int = Field(default=0, ge=0)
    salt: str = Field(default="", pattern=r"^(?:[0-9a-f]{32})?$")
    known: dict[Annotated[str, Field(pattern=r"^[0-9a-f]{24}$")], int] = Field(default_factory=dict)


@dataclass(frozen=True)
class Redactor:
    """What is masked: configuration, compiled once, without state. Safe to share between runs, loops and threads.

    :param extra_patterns: regular expressions, as text or compiled, for secrets of one's own. The group ``secret`` is
        masked where a pattern has one, else all of the match. They should run in linear time: texts may be hostile.
    :param enabled: ``False`` masks nothing; the caller answers for what is then stored.

    :raises ConfigurationError: a pattern does not compile, is for bytes, or matches the empty text.
    """

    extra_patterns: Sequence[str | re.Pattern[str]] = ()
    enabled: bool = True
    rules: tuple[Rule, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.extra_patterns, str):
            raise ConfigurationError("extra_patterns is one text; give a sequence of patterns.")
        object.__setattr__(self, "extra_patterns", tuple(self.extra_patterns))
        object.__setattr__(self, "rules", (*RULES, *map(_extra_rule, self.extra_patterns)))

    def masker(self, state: Mapping[str, Any] | None = None) -> Masker:
        """The masker of a run: a new run's, or the one that goes on where ``state`` (:meth:`Masker.state`) ended.

        :raises CheckpointFormatError: ``state`` is none that this version reads (C4).
        """
        return Masker(self, state or {})


def _extra_rule(pattern: str | re.Pattern[str]) -> Rule:
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ConfigurationError(f"extra pattern {pattern!r} is no regular expression: {error}.") from error
    if not isinstance(compiled.pattern, str):
        raise ConfigurationError(f"extra pattern {pattern!r} is for bytes; give one for text.")
    if compiled.search(""):
        raise ConfigurationError(f"extra pattern {pattern!r} matches the empty text; say what a secret consists of.")
    return Rule("extra", compiled)


class Masker:
    """Masks what enters one run, and numbers what it masks. Made by :meth:`Redactor.masker`. One loop's, not shared.

    Masking what is masked changes nothing.
    """

    def __init__(self, redactor: Redactor, state: Mapping[str, Any]) -> None:
        try:
            read = _State.model_validate(dict(state))
        except ValidationError as error:
            raise CheckpointFormatError(found="masks of another form", supported=CHECKPOINT_FORMAT) from error
        self._redactor = redactor
        self._last = read.last
        self._salt = read.salt
        self._known = dict(sorted(read.known.items(), key=lambda item: item[1]))
        # Of the value in hand: what was masked as what, and texts without a secret. Names of entries come up again.
        self._here: dict[str, str] = {}
        self._clean: set[str] = set()

    def state(self) -> dict[str, Any]:
        """What the next masker of this run needs, as JSON; empty as long as nothing was masked."""
        return _State(last=self._last, salt=self._salt, known=self._known).model_dump(exclude_defaults=True)

    def text(self, text: str) -> str:
        """``text`` with every secret replaced."""
        masked: str = self.json(text)
        return masked

    def json(self, value: Any) -> Any:
        """A copy of ``value`` with every secret replaced, at any depth, in dict keys too.

        A text that stands under a name for secrets (``{"password": …}``, ``{"name": "password", "value": …}``) is
        replaced whole, whatever it looks like. Numbers, booleans, ``None`` and bytes are left alone.
        """
        if not self._redactor.enabled:
            return value
        try:
            for number in _numbers_in(value):
                self._pass_over(number)
            return self._value(value)
        finally:
            self._here.clear()
            self._clean.clear()

    # --- walking ------------------------------------------------------------------------------------------------

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return self._dict(value)
        if isinstance(value, list | tuple):
            masked = map(self._value, value)
            return list(masked) if isinstance(value, list) else tuple(masked)
        return value

    def _dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        masked: dict[Any, Any] = {}
        for key, item in value.items():
            name = self._text(key) if isinstance(key, str) else key
            while name in masked:  # somebody forged the placeholder that another key got: no entry may be lost
                name = self._next()
            named = self._named_by(value, name, key)
            masked[name] = self._value(item) if named is None else self._named(item, named)
        return masked

    def _named_by(self, entry: dict[Any, Any], name: Any, key: Any) -> Named | None:
        """What an entry's name announces, or the name beside its value: ``{"name": "DB_PASSWORD", "value": …}``.

        Names count as they read once masked, so that masking them again finds the same. A placeholder names nothing.
        """
        beside = (entry.get("name"), entry.get("key")) if key == "value" else ()
        names = [name, *(self._text(text) for text in beside if isinstance(text, str))]
        announced = (named_by(_PLACEHOLDER.sub("", text)) for text in names if isinstance(text, str))
        return next(filter(None, announced), None)

    def _named(self, value: Any, named: Named) -> Any:
        """What stands under a name for secrets: texts whole, and those of a list one by one."""
        if isinstance(value, str):
            return self._whole(value, named)
        if isinstance(value, list):
            return [self._whole(item, named) if isinstance(item, str) else self._value(item) for item in value]
        return self._value(value)

    # --- replacing ----------------------------------------------------------------------------------------------

    def _text(self, text: str) -> str:
        if text in self._clean:
            return text
        given = text
        for _ in range(_PASSES):
            shadow = _PLACEHOLDER.sub(lambda match: FILLER * len(match[0]), text)
            found = [span for span in spans_in(shadow, self._redactor.rules) if not _is_masked(shadow, span)]
            if not found:
                break
            pieces: list[str] = []
            at = 0
            for start, end, guessable in found:
                pieces += text[at:start], self._placeholder(text[start:end], guessable=guessable)
                at = end
            text = "".join(pieces) + text[at:]
        if text is given:
            self._clean.add(text)
        return text

    def _whole(self, text: str, named: Named) -> str:
        start = scheme_end(text) if named is Named.TOKEN else 0
        scheme, secret = text[:start], text[start:]
        if not _PLACEHOLDER.sub("", secret).strip():
            return text
        guessable = all(span.guessable for span in spans_in(secret, self._redactor.rules))
        return scheme + self._placeholder(secret, guessable=guessable)

    def _placeholder(self, original: str, *, guessable: bool) -> str:
        """The placeholder of ``original``: the one place where the two meet."""
        if original in self._here:
            return self._here[original]
        if guessable:
            placeholder = self._next()
        else:
            self._salt = self._salt or secrets.token_hex(16)
            digest = hmac.new(bytes.fromhex(self._salt), original.encode("utf-8", "surrogatepass"), hashlib.sha256)
            fingerprint = digest.hexdigest()[:24]
            number = self._known.get(fingerprint)
            placeholder = self._next() if number is None else f"[secret:{number}]"
            if number is None:
                self._remember(fingerprint)
        self._here[original] = placeholder
        return placeholder

    def _next(self) -> str:
        self._last += 1
        return f"[secret:{self._last}]"

    def _remember(self, fingerprint: str) -> None:
        self._known[fingerprint] = self._last
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]

    def _pass_over(self, number: int) -> None:
        if self._last < number <= _HIGHEST_FORGED:
            self._last = number


def contains_placeholder(value: Any) -> bool:
    """Whether a text anywhere in ``value``, dict keys included, has a placeholder: such a call is refused (R2)."""
    return next(_matches_in(value), None) is not None


def placeholders_in(value: Any) -> tuple[str, ...]:
    """The placeholders anywhere in ``value``, as ``[secret:N]``, each once, in order of first occurrence."""
    return tuple(dict.fromkeys(f"[secret:{match[1]}]" for match in _matches_in(value)))


def _matches_in(value: Any) -> Iterator[re.Match[str]]:
    if isinstance(value, str):
        yield from _PLACEHOLDER.finditer(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _matches_in(key)
            yield from _matches_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _matches_in(item)


def _numbers_in(value: Any) -> Iterator[int]:
    return (int(match[1]) for match in _matches_in(value) if len(match[1]) <= len(str(_HIGHEST_FORGED)))


def _is_masked(shadow: str, span: Span) -> bool:
    return not shadow[span.start : span.end].strip(FILLER)
