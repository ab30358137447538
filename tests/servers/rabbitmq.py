"""A RabbitMQ server for tests, of one node."""

from __future__ import annotations

import base64
import http.client
import json
import os
import secrets
import shutil
import signal
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import amqp

from tests.servers.binaries import find_rabbitmq
from tests.servers.daemon import HOST, Daemon, free_port, make_folder
from tests.servers.orphans import OrphanGuard

_USER = "tests"
_VHOST = "tests"
_PATIENCE = 120.0

_SETTINGS = {
    "default_user": _USER,
    "default_vhost": _VHOST,
    "default_permissions.configure": ".*",
    "default_permissions.read": ".*",
    "default_permissions.write": ".*",
    "default_user_tags.administrator": "true",
    # An alarm for want of disk would block whoever publishes; the tests need none.
    "disk_free_limit.absolute": "1MB",
    # Of its management we want to be able to ask what is there, and no history of it.
    "management_agent.disable_metrics_collector": "true",
    "management.disable_stats": "true",
    "log.console": "true",
    "log.console.level": "info",
    "log.file": "false",
}

# Two schedulers that do not spin while they have nothing to do: the tests' other processes want the processors too.
_ERLANG = "-noinput +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}"


class RabbitServer:
    """A server of its own. Start, stop, kill and restart keep ports and data; ``close`` removes the data.

    Its node is registered with a port mapper (epmd) of its own, so that it meets neither a service of the machine's nor
    another of its kind. ``settings`` are parameters of its application ``rabbit``, by their Erlang names.
    """

    def __init__(self, *, settings: Mapping[str, int] | None = None, guard: OrphanGuard | None = None) -> None:
        program, mapper = find_rabbitmq()
        self.port = free_port()
        self._http = free_port()
        self._password = secrets.token_hex(12)
        self._folder = make_folder("adk-rabbitmq-", owner=None, guard=guard)
        self._vhosts = 0
        self._write_settings(settings or {})
        environment = self._environment()
        mapped = ["-port", environment["ERL_EPMD_PORT"], "-address", HOST]
        self._mapper = Daemon(
            [str(mapper), *mapped],
            log=self._folder / "epmd.log",
            ready=lambda: True,
            stop_signal=signal.SIGTERM,
            guard=guard,
        )
        self._daemon = Daemon(
            [str(program)],
            log=self._folder / "server.log",
            ready=self._answers,
            stop_signal=signal.SIGTERM,
            environment=environment,
            guard=guard,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The process id, None while the server is down."""
        return self._daemon.pid

    def start(self) -> None:
        """Start the server if it is down; returns once it answers."""
        self._mapper.start()
        self._daemon.start(within=_PATIENCE)

    def stop(self) -> None:
        """Stop the server in good order."""
        self._daemon.stop(within=_PATIENCE)

    def restart(self) -> None:
        """Stop the server and start it again, on the same ports and data."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """SIGKILL."""
        self._daemon.kill()

    def close(self) -> None:
        """End the server and remove its files. To stop in good order takes it several seconds, and nobody reads on."""
        self.kill()
        self._mapper.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def log_tail(self, lines: int = 30) -> str:
        """Return the end of the server's log."""
        return self._daemon.log_tail(lines)

    def url(self, vhost: str = _VHOST) -> str:
        """Return the address of a virtual host: ``amqp://tests:password@host:port/vhost``."""
        return f"amqp://{_USER}:{self._password}@{HOST}:{self.port}/{quote(vhost, safe='')}"

    def fresh_vhost(self) -> str:
        """Return the URL of a virtual host in which nothing is declared. It goes with the server."""
        self._vhosts += 1
        name = f"test-{self._vhosts}"
        self.ask("PUT", f"/vhosts/{name}")
        self.ask("PUT", f"/permissions/{name}/{_USER}", {"configure": ".*", "read": ".*", "write": ".*"})
        return self.url(name)

    def queues(self, url: str) -> dict[str, str]:
        """Return the type of each queue of the virtual host that ``url`` names."""
        found = self.ask("GET", f"/queues/{url.rpartition('/')[2]}")
        return {queue["name"]: queue.get("type", "classic") for queue in found}

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the server's management; see its own documentation of ``/api``. Raises AssertionError on a refusal."""
        connection = http.client.HTTPConnection(HOST, self._http, timeout=60)
        try:
            token = base64.b64encode(f"{_USER}:{self._password}".encode()).decode()
            headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}
            connection.request(method, f"/api{path}", None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        assert answer.status < http.HTTPStatus.BAD_REQUEST, f"{method} {path}: {answer.status} {said!r}"
        return json.loads(said) if said else None

    def _write_settings(self, more: Mapping[str, int]) -> None:
        chosen = {**_SETTINGS, "default_pass": self._password}
        chosen |= {f"listeners.tcp.{_VHOST}": f"{HOST}:{self.port}"}
        chosen |= {"management.tcp.ip": HOST, "management.tcp.port": str(self._http)}
        lines = "".join(f"{name} = {value}\n" for name, value in chosen.items())
        (self._folder / "rabbitmq.conf").write_text(lines)
        terms = ", ".join(f"{{{name}, {value}}}" for name, value in more.items())
        (self._folder / "advanced.config").write_text(f"[{{rabbit, [{terms}]}}].\n")
        (self._folder / "enabled_plugins").write_text("[rabbitmq_management].\n")
        (self._folder / "environment").touch()

    def _environment(self) -> dict[str, str]:
        """Of the server's process: whatever the machine's own service is set to is not read."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))}
        folder = str(self._folder)
        return {
            **kept,
            # Where Erlang keeps the secret by which nodes know each other.
            "HOME": folder,
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": f"adk-{secrets.token_hex(6)}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/environment",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{folder}/advanced.config",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{folder}/generated",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_FEATURE_FLAGS_FILE": f"{folder}/feature_flags",
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            # The script then becomes the server, instead of waiting for it; -noinput has it take no input after all.
            "RABBITMQ_ALLOW_INPUT": "true",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _ERLANG,
        }

    def _answers(self) -> bool:
        try:
            connection = amqp.Connection(
                host=f"{HOST}:{self.port}",
                userid=_USER,
                password=self._password,
                virtual_host=_VHOST,
                connect_timeout=60,
            )
            connection.connect()
            connection.close()
            self.ask("GET", "/overview")
        except (OSError, amqp.exceptions.AMQPError, http.client.HTTPException, AssertionError):
            return False
        return True
