from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from adk_worker.errors import ToolError
from adk_worker.outcomes import Effect, OutcomeKind, ToolOutcome
from adk_worker.tools.bounded import derived
from adk_worker.tools.context import ToolContext
from adk_worker.tools.declaring import Tool, tool
from adk_worker.tools.endings import How, ending
from adk_worker.tools.invocation import Unresolved, invoke, refuse_invalid, refuse_unknown
from tests.waiting import eventually

EFFECTS = tuple(Effect)
REPEATABLE = (Effect.READ_ONLY, Effect.IDEMPOTENT)
CONTEXT = ToolContext(tenant="acme", run_id="run_1", agent="booking", call_id="call_1_0")


class RejectedError(Exception):
    pass


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield pool


@pytest.fixture
def call(executor) -> Callable[..., Any]:
    """Invoke a tool without arguments; retries do not pause."""

    async def no_pause(seconds: float) -> None:
        pass

    async def made(called: Tool, **options: Any) -> ToolOutcome | Unresolved:
        return await invoke(called, CONTEXT, {}, **{"executor": executor, "pause": no_pause} | options)

    return made


def both(body: Callable[[], object], **declared: Any) -> list[Tool]:
    """The same body as a sync and as an async tool."""

    async def in_loop() -> object:
        return body()

    return [tool(name="sync", **declared)(body), tool(name="async", **declared)(in_loop)]


def raising(error: BaseException) -> Callable[[], object]:
    def body() -> object:
        raise error

    return body


# --- the table -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "effectful", "repeatable"),
    [
        (How.RETURNED, OutcomeKind.RETURNED, OutcomeKind.RETURNED),
        (How.UNUSABLE, OutcomeKind.UNUSABLE, OutcomeKind.UNUSABLE),
        (How.DID_NOT_HAPPEN, OutcomeKind.FAILED, OutcomeKind.FAILED),
        (How.HAPPENED, OutcomeKind.FAILED, OutcomeKind.FAILED),
        (How.RAISED, None, OutcomeKind.FAILED),
        (How.TIMED_OUT, None, OutcomeKind.FAILED),
        (How.CANCELLED, None, OutcomeKind.FAILED),
        (How.NOT_STARTED, OutcomeKind.FAILED, OutcomeKind.FAILED),
    ],
)
def test_how_a_call_ends_decides_what_is_known(how, effectful, repeatable):
    """I10, row by row."""
    assert ending(Effect.EFFECTFUL, how) is effectful
    assert [ending(effect, how) for effect in REPEATABLE] == [repeatable, repeatable]


def test_every_ending_has_its_row():
    """I10: exactly these leave an effectful call unknown."""
    unknown = {how for how in How if ending(Effect.EFFECTFUL, how) is None}

    assert unknown == {How.RAISED, How.TIMED_OUT, How.CANCELLED}


# --- it returns ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", EFFECTS)
async def test_what_a_tool_returns_is_recorded_as_returned(call, effect):
    """I10."""
    for called in both(lambda: {"seat": ("3A",)}, effect=effect):
        assert await call(called) == ToolOutcome(kind=OutcomeKind.RETURNED, content={"seat": ["3A"]})


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("value", [object(), "x" * 5_000_000])
async def test_a_result_that_cannot_be_kept_is_a_call_that_completed(call, effect, value):
    """I10."""
    for called in both(lambda: value, effect=effect):
        outcome = await call(called)
        assert outcome.kind is OutcomeKind.UNUSABLE
        assert "completed" in outcome.content


async def test_a_tools_own_limit_comes_before_the_callers(call):
    """I10."""
    (own, _) = both(lambda: "x" * 100, max_result_bytes=50)
    (none, _) = both(lambda: "x" * 100)

    assert (await call(own, max_result_bytes=1_000)).kind is OutcomeKind.UNUSABLE
    assert (await call(none, max_result_bytes=1_000)).kind is OutcomeKind.RETURNED
    assert (await call(none, max_result_bytes=50)).kind is OutcomeKind.UNUSABLE


