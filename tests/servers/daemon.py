"""A server's process: started, stopped, killed, and started again on the same port with the same data."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.servers.orphans import OrphanGuard
from tests.waiting import wait_until

HOST = "127.0.0.1"

_chosen: set[int] = set()
"""Ports that were given to somebody here, who may not listen there yet."""


class ServerFailedError(RuntimeError):
    """The server ended by itself, or did not answer in time; the message closes with the end of its log."""


class Daemon:
    """One server process. ``command`` runs in the foreground; ``ready`` says whether the server answers.

    ``stop_signal`` is what the server takes as a request to end in good order. ``user`` is whom it runs as, None for
    whoever runs the tests. ``passing`` is what the log says when a start failed for a reason that passes by itself.
    ``environment`` is the process's whole environment, None for that of the tests.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        ready: Callable[[], bool],
        stop_signal: signal.Signals,
        user: str | None = None,
        passing: str | None = None,
        environment: Mapping[str, str] | None = None,
        guard: OrphanGuard | None = None,
    ) -> None:
        self._command = command
        self._log = log
        self._ready = ready
        self._stop_signal = stop_signal
        self._user = user
        self._passing = passing
        self._environment = environment
        self._guard = guard
        self._process: subprocess.Popen[bytes] | None = None
        # How much the log held, in characters, before the newest start.
        self._logged = 0

    @property
    def pid(self) -> int | None:
        """The process's id, None while it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self, *, within: float = 60.0) -> None:
        """Start the server and return once it answers. Raises :class:`ServerFailedError`."""
        if self.pid is not None:
            return
        self._spawn()

        def up() -> bool:
            if self.pid is None:
                if self._passing is None or self._passing not in self._log.read_text(errors="replace")[self._logged :]:
                    raise ServerFailedError(f"the server ended as it started:\n{self.log_tail()}")
                self._spawn()
            return self._ready()

        try:
            wait_until(up, within=within, what=f"{self._command[0]} to answer")
        except AssertionError as error:
            self.kill()
            raise ServerFailedError(f"{error}\n{self.log_tail()}") from None

    def stop(self, *, within: float = 60.0) -> None:
        """End the server in good order; one that does not end in time is killed, and that is an error."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(self._stop_signal)
        try:
            self._process.wait(timeout=within)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailedError(f"the server did not stop in {within:g} s:\n{self.log_tail()}") from None
        self._process = None

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def log_tail(self, lines: int = 30) -> str:
        """Return the end of what the server wrote to its log."""
        written = self._log.read_text(errors="replace") if self._log.exists() else ""
        return "\n".join(written.splitlines()[-lines:])

    def _spawn(self) -> None:
        self._logged = len(self._log.read_text(errors="replace")) if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._log.parent,
                env=self._environment,
                # A Ctrl-C at the terminal is for pytest, whose fixtures then stop the servers in order.
                start_new_session=True,
                **as_user(self._user),
            )
        if self._guard is not None:
            self._guard.watch(self._process.pid)


def as_user(name: str | None) -> dict[str, Any]:
    """Return the arguments with which :class:`subprocess.Popen` runs a command as that user."""
    if name is None:
        return {}
    return {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}


def unprivileged_user() -> str | None:
    """Return whom to run a server as that refuses to run as root; None when we are not root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def make_folder(prefix: str, *, owner: str | None, guard: OrphanGuard | None) -> Path:
    """Make a folder for a server's files that ``owner`` may use.

    It stands in /tmp, not in pytest's own temporary folders: those are closed to other users, and a server started by
    root runs as another.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    if guard is not None:
        guard.watch_folder(folder)
    if owner is not None:
        shutil.chown(folder, owner, pwd.getpwnam(owner).pw_gid)
    return folder


def free_port() -> int:
    """Return a port that nothing listens on, another one each time.

    It is below the range from which the kernel takes ports for outgoing connections, else one of those could sit on it
    while a server is restarted.
    """
    for port in random.sample(range(10_240, 32_000), 200):
        if port in _chosen:
            continue
        with socket.socket() as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                candidate.bind((HOST, port))
            except OSError:
                continue
            _chosen.add(port)
            return port
    raise ServerFailedError("no free port among 200 tried")
