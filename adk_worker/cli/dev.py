"""``adk dev``: a whole fleet on this machine, which needs no server and leaves the database's file, and its keys."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import click

from adk_worker.cli import options
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import note, say
from adk_worker.cli.program import awaited
from adk_worker.printable import printable, quoted

if TYPE_CHECKING:
    from adk_worker.cli.supervisor import Program
    from adk_worker.settings import Settings

TIMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ADK_LEASE_TTL": "6",
        "ADK_REAP_EVERY": "1",
        "ADK_DISPATCH_GRACE": "3",
        "ADK_DRAIN_TIMEOUT": "5",
    }
)
"""So short that a recovery is seen while one looks, where the environment does not say otherwise."""

_OURS: Final = ("ADK_STORE_URL", "ADK_MIGRATE_URL", "ADK_BROKER_URL")
_DEFAULT_CONCURRENCY: Final = MappingProxyType({"threads": 8, "prefork": 2, "solo": 1})


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the command line asks for."""

    database: Path
    agents: str
    workers: int
    pool: str
    concurrency: int
    port_file: Path | None

    @property
    def keys(self) -> Path:
        """The file of seal keys beside the database."""
        return self.database.with_name(f"{self.database.name}.keys")


@click.command("dev", short_help="Run a whole fleet on this machine: SQLite, a broker, workers.")
@click.option(
    "--db",
    "database",
    type=click.Path(dir_okay=False, path_type=Path),
    default="adk.db",
    show_default=True,
    help="The database's file; made if there is none.",
)
@click.option(
    "--agents", metavar="MODULES", help="Modules that hold the agents, comma-separated; ADK_AGENTS by default."
)
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="How many worker processes.",
)
@click.option(
    "-P", "--pool", type=click.Choice(list(_DEFAULT_CONCURRENCY)), default="threads", show_default=True,
    help="How a worker runs several iterations at once.",
)  # fmt: skip
@click.option("-c", "--concurrency", metavar="N", type=click.IntRange(min=1), help="How many at once in each worker.")
@click.option(
    "--port-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the broker's port there once all is ready; removed in the end.",
)
@options.debug
def dev(
    *,
    database: Path,
    agents: str | None,
    workers: int,
    pool: str,
    concurrency: int | None,
    port_file: Path | None,
) -> int:
    """Run a whole fleet on this machine until Ctrl-C: a SQLite file, a broker on the loopback, workers and beat.

    No server is needed, and nothing stays behind but the database's file, and beside it one with seal keys, unless the
    environment has some. Whatever dies is started again: kill -9 any of it, and the runs go on. Other terminals find
    the fleet by themselves, in the same folder first, where they set no ADK_STORE_URL.

    Times are short unless the environment says otherwise, so that a recovery is seen: a lease of 6 s, a reaper each
    second. For production, see the Procfile.
    """
    if concurrency is None:
        concurrency = _DEFAULT_CONCURRENCY[pool]
    named = agents if agents is not None else os.environ.get("ADK_AGENTS", "")
    wanted = _Wanted(database.absolute(), named, workers, pool, concurrency, port_file and port_file.absolute())
    awaited(lambda: _run(wanted))
    return ExitCode.DONE


async def _run(wanted: _Wanted) -> None:
    from adk_worker.cli.rendezvous import DevFleet, announced, told
    from adk_worker.cli.supervisor import Supervisor
    from adk_worker.liveness import Holder

    unused = [name for name in _OURS if os.environ.get(name, "").strip()]
    if unused:
        note(
            f"note: not used here: {', '.join(unused)}. adk dev has a store and a broker of its own; "
            "a terminal that is to find it must not set them."
        )
    port = _free_port()
    environment = _environment(wanted, port)
    settings = _checked(environment, wanted)
    await asyncio.to_thread(_upgrade, settings.store_url)
    _seal_keys(settings, wanted)
    log = Log()
    supervisor = Supervisor(environment, log.line)
    log.on_broken = supervisor.stop
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.stop)

    with ExitStack() as until_the_end:

        def ready() -> None:
            fleet = DevFleet(str(Path.cwd().resolve()), str(Holder.new("dev")), told(environment))
            until_the_end.enter_context(announced(fleet))
            if wanted.port_file is not None:
                _write(wanted.port_file, f"{port}\n")
                until_the_end.callback(wanted.port_file.unlink, missing_ok=True)
            log.say(_welcome(settings, wanted))

        try:
            await supervisor.run([_broker(port)], _fleet(wanted, settings), on_ready=ready)
        finally:
            await asyncio.to_thread(_tidy, wanted.database)
    log.say(f"stopped; {printable(str(wanted.database))} has the runs")


