"""The root of the error tree, which :mod:`adk_worker.errors` draws."""

from __future__ import annotations

from typing import Any, ClassVar


def _rebuild(cls: type[AdkError], args: tuple[Any, ...], fields: dict[str, Any]) -> AdkError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(fields)
    return error


class AdkError(Exception):
    """Root of the tree. Fields are attributes; the message says what to do next."""

    retryable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)
