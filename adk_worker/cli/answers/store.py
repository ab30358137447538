"""Answers about the store."""

from __future__ import annotations

from typing import Literal

from adk_worker.cli.answers.model import Answer


class DbUpgradeAnswer(Answer):
    """The versions before and after."""

    store: str
    """Its URL, without the password."""
    before: str | None
    after: str | None
    warnings: list[str]
    """By what the store's server may lose what it is given."""


class DbVerifyAnswer(Answer):
    """A store that can be used."""

    store: str
    """Its URL, without the password."""
    ok: Literal[True]
    risks: list[str]
    """By what it may lose what it has acknowledged, in rare events."""


class DbBumpEpochAnswer(Answer):
    """The epoch that holds now."""

    store: str
    """Its URL, without the password."""
    epoch: int
