"""The endpoints under ``/control``: how a test or the demo tells the booking service to misbehave, and waits for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from examples.travel.desk import RefusedError
from examples.travel.faults import Release, Rule, UnknownError
from examples.travel.office import Answer, Office, Wanted


class _Waiting(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    rule: int | None = None
    at_least: int = Field(default=0, ge=0)
    timeout: float = Field(default=0.0, ge=0, le=60, allow_inf_nan=False)


class _Release(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    rule: int | None = None
    request: int | None = None
    then: Release = "go_on"


def control(office: Office, method: str, name: str, asked: Mapping[str, Any]) -> Answer:
    """Answer ``method`` ``/control/name``; ``asked`` is the body, or the query of a GET."""
    if (method, name) not in _ENDPOINTS:
        known = ", ".join(f"{method} /control/{name}" for method, name in _ENDPOINTS)
        return Answer.refusing(RefusedError(404, "no_such_path", f"there are {known}"))
    try:
        return _ENDPOINTS[method, name](office, asked)
    except ValidationError as error:
        return Answer.refusing(RefusedError(400, "invalid", str(error)))
    except UnknownError as error:
        return Answer.refusing(RefusedError(404, "unknown", str(error)))


def _add_rule(office: Office, asked: Mapping[str, Any]) -> Answer:
    return Answer(201, {"rule": office.faults.add(Rule.model_validate(asked))})


def _rules(office: Office) -> Answer:
    rules = [
        {"rule": made.number, "seen": made.seen, "ended": made.ended, **made.rule.model_dump()}
        for made in office.faults.rules()
    ]
    return Answer(200, {"rules": rules})


def _waiting(office: Office, asked: Mapping[str, Any]) -> Answer:
    wanted = _Waiting.model_validate(asked)
    held = office.faults.waiting(rule=wanted.rule, at_least=wanted.at_least, timeout=wanted.timeout)
    waiting = [
        {
            "request": one.request.id,
            "rule": one.rule,
            "at": one.at,
            "kind": one.request.kind,
            "tenant": one.request.run.tenant,
            "run_id": one.request.run.run_id,
            "key": one.request.key,
            "fence": one.request.fence,
        }
        for one in held
    ]
    return Answer(200, {"waiting": waiting})


def _release(office: Office, asked: Mapping[str, Any]) -> Answer:
    wanted = _Release.model_validate(asked)
    released = office.faults.release(rule=wanted.rule, request=wanted.request, then=wanted.then)
    return Answer(200, {"released": released})


def _entries(office: Office, asked: Mapping[str, Any]) -> Answer:
    entries = office.entries(Wanted.model_validate(asked))
    return Answer(200, {"entries": [entry.model_dump(exclude_defaults=True) for entry in entries]})


_ENDPOINTS: Mapping[tuple[str, str], Callable[[Office, Mapping[str, Any]], Answer]] = {
    ("POST", "rules"): _add_rule,
    ("GET", "rules"): lambda office, _asked: _rules(office),
    ("GET", "waiting"): _waiting,
    ("POST", "release"): _release,
    ("GET", "entries"): _entries,
}