# --- before anything is started -----------------------------------------------------------------------------------


def _environment(wanted: _Wanted, port: int) -> dict[str, str]:
    """What every program of the fleet finds in its environment."""
    kept = {name: value for name, value in os.environ.items() if name not in _OURS}
    times = {name: value for name, value in TIMES.items() if not kept.get(name)}
    if not kept.get("ADK_SEAL_KEYS"):
        # As other folders have to find it.
        kept["ADK_SEAL_KEYS_FILE"] = str(Path(kept.get("ADK_SEAL_KEYS_FILE") or wanted.keys).absolute())
    return {
        **kept,
        **times,
        "ADK_AGENTS": wanted.agents,
        "ADK_STORE_URL": f"sqlite:///{quote(str(wanted.database), safe='/ ')}",
        "ADK_BROKER_URL": f"redis://127.0.0.1:{port}/0",
        "PYTHONUNBUFFERED": "1",
    }


def _checked(environment: Mapping[str, str], wanted: _Wanted) -> Settings:
    """The fleet's settings, or the error that says what is missing, before anything is started or written."""
    from importlib.util import find_spec

    from adk_worker.cli.rendezvous import running
    from adk_worker.errors import ConfigurationError
    from adk_worker.registry import Registry
    from adk_worker.settings import PREFIX, Settings
    from adk_worker.siblings import require_ours

    for package in ("stores", "tasks"):
        require_ours(package)
    if find_spec("fakeredis") is None:
        raise ConfigurationError(
            "adk dev needs the extra 'embedded' for its broker: pip install 'adk-worker[embedded]'"
        )
    names = ("ADK_AGENTS", *TIMES, "ADK_STORE_URL", "ADK_BROKER_URL", "ADK_SEAL_KEYS_FILE")
    given = {name: environment[name] for name in names if name in environment}
    settings = Settings.load(**{name.removeprefix(PREFIX).lower(): value for name, value in given.items()})
    if not settings.agents:
        raise ConfigurationError(
            "adk dev needs agents: name the modules that hold them, --agents myshop.agents or ADK_AGENTS=myshop.agents"
        )
    Registry.load(settings.agents)
    if not wanted.database.parent.is_dir():
        raise ConfigurationError(f"there is no folder {wanted.database.parent} for the database's file (--db).")
    for fleet in running():
        if fleet.environment.get("ADK_STORE_URL") == settings.store_url:
            raise ConfigurationError(
                f"the adk dev of pid {fleet.pid} works on {wanted.database} already; stop it, or take another --db."
            )
    return settings


def _upgrade(store_url: str) -> None:
    from stores.sql import migrate

    before = migrate.current(store_url)
    migrate.upgrade(store_url)
    after = migrate.current(store_url)
    if before != after:
        say(f"database: upgraded from {before or 'nothing'} to {after}")


def _seal_keys(settings: Settings, wanted: _Wanted) -> None:
    """Make the keys beside the database, if no others are named, and see that those there are can be read."""
    from adk_worker.sealing.key_file import make_keys
    from adk_worker.sealing.keys import SealKey

    if settings.seal_keys_file == wanted.keys and make_keys(wanted.keys, SealKey.new("dev")):
        say(f"seal keys: made {printable(str(wanted.keys))}; keep it with the database, and out of version control")
    settings.read_seal_keys()


def _free_port() -> int:
    """A port for the broker, fixed for its restarts: below those that the kernel gives to outgoing connections."""
    import random
    import socket

    for port in random.sample(range(10_240, 32_000), 100):  # nothing secret about it
        with socket.socket() as candidate:
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no free port among 100 tried on the loopback")