async def test_a_sync_tool_runs_in_a_thread_with_the_callers_context_variables_and_its_own_context(executor):
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("from the caller")

    @tool
    def where(ctx: ToolContext, number: int) -> list[Any]:
        variable_seen = variable.get()
        variable.set("from the tool")
        return [variable_seen, ctx.run_id, number, threading.current_thread() is threading.main_thread()]

    outcome = await invoke(where, CONTEXT, where.validate({"number": 3}), executor=executor)

    assert outcome.content == ["from the caller", "run_1", 3, False]
    assert variable.get() == "from the caller"


async def test_a_sync_wrapper_around_an_async_function_is_awaited(call):
    """A decorator may hide that a function is async; a coroutine that nobody awaits would be a call never made."""

    async def book() -> str:
        return "booked"

    @functools.wraps(book)
    def wrapped() -> Any:
        return book()

    assert (await call(tool(wrapped))).content == "booked"


# --- it raises -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize(
    ("error", "content"),
    [
        (ToolError("no seats left", happened=False), "no seats left"),
        (RejectedError("card refused"), "RejectedError: card refused"),
    ],
)
async def test_a_failure_without_effect_is_recorded_and_told(call, effect, error, content):
    """I10: ToolError(happened=False), or a type in did_not_happen."""
    for called in both(raising(error), effect=effect, did_not_happen=RejectedError):
        assert await call(called) == ToolOutcome(kind=OutcomeKind.FAILED, content=content)


@pytest.mark.parametrize("effect", EFFECTS)
async def test_a_failure_after_the_effect_is_recorded_and_says_that_the_effect_is_there(call, effect):
    """I10: it is known, so nothing is left in flight."""
    for called in both(raising(ToolError("no receipt came", happened=True)), effect=effect):
        outcome = await call(called)
        assert outcome.kind is OutcomeKind.FAILED
        assert "effect of this call is there" in outcome.content
        assert "no receipt came" in outcome.content


class RejectedLaterError(RejectedError, ToolError):
    pass


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RejectedLaterError("no", happened=None), OutcomeKind.FAILED),
        (RejectedLaterError("no", happened=True), OutcomeKind.FAILED),
        (ExceptionGroup("both", [RejectedError(), RejectedError()]), None),
        (ToolError("no idea"), None),
    ],
)
async def test_only_an_error_that_proves_it_leaves_nothing_unknown(call, error, kind):
    """I10: a group proves nothing, for a call beside the one that failed may have gone through."""
    for called in both(raising(error), did_not_happen=RejectedError):
        ended = await call(called)
        assert (ended.kind if isinstance(ended, ToolOutcome) else None) is kind


@pytest.mark.parametrize(
    "error",
    [
        ValueError("odd"),
        ToolError("odd"),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        GeneratorExit(),
        TimeoutError("of its own"),
        BaseExceptionGroup("odd", [KeyboardInterrupt()]),
    ],
)
async def test_anything_else_leaves_an_effectful_call_in_flight_and_the_worker_alive(call, error):
    """I10: SystemExit and a cancellation of its own are no more than failures of the tool."""
    for called in both(raising(error)):
        ended = await call(called)
        assert isinstance(ended, Unresolved)
        assert ended.reason is How.RAISED
        assert ended.late is None
    for called in both(raising(error), effect="read_only"):
        assert (await call(called)).kind is OutcomeKind.FAILED


async def test_a_stop_iteration_does_not_hang_the_call(call):
    """I10: futures refuse this exception."""
    (sync, _) = both(raising(StopIteration("over")))

    ended = await call(sync)

    assert isinstance(ended, Unresolved)
    assert ended.error_text == "StopIteration: over"


async def test_error_texts_are_short_and_carry_no_traceback(call):
    (sync, _) = both(raising(ValueError("x" * 100_000)), effect="read_only")

    outcome = await call(sync)

    assert outcome.content.startswith("ValueError: xxx")
    assert len(outcome.content) == 2_000
    assert "Traceback" not in outcome.content


# --- it takes too long ---------------------------------------------------------------------------------------------


