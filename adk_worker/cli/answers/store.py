"""Answers about the store."""

from __future__ import annotations

from typing import Literal

from adk_worker.cli.answers.model import Answer


class DbUpgradeAnswer(Answer):
    """The versions of the store's schema before and after."""

    store: str
    """Its URL, without the password."""
    before: str | None
    after: str | None
    warnings: list[str]
    """In which rare events the store's server may lose what it has acknowledged, in sentences."""


class DbVerifyAnswer(Answer):
    """A store that can be used."""

    store: str
    """Its URL, without the password."""
    ok: Literal[True]
    risks: list[str]
    """In which rare events the store may lose what it has acknowledged, in sentences."""


class DbBumpEpochAnswer(Answer):
    """The store's epoch from now on."""

    store: str
    """Its URL, without the password."""
    epoch: int