# --- what is started ----------------------------------------------------------------------------------------------


def _broker(port: int) -> Program:
    from adk_worker.cli.supervisor import Program

    command = [sys.executable, "-m", "tasks.embedded", "--port", str(port)]
    return Program("broker", command, ready="ready", patience=5.0)


def _fleet(wanted: _Wanted, settings: Settings) -> list[Program]:
    from adk_worker.cli.supervisor import Program

    # In a container one is root as a rule, and Celery has five lines to say about that.
    as_root = ["-W", "ignore:You're running the worker with superuser privileges"]
    celery = [sys.executable, *as_root, "-m", "celery", "-A", "tasks.app", "--quiet"]
    # Once a second, and nobody would find the other lines between them; what the reaper does is said all the same.
    ticks = ("Task adk.reap[", "Sending due task adk.reap")
    # A worker that leaves waits for its calls, and then for as long as it takes to say so.
    patience = settings.drain_timeout + 15.0

    def worker(name: str, queue: str, pool: str, concurrency: int) -> Program:
        arguments = ["worker", "-n", f"{name}@%h", "-Q", queue, "-P", pool, "-c", str(concurrency), "-l", "INFO"]
        # A fleet of one machine has nobody to gossip with.
        arguments += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        return Program(name, [*celery, *arguments], ready=" ready.", unsaid=ticks, patience=patience)

    names = [f"worker-{number}" for number in range(1, wanted.workers + 1)]
    return [
        worker("control", "adk.control", "threads", 1),
        Program("beat", [*celery, "beat", "-l", "INFO", "--pidfile", ""], ready="Starting", unsaid=ticks),
        *(worker(name, "adk", wanted.pool, wanted.concurrency) for name in names),
    ]


def _welcome(settings: Settings, wanted: _Wanted) -> str:
    workers = f"{wanted.workers} {'worker' if wanted.workers == 1 else 'workers'}"
    return "\n".join(
        [
            "",
            f"ready: {workers} for the agents of {printable(', '.join(settings.agents))}. From another terminal here:",
            '    adk run AGENT "input" --tenant T --wait',
            "and from elsewhere after",
            f"    export ADK_STORE_URL={quoted(settings.store_url)}",
            f"    export ADK_BROKER_URL={settings.required_broker_url}",
            "Ctrl-C stops it all.",
            "",
        ]
    )


class Log:
    """Prints the lines of the programs, each behind its name; escaped, for they may hold what models wrote.

    ``on_broken`` is called when nobody reads any more: a closed terminal, the end of a pipe.
    """

    _COLOURS = ("cyan", "green", "magenta", "blue", "yellow")

    def __init__(self) -> None:
        self._colour: dict[str, str] = {}
        self._broken = False
        self.on_broken: Callable[[], None] = lambda: None

    def line(self, name: str, text: str) -> None:
        """Print a line of a program's."""
        colour = self._colour.setdefault(name, self._COLOURS[len(self._colour) % len(self._COLOURS)])
        self.say(f"{click.style(f'{name:>9} |', fg=colour)} {printable(text.expandtabs())}")

    def say(self, text: str) -> None:
        """Print a line of ours."""
        if self._broken:
            return
        try:
            say(text)
        except OSError:
            self._broken = True
            self.on_broken()


# --- in the end ---------------------------------------------------------------------------------------------------


def _tidy(database: Path) -> None:
    """Do what workers that were killed could not: fold SQLite's write-ahead log back into the file, and leave."""
    import sqlite3
    from contextlib import closing, suppress

    from adk_worker.own_files import own_folder
    from adk_worker.pulse import pulses

    pulses(own_folder())  # it removes the signs of life of the dead
    with suppress(sqlite3.Error), closing(sqlite3.connect(database, timeout=5.0)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _write(file: Path, text: str) -> None:
    """Write it so that nobody ever reads half of it."""
    fresh = file.with_name(f"{file.name}.new")
    fresh.write_text(text)
    fresh.replace(file)