async def test_a_sync_tool_past_its_time_goes_on_and_its_late_outcome_can_be_had(call):
    """I10, F4."""
    go = threading.Event()

    @tool(timeout=0.01)
    def pay() -> str:
        go.wait(30)
        return "paid"

    ended = await call(pay)
    assert isinstance(ended, Unresolved)
    assert ended.reason is How.TIMED_OUT
    assert ended.error_text == "The call did not end within its 0.01 s."
    assert not ended.late.done()

    go.set()
    assert await ended.late == ToolOutcome(kind=OutcomeKind.RETURNED, content="paid")


@pytest.mark.parametrize(
    ("error", "late"),
    [
        (RejectedError("refused"), ToolOutcome(kind=OutcomeKind.FAILED, content="RejectedError: refused")),
        (OSError("lost"), How.RAISED),
        (SystemExit(1), How.RAISED),
    ],
)
async def test_a_late_end_is_judged_by_the_same_table(call, error, late):
    """I10, F4."""
    go = threading.Event()

    @tool(timeout=0.01, did_not_happen=RejectedError)
    def pay() -> str:
        go.wait(30)
        raise error

    ended = await call(pay)
    go.set()
    came = await ended.late

    assert (came.reason if isinstance(came, Unresolved) else came) == late


async def test_cancelling_the_wait_for_a_late_outcome_leaves_the_call_alone(call):
    """F4."""
    go, ended = threading.Event(), threading.Event()

    @tool(timeout=0.01)
    def pay() -> str:
        go.wait(30)
        ended.set()
        return "paid"

    unresolved = await call(pay)
    unresolved.late.cancel()
    go.set()

    assert await asyncio.to_thread(ended.wait, 30)


async def test_an_async_tool_past_its_time_is_cancelled(call):
    """I10."""
    seen: list[str] = []

    @tool(timeout=0.01)
    async def pay() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "paid"

    ended = await call(pay)

    assert seen == ["cancelled"]
    assert isinstance(ended, Unresolved)
    assert ended.reason is How.TIMED_OUT
    assert ended.late is None


async def test_an_async_tool_that_swallows_its_cancellation_is_abandoned_and_its_late_outcome_can_be_had(call):
    """I10, F4: a loop keeps its tasks weakly, so the future alone has to keep the tool alive."""
    waited_for: list[weakref.ref[asyncio.Future[None]]] = []

    @tool(timeout=0.01)
    async def pay() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            answer = asyncio.get_running_loop().create_future()
            waited_for.append(weakref.ref(answer))
            await answer
        return "paid"

    ended = await call(pay, grace=0.01)
    gc.collect()
    assert isinstance(ended, Unresolved)
    assert ended.reason is How.TIMED_OUT

    answer = waited_for[0]()
    assert answer is not None
    answer.set_result(None)
    assert await ended.late == ToolOutcome(kind=OutcomeKind.RETURNED, content="paid")


async def test_a_tool_that_is_cancelled_past_its_time_may_still_say_what_happened(call):
    """I10: its word is evidence, whenever it comes."""

    @tool(timeout=0.01, did_not_happen=RejectedError)
    async def withdrawn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RejectedError("withdrawn in time") from None
        return ""

    @tool(timeout=0.01)
    async def done() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "paid after all"
        return ""

    @tool(timeout=0.01)
    async def broken() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("lost") from None
        return ""

    assert await call(withdrawn) == ToolOutcome(kind=OutcomeKind.FAILED, content="RejectedError: withdrawn in time")
    assert await call(done) == ToolOutcome(kind=OutcomeKind.RETURNED, content="paid after all")
    assert (await call(broken)).reason is How.TIMED_OUT


@pytest.mark.parametrize("effect", REPEATABLE)
async def test_a_repeatable_tool_past_its_time_has_failed(call, effect):
    """I10."""

    @tool(timeout=0.01, effect=effect)
    async def search() -> str:
        await asyncio.Event().wait()
        return ""

    assert await call(search) == ToolOutcome(kind=OutcomeKind.FAILED, content="The call did not end within its 0.01 s.")


