"""What becomes of a test whose server is not installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.servers.binaries import ServerMissingError

T = TypeVar("T")


def or_skip(start: Callable[[], T]) -> T:
    """Return what ``start`` returns. A missing server skips the test, and fails it where CI is set (to anything)."""
    try:
        return start()
    except ServerMissingError as missing:
        if os.environ.get("CI"):
            pytest.fail(f"in CI every server has to be there: {missing}")
        pytest.skip(str(missing))
