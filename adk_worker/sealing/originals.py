"""What stands behind the placeholders of one run, where there are seal keys (R2).

Kept sealed, and opened in the memory of a worker that carries the run on. With the originals known, a secret that a
tool's result repeats is found wherever it stands and whatever it looks like, and gets the placeholder that it has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, quote_plus

from adk_worker.errors import SealKeyMissingError
from adk_worker.redaction.placeholders import contains_placeholder, matches_in, number_of, replaced
from adk_worker.sealing.keys import RunSeals

SEALED_BYTES: Final = 128 * 1024
"""How much the seals of one run may come to: a bound on what they add to every checkpoint. What comes after that has a
placeholder and no original."""

_SHORTEST: Final = 6
"""Characters of an original that is looked for in the middle of a text: a shorter one is part of too much else."""
_SHORTEST_WHOLE: Final = 4
"""… and where the text is nothing but the original."""
_LONG: Final = 12
"""From here on an original is also found in the middle of a word."""
_CUT: Final = "…"
"""Ends a text that was shortened, perhaps in the middle of an original."""


class Echo(NamedTuple):
    """``text[start:end]`` is the original of that number, or says the same."""

    start: int
    end: int
    number: int


class Originals:
    """The originals of one run. ``sealed`` are their seals by number, as the state of its masker has them."""

    def __init__(self, seals: RunSeals | None, sealed: Mapping[str, str]) -> None:
        self._seals = seals
        self._sealed = {int(number): seal for number, seal in sealed.items()}
        self._size = sum(map(len, self._sealed.values()))
        self._by_number: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._spellings: dict[str, int] = {}
        self._closed = dict(self._sealed)
        """Seals that have not been opened yet."""

    def state(self) -> dict[str, str]:
        """The seals, each under the key that seals now, where this process can open it."""
        self._open_what_opens()
        if self._seals is not None and self._seals.can_seal:
            for number, original in self._by_number.items():
                if not self._seals.current(self._sealed[number]):
                    self._sealed[number] = self._seals.seal(original, number=number)
        return {str(number): seal for number, seal in self._sealed.items()}

    def check(self) -> None:
        """Open all there is.

        :raises SealKeyMissingError: one does not open with the keys of this process.
        """
        for number, seal in list(self._closed.items()):
            self._open(number, seal)

    def number_of(self, original: str) -> int | None:
        """The number of an original that is kept."""
        self._open_what_opens()
        return self._numbers.get(original)

    def keep(self, number: int, original: str) -> None:
        """Keep the original of that number, if there is a key to seal it with and space for it."""
        if self._seals is None or not self._seals.can_seal or number in self._sealed or contains_placeholder(original):
            return
        seal = self._seals.seal(original, number=number)
        if self._size + len(seal) <= SEALED_BYTES:
            self._size += len(seal)
            self._sealed[number] = seal
            self._opened(number, original)

    def unsealed(self, number: str, seal: str) -> str:
        """The original behind a seal that another process made.

        :raises SealKeyMissingError: it does not open with the keys of this process.
        """
        if self._seals is None:
            raise SealKeyMissingError(tenant="", run_id="", key_id="unknown")
        return self._seals.open(seal, number=int(number))

    def seals_in(self, value: Any, *, besides: Mapping[str, str]) -> dict[str, str]:
        """The seals of the placeholders in ``value``, all but those in ``besides``."""
        here = sorted({number for match in matches_in(value) if (number := number_of(match)) is not None})
        return {
            str(number): self._sealed[number]
            for number in here
            if number in self._sealed and str(number) not in besides
        }

    # --- there and back -----------------------------------------------------------------------------------------

    def unknown_in(self, value: Any) -> tuple[str, ...]:
        """The placeholders in ``value`` that have no original here."""
        self._open_what_opens()
        unknown = (match for match in matches_in(value) if number_of(match) not in self._by_number)
        return tuple(dict.fromkeys(f"[secret:{match[1]}]" for match in unknown))

    def put_back(self, value: Any) -> Any:
        """A copy of ``value`` with the original in place of each placeholder that has one."""
        self._open_what_opens()

        def original(match: re.Match[str]) -> str:
            return self._by_number.get(number_of(match) or 0, match[0])

        return replaced(value, original) if self._by_number else value

    def echoes_in(self, text: str) -> list[Echo]:
        """Where ``text`` repeats an original; in order, and without overlap."""
        self._open_what_opens()
        if not self._numbers:
            return []
        if len(text) >= _SHORTEST_WHOLE and text in self._numbers:
            return [Echo(0, len(text), self._numbers[text])]
        found: list[Echo] = []
        at = 0
        for echo in sorted(self._echoes(text), key=lambda echo: (echo.start, -echo.end)):
            if echo.start >= at:
                found.append(echo)
                at = echo.end
        return found

    def _echoes(self, text: str) -> Iterator[Echo]:
        for spelling, number in self._spellings.items():
            if spelling in text:
                before, behind = ("", "") if len(spelling) >= _LONG else (r"(?<![^\W_])", r"(?![^\W_])")
                for match in re.finditer(before + re.escape(spelling) + behind, text):
                    yield Echo(match.start(), match.end(), number)
        for cut in re.finditer(_CUT, text):
            yield from self._cut_off(text, cut.start())

    def _cut_off(self, text: str, end: int) -> Iterator[Echo]:
        """Where the text that was cut off at ``end`` ends in the beginning of an original."""
        for spelling, number in self._spellings.items():
            for length in range(min(len(spelling) - 1, end), _SHORTEST - 1, -1):
                if text.endswith(spelling[:length], 0, end):
                    yield Echo(end - length, end, number)
                    break

    # --- opening ------------------------------------------------------------------------------------------------

    def _open_what_opens(self) -> None:
        for number, seal in list(self._closed.items()):
            try:
                self._open(number, seal)
            except SealKeyMissingError:
                continue  # the run is not carried on; what can be masked of it is

    def _open(self, number: int, seal: str) -> None:
        self._opened(number, self.unsealed(str(number), seal))
        del self._closed[number]

    def _opened(self, number: int, original: str) -> None:
        self._by_number[number] = original
        self._numbers.setdefault(original, number)
        if len(original) >= _SHORTEST:
            # As it also comes: in JSON within a text, in an address.
            spelled = original, json.dumps(original)[1:-1], json.dumps(original, ensure_ascii=False)[1:-1]
            raw = original.encode("utf-8", "surrogatepass")
            for spelling in (*spelled, quote(raw, safe=""), quote_plus(raw)):
                self._spellings.setdefault(spelling, number)
