"""Masking: no secret goes further than where its text enters the run (R1, R2, R3).

Text, arguments and metadata are masked once, where they enter, and only the masked text goes on: to the model, to
sizing, to every store, event and log. What replaces a secret is a placeholder, ``[secret:1]``. Without seal keys the
original is kept nowhere, and a call whose arguments contain a placeholder is refused, so masked text is never executed
(:meth:`Masker.without_original`).

**Seal keys.** With them the original is kept in the masker's state, encrypted and bound to its run
(:mod:`adk_worker.sealing`), and is put back in what is handed to a tool, there alone (:meth:`Masker.put_back`). A
secret whose original is known keeps its number for the rest of the run, whatever it looks like, and is found wherever a
text repeats it (:mod:`adk_worker.sealing.originals`).

**Numbers.** A placeholder's number rises by first occurrence in the run. A secret that cannot be guessed (a vendor's
key, a JWT, a private key: whatever a machine made) keeps its number for the rest of the run, in whichever process: the
frontier carries the masker's state, and in it a fingerprint per number, HMAC-SHA256 under a random salt of the run. A
secret that *can* be guessed (a password, and whatever else only its name gave away) keeps its number within one text or
one JSON value, and gets a new one in the next. The reason is the store's reader: the salt lies beside the fingerprint,
so trying words would soon find the one behind that of ``hunter2``, while nobody tries 160 random bits. A key that is
kept outside the store lifts the distinction.

The next number depends on nothing but the state and the text. So a resumed run numbers as the live one would have, and
both read the same.

**Forged placeholders.** Anyone may write ``[secret:7]``, the model included. It is left as it is, it leads to a refusal
unless that secret is kept, and its number is passed over from then on: no secret is ever given a number that a text has
used. That also holds for outcomes that another process masked, provided that they pass through the masker when they
come back in; where both have given one number to different secrets, the outcome's is changed (:meth:`Masker.outcome`).

**Limits.** What neither looks like a secret nor is named as one is not found: a password in mid-sentence or behind a
short option (``-p``), a passphrase of several words without quotes, a value on the line after its name, a vendor's key
glued to a word, a secret repeated elsewhere without its name (unless its original is kept, and has six characters).
Names are English ones. Session cookies, signatures of presigned URLs and one-time codes are not masked. The other way
round, a tool's argument called ``token`` counts as a secret: one for paging is better called ``page_token``.
``python -m benchmarks.redaction_corpus`` measures misses and false positives.
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
from adk_worker.outcomes import ToolOutcome
from adk_worker.redaction.placeholders import (
    PLACEHOLDER,
    contains_placeholder,
    matches_in,
    number_of,
    placeholder,
    placeholders_in,
    replaced,
)
from adk_worker.sealing.keys import SealKeys
from adk_worker.sealing.originals import Originals

__all__ = ["Masker", "Redactor", "contains_placeholder", "placeholders_in"]

_REMEMBERED: Final = 256
"""Fingerprints kept per run, the newest ones: a bound on what the state adds to every checkpoint (about 10 KB)."""

_HIGHEST_FORGED: Final = 10**9
"""A number that a text from outside has in a placeholder is not given to a secret, unless it is above this one."""

_PASSES: Final = 6
"""How often masked text is searched again at most, for what only the mask has laid bare."""


class _State(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    last: int = Field(default=0, ge=0)
    salt: str = Field(default="", pattern=r"^(?:[0-9a-f]{32})?$")
    known: dict[Annotated[str, Field(pattern=r"^[0-9a-f]{24}$")], int] = Field(default_factory=dict)
    sealed: dict[Annotated[str, Field(pattern=r"^[1-9][0-9]{0,9}$")], str] = Field(default_factory=dict)


@dataclass(frozen=True)
class Redactor:
    """What is masked: configuration, compiled once, without state. Safe to share between runs, loops and threads.

    :param extra_patterns: regular expressions, as text or compiled, for secrets of one's own. The group ``secret`` is
        masked where a pattern has one, else all of the match. They should run in linear time: texts may be hostile.
    :param enabled: ``False`` masks nothing; the caller answers for what is then stored.
    :param seal_keys: with a key in it, originals are kept, sealed, and given back to tools (R2).

    :raises ConfigurationError: a pattern does not compile, is for bytes, or matches the empty text.
    """

    extra_patterns: Sequence[str | re.Pattern[str]] = ()
    enabled: bool = True
    seal_keys: SealKeys = field(default=SealKeys(), repr=False)
    rules: tuple[Rule, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.extra_patterns, str):
            raise ConfigurationError("extra_patterns is one text; give a sequence of patterns.")
        object.__setattr__(self, "extra_patterns", tuple(self.extra_patterns))
        object.__setattr__(self, "rules", (*RULES, *map(_extra_rule, self.extra_patterns)))

    def masker(self, state: Mapping[str, Any] | None = None, *, of: tuple[str, str] | None = None) -> Masker:
        """The masker of a run: a new run's, or the one that goes on where ``state`` (:meth:`Masker.state`) ended.

        :param of: the run's tenant and id, to which originals are bound; without them none is kept, and none opens.
        :raises CheckpointFormatError: this version does not read ``state`` (C4).
        """
        return Masker(self, state or {}, of)


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

    def __init__(self, redactor: Redactor, state: Mapping[str, Any], of: tuple[str, str] | None = None) -> None:
        try:
            read = _State.model_validate(dict(state))
        except ValidationError as error:
            raise CheckpointFormatError(found="masks of another form", supported=CHECKPOINT_FORMAT) from error
        self._redactor = redactor
        self._last = read.last
        self._salt = read.salt
        self._known = dict(sorted(read.known.items(), key=lambda item: item[1]))
        self._originals = Originals(redactor.seal_keys.of_run(*of) if of else None, read.sealed)
        self.seals = bool(of and redactor.seal_keys)
        """Whether originals are kept here."""
        # Of the value in hand: what was masked as what, and texts without a secret. Names of entries come up again.
        self._here: dict[str, str] = {}
        self._clean: set[str] = set()

    def state(self) -> dict[str, Any]:
        """What the next masker of this run needs, as JSON; empty as long as nothing was masked."""
        sealed = self._originals.state()
        return _State(last=self._last, salt=self._salt, known=self._known, sealed=sealed).model_dump(
            exclude_defaults=True
        )

    def check_seals(self) -> None:
        """See that all that the run has sealed opens here, before anything of it is carried on.

        :raises SealKeyMissingError: it does not; the key is named.
        """
        self._originals.check()

    def without_original(self, value: Any) -> tuple[str, ...]:
        """The placeholders in ``value`` that cannot be put back; a call with such arguments is refused (R2)."""
        return self._originals.unknown_in(value)

    def put_back(self, value: Any) -> Any:
        """A copy of ``value`` with the originals in place of their placeholders: for a tool, and for nobody else."""
        return self._originals.put_back(value)

    def outcome(self, outcome: ToolOutcome, *, besides: Mapping[str, Any]) -> ToolOutcome:
        """A tool's outcome, masked, with the seals of what it says, all but those that ``besides`` (a state) has.

        One that another process masked brings its own seals, and numbers from there. Where the same secret has a number
        here, or its number is taken, the placeholder is changed.

        :raises SealKeyMissingError: such a seal does not open here.
        """
        content = outcome.content
        if outcome.sealed:
            mine = {int(number): self._adopted(int(number), seal) for number, seal in outcome.sealed.items()}
            content = replaced(
                content, lambda match: placeholder(new) if (new := mine.get(number_of(match) or 0)) else match[0]
            )
        content = self.json(content)
        sealed = self._originals.seals_in(content, besides=besides.get("sealed", {}))
        return outcome.model_copy(update={"content": content, "sealed": sealed})

    def _adopted(self, number: int, seal: str) -> int:
        """The number here of a secret that another process has given ``number``."""
        original = self._originals.unsealed(str(number), seal)
        known = self._originals.number_of(original)
        if known is not None:
            return known
        if number <= self._last:
            number = self._last + 1
        self._last = number
        self._originals.keep(number, original)
        return number

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
                name = placeholder(self._new())
            named = self._named_by(value, name, key)
            masked[name] = self._value(item) if named is None else self._named(item, named)
        return masked

    def _named_by(self, entry: dict[Any, Any], name: Any, key: Any) -> Named | None:
        """What an entry's name announces, or the name beside its value: ``{"name": "DB_PASSWORD", "value": …}``.

        Names count as they read once masked, so that masking them again finds the same. A placeholder names nothing.
        """
        beside = (entry.get("name"), entry.get("key")) if key == "value" else ()
        names = [name, *(self._text(text) for text in beside if isinstance(text, str))]
        announced = (named_by(PLACEHOLDER.sub("", text)) for text in names if isinstance(text, str))
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
            shadow = PLACEHOLDER.sub(lambda match: FILLER * len(match[0]), text)
            found = [span for span in spans_in(shadow, self._redactor.rules) if not _is_masked(shadow, span)]
            pieces: list[str] = []
            at = 0
            for start, end, guessable in found:
                pieces += text[at:start], self._placeholder(text[start:end], guessable=guessable)
                at = end
            for start, end, number in () if found else self._originals.echoes_in(shadow):
                pieces += text[at:start], placeholder(number)
                at = end
            if not pieces:
                break
            text = "".join(pieces) + text[at:]
        if text is given:
            self._clean.add(text)
        return text

    def _whole(self, text: str, named: Named) -> str:
        start = scheme_end(text) if named is Named.TOKEN else 0
        scheme, secret = text[:start], text[start:]
        if not PLACEHOLDER.sub("", secret).strip():
            return text
        guessable = all(span.guessable for span in spans_in(secret, self._redactor.rules))
        return scheme + self._placeholder(secret, guessable=guessable)

    def _placeholder(self, original: str, *, guessable: bool) -> str:
        """The placeholder of ``original``: the one place where the two meet."""
        if original not in self._here:
            number = self._originals.number_of(original)
            if number is None:
                number = self._new() if guessable else self._remembered(original)
                self._originals.keep(number, original)
            self._here[original] = placeholder(number)
        return self._here[original]

    def _remembered(self, original: str) -> int:
        self._salt = self._salt or secrets.token_hex(16)
        digest = hmac.new(bytes.fromhex(self._salt), original.encode("utf-8", "surrogatepass"), hashlib.sha256)
        fingerprint = digest.hexdigest()[:24]
        number = self._known.get(fingerprint)
        if number is None:
            number = self._known[fingerprint] = self._new()
            if len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]
        return number

    def _new(self) -> int:
        self._last += 1
        return self._last

    def _pass_over(self, number: int) -> None:
        if self._last < number <= _HIGHEST_FORGED:
            self._last = number


def _numbers_in(value: Any) -> Iterator[int]:
    return (number for match in matches_in(value) if (number := number_of(match)) is not None)


def _is_masked(shadow: str, span: Span) -> bool:
    return not shadow[span.start : span.end].strip(FILLER)
