"""The verifier that ``ADK_VERIFIER`` names: one set of rules about who may do what, in web apps and terminals (P5)."""

from __future__ import annotations

from adk_worker.actors import Actor, Verifier
from adk_worker.errors import ConfigurationError
from adk_worker.importing import imported


class NamedVerifier:
    """The verifier of a dotted name, ``myshop.rights:may``, imported when somebody acts: looking takes no right."""

    def __init__(self, target: str) -> None:
        self._target = target

    def __call__(self, actor: Actor, action: str, *, tenant: str | None, run_id: str | None) -> object:
        """See :class:`~adk_worker.actors.Verifier`.

        :raises ConfigurationError: there is no such verifier, so that nobody may do anything.
        """
        return self.load()(actor, action, tenant=tenant, run_id=run_id)

    def load(self) -> Verifier:
        """The function itself.

        :raises ConfigurationError: it cannot be imported, or is not callable.
        """
        module, _, name = self._target.partition(":")
        found = getattr(imported(module, refused=self._refused), name, None)
        if not callable(found):
            raise self._refused(f"it has no function {name!r}")
        verifier: Verifier = found
        return verifier

    def _refused(self, reason: str) -> ConfigurationError:
        module = self._target.partition(":")[0]
        return ConfigurationError(
            f"ADK_VERIFIER {self._target}: module {module!r} cannot be used: {reason}. Until it can, nobody may act."
        )
