"""Where this machine has the servers' program files."""

from __future__ import annotations

import shutil
from pathlib import Path


class ServerMissingError(RuntimeError):
    """A server that the tests need is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(
            f"{package} is not installed: run scripts/test, which sees to it, or apt-get install {package}"
        )
        self.package = package


def find_postgres() -> Path:
    """Return the folder that holds ``postgres`` and ``initdb``: that of PATH, else the newest of Debian's.

    Debian keeps the server's programs off PATH, in one folder for each major version.
    """
    on_path = shutil.which("pg_ctl")
    folders = [Path(on_path).resolve().parent] if on_path else []
    installed = Path("/usr/lib/postgresql").glob("*/bin")
    folders += sorted(installed, key=lambda path: _version(path.parent.name), reverse=True)
    for folder in folders:
        if (folder / "postgres").is_file() and (folder / "initdb").is_file():
            return folder
    raise ServerMissingError("postgresql")


def find_redis() -> Path:
    """Return the path of ``redis-server``."""
    found = shutil.which("redis-server", path=None) or shutil.which("redis-server", path="/usr/bin")
    if found is None:
        raise ServerMissingError("redis-server")
    return Path(found)


def find_rabbitmq() -> tuple[Path, Path]:
    """Return the paths of RabbitMQ's own ``rabbitmq-server`` and of Erlang's port mapper, ``epmd``.

    What Debian has on PATH is a wrapper that runs as the service's user and with its settings.
    """
    places = [Path("/usr/lib/rabbitmq/bin"), *Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin")]
    on_path = shutil.which("rabbitmq-server")
    if on_path:
        places.append(Path(on_path).resolve().parent)
    mapper = shutil.which("epmd", path=None) or shutil.which("epmd", path="/usr/bin")
    for place in places:
        if mapper and (place / "rabbitmq-server").is_file():
            return place / "rabbitmq-server", Path(mapper)
    raise ServerMissingError("rabbitmq-server")


def find_pgbouncer() -> Path:
    """Return the path of ``pgbouncer``, which Debian keeps where only root's PATH leads."""
    found = shutil.which("pgbouncer", path=None) or shutil.which("pgbouncer", path="/usr/sbin")
    if found is None:
        raise ServerMissingError("pgbouncer")
    return Path(found)


def missing_packages() -> list[str]:
    """Return the Debian packages that would bring what is not here."""
    missing = []
    for find in (find_postgres, find_redis, find_rabbitmq, find_pgbouncer):
        try:
            find()
        except ServerMissingError as error:
            missing.append(error.package)
    return missing


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split(".") if part.isdigit())
