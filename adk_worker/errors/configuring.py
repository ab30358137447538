"""Errors about code, settings and what a caller says."""

from __future__ import annotations

from adk_worker.errors.tree import AdkError


class ConfigurationError(AdkError):
    """The code or the settings contradict themselves; the message names the setting and what it should be."""


class AgentImportError(ConfigurationError):
    """A module listed in ``ADK_AGENTS`` cannot be imported."""

    def __init__(self, *, module: str, reason: str) -> None:
        super().__init__(f"agents' module {module!r} does not import: {reason}. Check ADK_AGENTS and Python's path.")
        self.module = module
        self.reason = reason


class UnknownAgentError(ConfigurationError):
    """No agent of that name is registered in this process."""

    def __init__(self, *, agent: str, known: tuple[str, ...]) -> None:
        listed = ", ".join(known) or "none"
        super().__init__(f"no agent named {agent!r} is registered (known: {listed}); add its module to ADK_AGENTS.")
        self.agent = agent
        self.known = known


class SchemaVersionError(ConfigurationError):
    """The store's schema is not the one that this version reads and writes."""

    def __init__(self, *, found: str | None, wanted: str, command: str = "adk db upgrade") -> None:
        state = f"is at version {found}" if found else "has no adk-worker schema"
        super().__init__(f"the store {state}, this adk-worker needs {wanted}. Run: {command}")
        self.found = found
        self.wanted = wanted
        self.command = command


class InvalidNameError(AdkError, ValueError):
    """A name, a reason or a page's cursor that cannot be one; ``what`` names which of these, ``reason`` says why."""

    def __init__(self, *, what: str, reason: str) -> None:
        super().__init__(f"not a {what}: {reason}.")
        self.what = what
        self.reason = reason


class NotJSONError(AdkError, ValueError):
    """A value that has to be stored as JSON is not JSON, or is no text where that is asked for."""

    def __init__(
        self, *, what: str, reason: str, use: str = "strings, numbers, booleans, null, lists and dicts"
    ) -> None:
        super().__init__(f"{what} is not JSON: {reason}. Use {use}.")
        self.what = what
        self.reason = reason
        self.use = use
