"""The terminal: ``adk``.

:func:`main` is the program. :func:`frontier_main` and :func:`resume_main` are ``inspect`` and ``run --resume`` for
products that embed adk-worker and have stores of their own; they take the same options and answer with the same codes
(:class:`adk_worker.cli.exits.ExitCode`).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from adk_worker.actors import Verifier
    from adk_worker.lease import LeasePolicy
    from adk_worker.registry import Registry
    from adk_worker.runs import Stores
    from adk_worker.steps import Dispatcher
    from adk_worker.transitions.runs import FleetPolicy

__all__ = ["frontier_main", "main", "resume_main"]

_COLLECT_AFTER: Final = 200_000
"""How many more objects than now there have to be before the collector looks for garbage."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``adk`` and return its exit code. ``argv`` is without the program's name; the process's own by default."""
    # What is imported from here on stays as long as the program: looking through it for garbage, time and again, would
    # find none.
    gc.set_threshold(_COLLECT_AFTER)
    try:
        from adk_worker.cli.program import Invocation, perform
        from adk_worker.cli.root import root
        from adk_worker.cli.source import FromSettings
    except KeyboardInterrupt:  # as anywhere later (adk_worker.cli.program), of which nothing is known yet
        sys.stderr.write("interrupted\n")
        return 130

    return perform(root, argv, prog="adk", invocation=Invocation(FromSettings(), own_process=True))


def frontier_main(
    argv: Sequence[str] | None = None, *, stores: Stores, registry: Registry | None = None, prog: str = "inspect"
) -> int:
    """``adk inspect`` over ``stores``: ``RUN_ID --tenant T``. Takes no lease; returns the exit code.

    :param registry: the agents that this process knows; without one a call that may have happened stands in the way
        even if its tool has a probe.
    :param prog: the program's name in its messages.
    """
    from adk_worker.cli.inspect import inspect
    from adk_worker.cli.program import Invocation, perform
    from adk_worker.cli.source import Given

    return perform(inspect, argv, prog=prog, invocation=Invocation(Given(stores, registry=registry)))


def resume_main(
    argv: Sequence[str] | None = None,
    *,
    stores: Stores,
    dispatcher: Dispatcher,
    registry: Registry | None = None,
    policy: FleetPolicy | None = None,
    lease_policy: LeasePolicy | None = None,
    verifier: Verifier | None = None,
    prog: str = "resume",
) -> int:
    """``adk run --resume`` over ``stores``: ``RUN_ID --tenant T``; returns the exit code.

    :param dispatcher: publishes the run's message, for the fleet's workers to carry it on.
    :param registry: as for :func:`frontier_main`.
    :param policy: the fleet's times.
    :param lease_policy: how long the lease lives that is held while the run is looked at.
    :param verifier: says whether who asks for it may (P5).
    """
    from adk_worker.cli.program import Invocation, perform
    from adk_worker.cli.resume import resume
    from adk_worker.cli.source import Given

    given = Given(
        stores,
        dispatcher=dispatcher,
        registry=registry,
        policy=policy,
        lease_policy=lease_policy,
        verifier=verifier,
    )
    return perform(resume, argv, prog=prog, invocation=Invocation(given))