async def test_a_call_that_no_thread_began_in_time_is_taken_back_and_known_not_to_have_happened(call, executor):
    """I10: every thread is taken by tools that hang."""
    go = threading.Event()
    made: list[str] = []

    @tool(timeout=0.01)
    def pay() -> str:
        made.append("paid")
        return "paid"

    hanging = [executor.submit(go.wait, 30) for _ in range(2)]
    outcome = await call(pay)
    go.set()
    assert all(thread.result() for thread in hanging)
    executor.shutdown()

    assert outcome.kind is OutcomeKind.FAILED
    assert "was not made" in outcome.content
    assert made == []


async def test_an_executor_that_is_shut_down_makes_no_call(call, executor):
    """I10."""
    executor.shutdown()
    (pay, _) = both(lambda: "paid")

    outcome = await call(pay)

    assert outcome.kind is OutcomeKind.FAILED
    assert "was not made" in outcome.content


async def test_an_executor_that_drops_its_queue_makes_no_call(call, executor):
    """I10: without a time-out, the call would otherwise be waited for as long as the iteration lasts."""
    go = threading.Event()

    @tool(timeout=None)
    def pay() -> str:
        return "paid"

    for _ in range(2):
        executor.submit(go.wait, 30)
    calling = asyncio.create_task(call(pay))
    await asyncio.sleep(0)
    executor.shutdown(wait=False, cancel_futures=True)
    outcome = await calling
    go.set()

    assert outcome.kind is OutcomeKind.FAILED
    assert "was not made" in outcome.content


async def test_a_call_that_an_executor_queued_before_it_refused_is_not_made_later(call, executor):
    """I10: submit() may put the call into its queue, fail to start a thread for it, and raise."""
    made: list[str] = []

    class OutOfThreads(ThreadPoolExecutor):
        def _adjust_thread_count(self) -> None:
            raise RuntimeError("can't start new thread")

    @tool
    def pay() -> str:
        made.append("paid")
        return "paid"

    starved = OutOfThreads(max_workers=1)
    outcome = await call(pay, executor=starved)
    # A thread comes after all, and works the queue off.
    ThreadPoolExecutor._adjust_thread_count(starved)  # noqa: SLF001
    starved.shutdown()

    assert outcome.kind is OutcomeKind.FAILED
    assert made == []


async def test_a_late_outcome_that_will_never_come_is_no_longer_waited_for():
    """F4: the loop is shut down, and cancels what runs in it."""
    source: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    late = derived(source, str)
    source.cancel()

    with pytest.raises(asyncio.CancelledError):
        await late


# --- it is cancelled -----------------------------------------------------------------------------------------------


async def test_a_cancellation_from_outside_reaches_an_async_tool(call):
    """I10."""
    started, seen = asyncio.Event(), []

    @tool
    async def pay() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "paid"

    calling = asyncio.create_task(call(pay))
    await started.wait()
    calling.cancel()

    with pytest.raises(asyncio.CancelledError):
        await calling
    assert seen == ["cancelled"]


async def test_a_tool_that_swallows_a_cancellation_from_outside_does_not_hold_it_up(call):
    """I10."""
    started, go = asyncio.Event(), asyncio.Event()

    @tool
    async def pay() -> str:
        started.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return "paid"

    calling = asyncio.create_task(call(pay, grace=0.01))
    await started.wait()
    calling.cancel()

    with pytest.raises(asyncio.CancelledError):
        await calling
    go.set()


@pytest.mark.parametrize("sync", [True, False])
async def test_what_goes_on_in_spite_of_a_cancellation_from_outside_has_an_end_to_be_had(call, sync):
    """F4: in its thread, or swallowing its cancellation; the outcome is evidence whenever it comes."""
    started, go, left = threading.Event(), threading.Event(), []

    def pay() -> str:
        started.set()
        go.wait(30)
        return "paid"

    async def pay_in_loop() -> str:
        started.set()
        while not go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)
        return "paid"

    calling = asyncio.create_task(call(tool(pay if sync else pay_in_loop), grace=0.01, left=left.append))
    await eventually(started.is_set, what="the tool to have begun")
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    go.set()

    (late,) = left
    assert (await late).content == "paid"


