"""The agents that a process knows, by name and revision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from adk_worker.agent import Agent
from adk_worker.errors import AgentImportError, ConfigurationError, RevisionMismatchError, UnknownAgentError
from adk_worker.importing import imported


class Registry:
    """Agents by name; several revisions of one agent stand side by side, so that runs of the older ones end (C7).

    New runs take the revision that was registered last. Does not change once it is made.

    :raises ConfigurationError: two different agents have one name and one revision.
    """

    def __init__(self, agents: Iterable[Agent] = ()) -> None:
        self._agents: dict[str, dict[str, Agent]] = {}
        for agent in agents:
            revisions = self._agents.setdefault(agent.name, {})
            if revisions.setdefault(agent.revision, agent) is not agent:
                raise ConfigurationError(
                    f"two different agents are named {agent.name!r} and have revision {agent.revision}. Give one of "
                    "them another name, or a revision of its own: Agent(…, revision=…)."
                )

    @classmethod
    def load(cls, modules: Sequence[str]) -> Registry:
        """Import ``modules``, in order, and register their agents.

        A module's agents are its public names that are an :class:`Agent`, and those in a list or tuple named
        ``agents``. One agent that several modules import counts once.

        :raises AgentImportError: a module does not import, whatever the reason.
        :raises ConfigurationError: a module has no agents, or two agents are at odds.
        """
        return cls(agent for module in modules for agent in _agents_of(module))

    @property
    def names(self) -> tuple[str, ...]:
        """The agents' names, sorted."""
        return tuple(sorted(self._agents))

    def __iter__(self) -> Iterator[Agent]:
        return (agent for revisions in self._agents.values() for agent in revisions.values())

    def __len__(self) -> int:
        return sum(len(revisions) for revisions in self._agents.values())

    def revisions(self, name: str) -> tuple[str, ...]:
        """The registered revisions of an agent, the one for new runs last; empty for an unknown name."""
        return tuple(self._agents.get(name, {}))

    def get(self, name: str) -> Agent:
        """The agent that new runs of that name take.

        :raises UnknownAgentError: there is none.
        """
        return list(self._known(name).values())[-1]

    def resolve(self, name: str, revision: str) -> Agent:
        """The agent to which a run is pinned (C7).

        :raises UnknownAgentError: no agent has that name.
        :raises RevisionMismatchError: it has other revisions only.
        """
        revisions = self._known(name)
        if revision not in revisions:
            raise RevisionMismatchError(agent=name, pinned=revision, registered=tuple(revisions))
        return revisions[revision]

    def _known(self, name: str) -> dict[str, Agent]:
        if name not in self._agents:
            raise UnknownAgentError(agent=name, known=self.names)
        return self._agents[name]


def _agents_of(name: str) -> list[Agent]:
    module = imported(name, refused=lambda reason: AgentImportError(module=name, reason=reason))
    found = [value for key, value in vars(module).items() if isinstance(value, Agent) and not key.startswith("_")]
    listed = getattr(module, "agents", ())
    if isinstance(listed, list | tuple):
        for agent in listed:
            if not isinstance(agent, Agent):
                raise ConfigurationError(f"{name}.agents lists a {type(agent).__name__}, which is no Agent.")
            found.append(agent)
    if not found:
        raise ConfigurationError(
            f"module {name!r} of ADK_AGENTS has no agents: put an Agent(…) at its top level, or a list named agents."
        )
    return found
