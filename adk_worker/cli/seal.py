"""``adk seal``: the keys by which masked secrets are sealed."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from pathlib import Path

import click

from adk_worker.cli import options
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import emit, note, say
from adk_worker.printable import printable


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
    from adk_worker.key_file import add_key
    from adk_worker.sealing import SealKey

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

    settings, _ = FromSettings.settings()
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