async def test_nothing_is_left_of_a_tool_that_a_cancellation_from_outside_has_ended(call, executor):
    """I10: nobody knows what it did, and there is nothing to wait for."""
    started, go, left = asyncio.Event(), threading.Event(), []

    @tool
    async def pay() -> None:
        started.set()
        await asyncio.Event().wait()

    @tool
    def never_begun() -> None:
        raise AssertionError

    for _ in range(2):
        executor.submit(go.wait, 30)
    callings = [asyncio.create_task(call(called, left=left.append)) for called in (pay, never_begun)]
    await started.wait()
    for calling in callings:
        calling.cancel()
    await asyncio.wait(callings)
    go.set()

    assert left == []


async def test_a_cancellation_from_outside_takes_back_a_sync_tool_that_has_not_begun(call, executor):
    """I10."""
    go = threading.Event()
    made: list[str] = []

    @tool
    def pay() -> str:
        made.append("paid")
        return "paid"

    for _ in range(2):
        executor.submit(go.wait, 30)
    calling = asyncio.create_task(call(pay))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    go.set()
    executor.shutdown()

    assert made == []


def test_a_thread_may_outlive_the_loop_that_waited_for_it():
    """I10: its end is nobody's any more, and no noise."""
    go = threading.Event()
    threads: list[Future[Any]] = []

    class Watched(ThreadPoolExecutor):
        def submit(self, *args, **kwargs):
            threads.append(super().submit(*args, **kwargs))
            return threads[-1]

    @tool(timeout=0.01)
    def pay() -> str:
        go.wait(30)
        return "paid"

    with Watched(max_workers=1) as pool:
        ended = asyncio.run(invoke(pay, CONTEXT, {}, executor=pool))
        go.set()

    assert isinstance(ended, Unresolved)
    assert [thread.exception() for thread in threads] == [None]


# --- a tool's own retries ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", REPEATABLE)
async def test_a_repeatable_tool_is_repeated_by_its_own_policy(executor, effect):
    """I10."""
    attempts: list[int] = []
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    def body() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError("busy")
        return "found"

    for called in both(body, effect=effect, retries=2):
        attempts.clear()
        pauses.clear()
        outcome = await invoke(called, CONTEXT, {}, executor=executor, pause=pause)
        assert outcome == ToolOutcome(kind=OutcomeKind.RETURNED, content="found")
        assert pauses == [0.2, 0.4]


async def test_retries_end_and_the_last_failure_is_told(call):
    """I10."""
    attempts: list[int] = []

    def body() -> str:
        attempts.append(1)
        raise OSError(f"busy {len(attempts)}")

    (search, _) = both(body, effect="read_only", retries=3)

    assert await call(search) == ToolOutcome(kind=OutcomeKind.FAILED, content="OSError: busy 4")


async def test_a_failure_that_is_certain_is_not_repeated(call):
    """I10."""
    attempts: list[int] = []

    def body() -> str:
        attempts.append(1)
        raise ToolError("no such flight", happened=False)

    (search, _) = both(body, effect="read_only", retries=3)

    assert (await call(search)).content == "no such flight"
    assert len(attempts) == 1


# --- it is never started -------------------------------------------------------------------------------------------


def test_an_unknown_tool_is_refused_with_the_tools_that_there_are():
    """I10."""
    refused = refuse_unknown("book_\ud800" + "x" * 1_000, ["search", "book_seat"])

    assert refused.kind is OutcomeKind.REFUSED
    assert "The tools are: book_seat, search." in str(refused.content)
    assert len(str(refused.content)) < 300
    assert "none" in str(refuse_unknown("anything", []).content)


def test_arguments_that_do_not_fit_are_refused_with_the_reason():
    """I10."""

    @tool
    def pay(amount: int) -> str:
        return ""

    with pytest.raises(Exception, match="amount") as caught:
        pay.validate({})
    refused = refuse_invalid(caught.value)

    assert refused.kind is OutcomeKind.REFUSED
    assert refused.content == (
        "the arguments of 'pay' are not valid: amount: Field required. Correct them and call again."
    )
