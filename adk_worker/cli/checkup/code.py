"""What a worker loads: its agents, their models, and the keys that seal secrets."""

from __future__ import annotations

from collections.abc import Iterator

from adk_worker.cli.checkup.finding import Finding, Subject, fail, ok, warning
from adk_worker.cli.output import aside
from adk_worker.errors import AdkError


def agents(subject: Subject) -> Iterator[Finding]:
    """Whether the agents import, and their models can ever work."""
    from adk_worker.providers import Providers
    from adk_worker.wiring import make_registry

    try:
        with aside():
            registry = make_registry(subject.settings)
    except AdkError as error:
        yield fail("agents", str(error), "mend the module: workers with this ADK_AGENTS do not start")
        return
    if registry is None:
        todo = "set it as the workers have it, and run this where they run"
        yield warning("agents", "ADK_AGENTS is not set here, so nothing is known of agents and models", todo)
        return
    named = sorted(f"{agent.name} ({agent.revision})" for agent in registry)
    yield ok("agents", ", ".join(named))
    providers = Providers(subject.settings.model_policy)
    for agent in registry:
        model = agent.model if isinstance(agent.model, str) else type(agent.model).__name__
        try:
            with aside():
                providers.check(agent.model)
        except AdkError as error:
            yield fail("models", f"{agent.name}: {error}", "every run of that agent fails")
        else:
            yield ok("models", f"{agent.name}: {model}")


def verifier(subject: Subject) -> Iterator[Finding]:
    """Whether what says who may do what can be asked."""
    from adk_worker.rights import NamedVerifier

    if subject.settings.verifier is None:
        yield ok("verifier", "none: whoever reaches the store may do anything")
        return
    try:
        with aside():
            NamedVerifier(subject.settings.verifier).load()
    except AdkError as error:
        yield fail("verifier", str(error), "mend the module, or ADK_VERIFIER: no approval is answered meanwhile")
    else:
        yield ok("verifier", subject.settings.verifier)


def seal_keys(subject: Subject) -> Iterator[Finding]:
    """Whether there are keys that can be read."""
    try:
        keys = subject.settings.read_seal_keys()
    except AdkError as error:
        yield fail("seal keys", str(error), "workers with these keys do not start")
        return
    if not keys:
        yield ok("seal keys", "none: a call whose arguments hold a masked secret is refused to the model")
    else:
        yield ok("seal keys", f"{len(keys.ids)}, of which {keys.ids[0]} seals")
