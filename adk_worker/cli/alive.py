"""``adk alive``: whether the workers here go on consuming, for a container's probe and for whoever looks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adk_worker.cli import options
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import emit, note, say
from adk_worker.printable import printable

if TYPE_CHECKING:
    from adk_worker.pulse import Pulse, Sign


@click.command("alive", short_help="Say whether the workers here go on consuming.")
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--consuming", is_flag=True, help="Fail too while one does not consume yet, or has no broker to.")
@click.option("--backlog", is_flag=True, help="Ask the broker what waits, and fail if one passes that over.")
@click.option(
    "--dir",
    "folder",
    envvar="ADK_ALIVE_DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the workers keep their files; ADK_ALIVE_DIR by default.",
)
@options.as_json
@options.debug
def alive(*, name: str | None, consuming: bool, backlog: bool, folder: Path | None, as_json: bool) -> int:
    """Say of each worker of this machine, or container, whether it goes on consuming; NAME is one of them.

    It reads a small file that each worker keeps, and asks the broker only in doubt. 0: all live, and none would be
    mended by a restart, even if the broker is away. 75: one stands still, or does not consume though the broker
    answers. 1: there is no worker. 69, with --consuming: one does not consume, and that is not its fault.
    """
    from adk_worker.own_files import own_folder
    from adk_worker.pulse import judge, pulses

    found = [pulse for pulse in pulses(folder or own_folder()) if name in {None, pulse.name}]
    if not found:
        note(f"no worker{f' {name}' if name else ''} runs here ({folder or own_folder()})")
        return ExitCode.NOTHING
    asked = _Broker(found, always=backlog)
    signs = []
    for pulse in found:
        now = time.monotonic()
        waiting = asked.waiting(pulse)
        sign = judge(pulse, now=now, waiting=waiting, reached=asked.reached)
        signs.append(sign)
        if as_json:
            emit(_as_json(pulse, sign, waiting, now))
        else:
            say(_line(pulse, sign, waiting, now))
    return _code(signs, consuming=consuming)


class _Broker:
    """The broker, asked once, and only if some worker's signs leave the matter open or ``always``."""

    def __init__(self, found: Sequence[Pulse], *, always: bool) -> None:
        from adk_worker.pulse import in_doubt

        self.reached: bool | None = None
        self._found: dict[str, int] | None = None
        if always or any(in_doubt(pulse, now=time.monotonic()) for pulse in found):
            self._ask({queue for pulse in found for queue in pulse.queues})

    def waiting(self, pulse: Pulse) -> int | None:
        """How many messages wait on the queues of that worker, if that is known."""
        return None if self._found is None else sum(self._found[queue] for queue in pulse.queues)

    def _ask(self, queues: set[str]) -> None:
        from adk_worker.errors import BrokerUnavailableError, ConfigurationError
        from adk_worker.settings import Settings
        from tasks.backlog import waiting

        try:
            self._found = waiting(Settings.load(), sorted(queues))
            self.reached = True
        except BrokerUnavailableError as error:
            self.reached = False
            note(f"the broker does not answer: {error.reason}")
        except ConfigurationError as error:
            note(f"the broker cannot be asked: {error}")


def _code(signs: Sequence[Sign], *, consuming: bool) -> ExitCode:
    if not all(sign.alive for sign in signs):
        return ExitCode.TIMED_OUT
    if consuming and not all(sign.consumes for sign in signs):
        return ExitCode.UNAVAILABLE
    return ExitCode.DONE


def _line(pulse: Pulse, sign: Sign, waiting: int | None, now: float) -> str:
    told = [f"{pulse.running} of {pulse.slots} slots in use, {pulse.in_hand} in hand, {pulse.started} begun"]
    if pulse.started_at is not None:
        told.append(f"the last {now - pulse.started_at:.0f} s ago")
    told.append(f"seen {now - pulse.at:.0f} s ago")
    if pulse.heard_at is not None:
        told.append(f"broker heard {now - pulse.heard_at:.0f} s ago")
    if waiting is not None:
        told.append(f"{waiting} waiting")
    return f"{printable(pulse.name)}: {sign.value}; {', '.join(told)}"


def _as_json(pulse: Pulse, sign: Sign, waiting: int | None, now: float) -> dict[str, Any]:
    def ago(moment: float | None) -> float | None:
        return None if moment is None else round(now - moment, 1)

    return {
        "name": pulse.name,
        "sign": sign.value,
        "alive": sign.alive,
        "consuming": sign.consumes,
        "phase": pulse.phase.value,
        "queues": list(pulse.queues),
        "slots": pulse.slots,
        "running": pulse.running,
        "in_hand": pulse.in_hand,
        "started": pulse.started,
        "waiting": waiting,
        "seconds_since_started": ago(pulse.started_at),
        "seconds_since_seen": ago(pulse.at),
        "seconds_since_heard": ago(pulse.heard_at),
        "seconds_in_phase": ago(pulse.since),
    }
