"""Stores as the tests here open them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from adk_worker.runs import Stores
from stores import open_stores
from tests.redis_stores import made


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., Stores]]:
    """Opens bundles, by their URLs and options, that are closed after the test."""
    bundles = []

    def open_one(url: str, **options: object) -> Stores:
        bundles.append(open_stores(url, **options))
        return bundles[-1]

    yield open_one
    for bundle in bundles:
        await bundle.lifecycle.close()


@pytest.fixture(params=["postgres", "redis"])
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[Stores]:
    """A bundle on a real server, with connections enough for many at once."""
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_store_url")
    else:
        url = made(request.getfixturevalue("redis_url"))
    bundle = open_stores(url, pool_size=16)
    yield bundle
    await bundle.lifecycle.close()
