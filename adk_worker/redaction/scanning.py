"""What looks like a secret in what a store holds already: before masking was on, or a pattern was known.

Everything that a run has stored is searched, by the rules by which text is masked as it enters (R3). Only where and
which kind is told, never the text itself.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from adk_worker.adapters import adapter
from adk_worker.approvals.requests import Approvals
from adk_worker.detection.rule import FILLER
from adk_worker.filters import RunFilter
from adk_worker.history import ReadsSegments
from adk_worker.idempotency import Claim
from adk_worker.redaction.masking import Redactor
from adk_worker.redaction.placeholders import PLACEHOLDER
from adk_worker.runs import Run, Stores

NAMED: Final = "named"
"""The kind of what only the name gives away that it stands under."""

_PAGE: Final = 100
_EVENTS: Final = 500


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that looks like a secret. ``kind`` is the rule's, or :data:`NAMED`."""

    tenant: str
    run_id: str
    place: str
    """Where in the run: ``input``, ``metadata.user.token``, ``transcript[0].parts[0].text``, ``event 7.detail``, …"""
    kind: str


@dataclass(frozen=True, slots=True)
class Scanned:
    """A run, and what was found in it."""

    run: Run
    findings: tuple[Finding, ...]


async def scan(stores: Stores, redactor: Redactor, *, tenant: str | None = None) -> AsyncIterator[Scanned]:
    """Search every run, newest first, page by page. Only reads, and takes no lease.

    A run that moves meanwhile is searched as it is met; one that is submitted afterwards is not.
    """
    cursor: str | None = None
    while True:
        page, cursor = await stores.runs.list(RunFilter(tenant=tenant), limit=_PAGE, after=cursor)
        for run in page:
            found = [item async for item in _stored(stores, run)]
            yield Scanned(run, tuple(_findings(run, found, redactor)))
        if cursor is None:
            return


async def _stored(stores: Stores, run: Run) -> AsyncIterator[tuple[str, Any]]:
    """All that is stored of a run that may have been anybody's text, and where it stands."""
    tenant, run_id = run.tenant, run.run_id
    for name in ("agent", "input", "metadata", "detail", "output"):
        yield name, getattr(run, name)
    payload = await stores.runs.payload(run_id, tenant=tenant)
    if payload is not None:
        yield "checkpoint", {**json.loads(payload), "masks": None}
    if isinstance(stores.history, ReadsSegments):
        for segment in await stores.history.segments(run_id, tenant=tenant):
            yield "transcript", json.loads(segment)
    for claim in await stores.runs.claims(run_id, tenant=tenant):
        yield f"claim {claim.key}", _said(claim)
    yield (
        "approvals",
        adapter(Approvals).dump_python((await stores.runs.approvals(run_id, tenant=tenant)).approvals, mode="json"),
    )
    after = 0
    while events := await stores.runs.events(run_id, tenant=tenant, after=after, limit=_EVENTS):
        for event in events:
            after = event.id
            yield f"event {event.id}", dict(event.data)


def _said(claim: Claim) -> dict[str, Any]:
    """What a claim holds of anybody's text, without what is sealed."""
    said = adapter(Claim).dump_python(claim, mode="json")
    outcomes = [outcome and {**outcome, "sealed": None} for outcome in (said["outcome"], *said["late"])]
    return {"tool": claim.tool, "outcome": outcomes[0], "late": outcomes[1:], "decisions": said["decisions"]}


def _findings(run: Run, stored: list[tuple[str, Any]], redactor: Redactor) -> Iterator[Finding]:
    told = set()
    for place, value in stored:
        for path, kind in found_in(value, redactor):
            finding = Finding(run.tenant, run.run_id, f"{place}{path}", kind)
            if finding not in told:
                told.add(finding)
                yield finding


def found_in(value: Any, redactor: Redactor) -> Iterator[tuple[str, str]]:
    """Where in ``value`` masking would find a secret, and of which kind. A path shows names masked."""
    masker = redactor.masker()
    for path, leaf, text in _leaves(value):
        if masker.json(leaf) != leaf:
            kinds = _kinds(text, redactor)
            for kind in kinds or [NAMED]:
                yield masker.text(path), kind


def _kinds(text: str, redactor: Redactor) -> list[str]:
    shadow = PLACEHOLDER.sub(lambda match: FILLER * len(match[0]), text)
    folded = shadow.lower()
    rules = (rule for rule in redactor.rules if rule.may_occur(folded))
    return list(
        dict.fromkeys(rule.kind for rule in rules if any(shadow[a:b].strip(FILLER) for a, b, _ in rule.find(shadow)))
    )


Around = Callable[[Any], Any]
"""Puts a text, or a list of one, where it stands: under its name, and beside what else names it."""


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any, str]]:
    """Every text in ``value``: where it is, the text in as much around it as names it, and the text itself."""
    if isinstance(value, str):
        yield path, value, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield f"{path} (a name)", name, name
            yield from _named(item, f"{path}.{name}", _around(value, name))
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _leaves(item, f"{path}[{place}]")


def _around(entry: Mapping[str, Any], name: str) -> Around:
    beside = {other: entry[other] for other in ("name", "key") if name == "value" and other in entry}
    return lambda leaf: {**beside, name: leaf}


def _named(item: Any, path: str, around: Around) -> Iterator[tuple[str, Any, str]]:
    if isinstance(item, str):
        yield path, around(item), item
    elif isinstance(item, list):
        for place, one in enumerate(item):
            if isinstance(one, str):
                yield f"{path}[{place}]", around([one]), one
            else:
                yield from _leaves(one, f"{path}[{place}]")
    else:
        yield from _leaves(item, path)
