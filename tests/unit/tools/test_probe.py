from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from adk_worker.outcomes import OutcomeKind, ToolOutcome
from adk_worker.tools.probe import Happened, NeverWill, NotYet, Unknown, ask


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=1) as pool:
        yield pool


def both(answer: Any) -> list[Any]:
    """A sync and an async probe that give ``answer``, or raise it."""

    def in_thread(key: str, arguments: dict[str, Any]) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def in_loop(key: str, arguments: dict[str, Any]) -> Any:
        return in_thread(key, arguments)

    return [in_thread, in_loop]


@pytest.mark.parametrize("answer", [NeverWill("the key is refused now"), NotYet(), Unknown("two bookings match")])
async def test_a_probes_answer_is_passed_on(executor, answer):
    """I7."""
    for probe in both(answer):
        assert await ask(probe, "key", {}, executor=executor) == answer


@pytest.mark.parametrize("kind", [NeverWill, Unknown])
@pytest.mark.parametrize(
    ("why", "told"), [("cut \ud83d off", "cut ? off"), ("x" * 9_000, "x" * 1_999 + "…"), (404, "404")]
)
async def test_what_a_probe_says_can_be_told(executor, kind, why, told):
    """I7, H2: it may go into the transcript, which has to be readable afterwards."""
    for probe in both(kind(why)):
        assert await ask(probe, "key", {}, executor=executor) == kind(told)


async def test_what_happened_comes_with_the_outcome_to_record(executor):
    """I7: as if the call itself had returned it."""
    for probe in both(Happened({"seat": ("3A",)})):
        answer = await ask(probe, "key", {}, executor=executor)
        assert isinstance(answer, Happened)
        assert answer.settled() == ToolOutcome(kind=OutcomeKind.RETURNED, content={"seat": ["3A"]})


@pytest.mark.parametrize("outcome", [object(), "x" * 5_000_000])
async def test_what_happened_stays_so_when_its_outcome_cannot_be_kept(executor, outcome):
    """I7, I10."""
    for probe in both(Happened(outcome)):
        answer = await ask(probe, "key", {}, executor=executor)
        assert isinstance(answer, Happened)
        assert answer.settled().kind is OutcomeKind.UNUSABLE


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "answered with NoneType"),
        (True, "answered with bool"),
        (NotYet, "answered with type"),
        (OSError("down"), "raised OSError: down"),
        (SystemExit(1), "raised SystemExit: 1"),
        (asyncio.CancelledError(), "raised CancelledError"),
    ],
)
async def test_anything_else_is_no_knowledge(executor, answer, why):
    """I7."""
    for probe in both(answer):
        known = await ask(probe, "key", {}, executor=executor)
        assert isinstance(known, Unknown)
        assert why in known.why


async def test_a_probe_that_hangs_is_no_knowledge(executor):
    """I7."""
    go = threading.Event()

    async def in_loop(key: str, arguments: dict[str, Any]) -> NotYet:
        await asyncio.Event().wait()
        return NotYet()

    def in_thread(key: str, arguments: dict[str, Any]) -> NotYet:
        go.wait(30)
        return NotYet()

    hung = [await ask(probe, "key", {}, executor=executor, timeout=0.01) for probe in (in_loop, in_thread)]
    starved = await ask(in_thread, "key", {}, executor=executor, timeout=0.01)
    go.set()

    assert hung == [Unknown("the probe did not answer within 0.01 s")] * 2
    assert starved == Unknown("no thread was free for the probe")


async def test_a_probe_is_given_the_key_and_arguments_of_its_own(executor):
    """I7: what it does to them must not reach the frontier."""
    asked: list[Any] = []
    frontier = {"seats": ["3A"]}

    def probe(key: str, arguments: dict[str, Any]) -> NotYet:
        asked.append((key, {**arguments}))
        arguments["seats"].append("3B")
        return NotYet()

    await ask(probe, "adk1-ff", frontier, executor=executor)

    assert asked[0][0] == "adk1-ff"
    assert frontier == {"seats": ["3A"]}


async def test_asking_can_be_cancelled(executor):
    started = asyncio.Event()

    async def probe(key: str, arguments: dict[str, Any]) -> NotYet:
        started.set()
        await asyncio.Event().wait()
        return NotYet()

    asking = asyncio.create_task(ask(probe, "key", {}, executor=executor))
    await started.wait()
    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking


@pytest.mark.parametrize("content", ["x" * 300_000, float("nan"), "\ud83d"])
def test_an_outcome_of_the_probes_own_has_to_fit_into_the_store_too(content):
    """I10: completed, with a marker that says what became of the result."""
    outcome = ToolOutcome.model_construct(kind=OutcomeKind.RETURNED, content=content)
    assert Happened(outcome).settled().kind is OutcomeKind.UNUSABLE
