"""``adk seal``: the keys by which masked secrets are sealed."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adk_worker.cli import options
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import counted, emit, note, say
from adk_worker.cli.program import Invocation, awaited
from adk_worker.printable import printable

if TYPE_CHECKING:
    from adk_worker.sealing.keys import SealKeys
    from adk_worker.sealing.rotation import Rotated


@click.group("seal", short_help="The keys by which masked secrets are sealed.")
def seal() -> None:
    """The keys by which masked secrets are sealed, so that tools alone are given them."""


@seal.group("keys", short_help="Make a key, or see which there are.")
def keys() -> None:
    """Make a key, or see which there are. Keys are kept in ADK_SEAL_KEYS or in ADK_SEAL_KEYS_FILE, never in a store."""


@keys.command("new", short_help="Make a key.")
@click.option("--id", "key_id", metavar="ID", help="The id by which seals name it; the day and something random.")
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Put it behind the keys of this file, which is made, its owner's alone, if there is none.",
)
@options.as_json
@options.debug
def new(*, key_id: str | None, file: Path | None, as_json: bool) -> int:
    """Make a key, and print it; or, with --file, put it into a file and print nothing of it.

    Give it to every process behind the keys that they have. When all have it, put it first, so that it seals; then run
    `adk seal rotate`, and drop the others when that says that nothing needs them.
    """
    from adk_worker.sealing.key_file import add_key
    from adk_worker.sealing.keys import SealKey

    made = SealKey.new(key_id or f"{datetime.now(UTC):%Y%m%d}-{secrets.token_hex(2)}")
    if file is None:
        if as_json:
            emit({"id": made.id, "key": made.text, "file": None})
        else:
            say(made.text)
            note("a new key: whoever has it can read what it seals. Put it into ADK_SEAL_KEYS of every process")
        return ExitCode.DONE
    ids = add_key(file, made).ids
    if as_json:
        emit({"id": made.id, "key": None, "file": str(file)})
    else:
        place = "it is the only one, and seals" if len(ids) == 1 else f"{ids[0]} seals, until its line comes first"
        say(f"key {made.id} is in {printable(str(file))}: {place}")
    return ExitCode.DONE


@keys.command("list", short_help="See which keys there are here.")
@options.as_json
@options.debug
def list_keys(*, as_json: bool) -> int:
    """Say by their ids which keys this process would have, the one that seals first. It shows no key."""
    from adk_worker.cli.source import FromSettings

    settings, _ = FromSettings.settings(store=False)
    found = settings.read_seal_keys()
    ids = found.ids if found else ()
    for place, key_id in enumerate(ids):
        if as_json:
            emit({"id": key_id, "seals": place == 0})
        else:
            say(f"{key_id}  {'seals and opens' if place == 0 else 'opens'}")
    if not ids:
        note("no seal keys: ADK_SEAL_KEYS and ADK_SEAL_KEYS_FILE name none. `adk seal keys new` makes one")
    return ExitCode.DONE


@dataclass(slots=True)
class _Told:
    keys: SealKeys
    came_to: Counter[str] = field(default_factory=Counter)
    needed: Counter[str] = field(default_factory=Counter)
    left: list[Rotated] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether nothing needs another key than the one that seals."""
        return not (self.needed or self.came_to["unreadable"])

    @property
    def spare(self) -> list[str]:
        """The ids of the keys that nothing needs."""
        return [] if self.came_to["unreadable"] else [name for name in self.keys.ids[1:] if not self.needed[name]]


@seal.command("rotate", short_help="Seal anew what runs hold, so that old keys can be dropped.")
@click.option("--tenant", metavar="T", type=options.Name("tenant"), help="Of this tenant alone; of all by default.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Name at most so many that need another key.",
)
@options.as_json
@options.debug
@click.pass_obj
def rotate(invocation: Invocation, *, tenant: str | None, limit: int, as_json: bool) -> int:
    """Seal anew, under the key that seals, what runs hold that may be carried on; say which keys are still needed.

    Safe beside a live fleet: a run that moves meanwhile is left alone, and one that a worker holds is sealed anew by
    that worker at its next boundary. Run it once all processes have the new key first, and again until nothing needs
    the old one; then drop that. What runs that are over have sealed is not touched: without its key nobody can read it.

    Exit codes: 0 nothing needs another key than the first, 4 something does, 64 and above anything else.
    """
    from adk_worker.errors import ConfigurationError

    async def work() -> _Told:
        from adk_worker.sealing.keys import SealKeys
        from adk_worker.sealing.rotation import rotate as rotated

        async with invocation.source.open() as access:
            keys = (access.settings.read_seal_keys() if access.settings else None) or SealKeys()
            if not keys:
                raise ConfigurationError(
                    "there is no seal key to rotate to: set ADK_SEAL_KEYS or ADK_SEAL_KEYS_FILE as the workers have it."
                )
            told = _Told(keys)
            async for one in rotated(access.stores, keys, tenant=tenant):
                told.came_to[one.came_to.value] += 1
                told.needed.update(one.needs)
                if one.needs or one.came_to.value == "unreadable":
                    told.left.append(one)
            return told

    told = awaited(work)
    if as_json:
        emit(_object(told, tenant))
    else:
        _tell(told, tenant, limit)
    return ExitCode.DONE if told.done else ExitCode.REFUSED


def _object(told: _Told, tenant: str | None) -> dict[str, object]:
    names = ("resealed", "current", "held", "moving", "unopened", "unreadable")
    return {
        "key": told.keys.ids[0],
        "tenant": tenant,
        **{name: told.came_to[name] for name in names},
        "needed": dict(sorted(told.needed.items())),
        "spare": told.spare,
    }


def _tell(told: _Told, tenant: str | None, limit: int) -> None:
    from adk_worker.cli.output import grid

    first = told.keys.ids[0]
    say(f"{counted(told.came_to['resealed'], 'run')} sealed anew under {first}; {told.came_to['current']} were already")
    if told.left and limit:
        rows = [
            (one.run.tenant, one.run.run_id, one.run.status.value, one.came_to.value, ", ".join(one.needs))
            for one in told.left[:limit]
        ]
        say(grid(("TENANT", "RUN", "STATUS", "WHY", "NEEDS"), rows))
    if len(told.left) > limit:
        note(f"there are more: --limit names more than {limit} of {len(told.left)}")
    for name, number in sorted(told.needed.items()):
        say(f"key {name} is still needed by {counted(number, 'run')}: rotate again in a while")
    for name in told.spare:
        say(f"key {name} is needed by no run{' of that tenant' if tenant else ': it can be dropped'}")
