from __future__ import annotations

import asyncio
import itertools

import pytest

from tests.waiting import eventually, wait_until


def test_the_first_true_answer_is_returned():
    answers = iter([None, 0, "found", "too late"])

    assert wait_until(lambda: next(answers)) == "found"


def test_the_deadline_names_what_was_awaited_and_the_last_answer():
    with pytest.raises(AssertionError, match=r"in vain for: the moon \(last answer: 0\)"):
        wait_until(lambda: 0, within=0, what="the moon")


def test_an_error_of_the_predicate_comes_through_at_once():
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 / 0)


async def test_the_loop_runs_on_while_a_coroutine_waits():
    turns = itertools.count()
    seen = asyncio.Event()

    async def other():
        for _ in range(3):
            next(turns)
            await asyncio.sleep(0)
        seen.set()

    task = asyncio.create_task(other())

    assert await eventually(seen.is_set)
    await task


async def test_an_async_predicate_is_awaited():
    async def answer():
        return "yes"

    assert await eventually(answer) == "yes"


async def test_a_coroutines_deadline_names_what_was_awaited():
    with pytest.raises(AssertionError, match="in vain for: the moon"):
        await eventually(lambda: False, within=0, what="the moon")
