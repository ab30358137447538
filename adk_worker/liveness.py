"""Which process does something, and whether it is known to be dead (I11).

A holder's name and a claim's owner are one string that carries a :class:`ProcessIdentity`, a label and something
random, so that it is unique per acquisition (L4) and any process on the same host can later ask whether it is dead.
"Known dead" is a proof, not a guess: the same boot of the same kernel, the same pid namespace, and no process with that
pid and start time. Everything else, another host above all, is unknown. Linux is where proofs come from; elsewhere
nothing is ever known dead.
"""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_FIELDS = 7


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process among all processes of all hosts. ``started`` is in clock ticks since the boot; empty is unknown."""

    host: str
    pid: int
    started: str
    boot: str
    pid_namespace: str

    @classmethod
    def current(cls) -> ProcessIdentity:
        """This process. Ask after a fork, never before."""
        pid = os.getpid()
        return cls(
            host=socket.gethostname().replace("/", "_"),
            pid=pid,
            started=_started(pid) or "",
            boot=_boot(),
            pid_namespace=_pid_namespace(),
        )

    def known_dead(self) -> bool:
        """Whether this process can be proven dead from here, now."""
        if not (self.started and self.boot and self.pid_namespace):
            return False
        if self.boot != _boot() or self.pid_namespace != _pid_namespace():
            return False
        found = _started(self.pid)
        return found is None or found not in {"", self.started}


@dataclass(frozen=True, slots=True)
class Holder:
    """The name under which one acquisition holds a lease, or owns a claim."""

    process: ProcessIdentity
    label: str
    nonce: str

    @classmethod
    def new(cls, label: str) -> Holder:
        """A name of this process, never given before. ``label`` says what for: a task's id, ``cli``."""
        return cls(ProcessIdentity.current(), label.replace("/", "_") or "-", secrets.token_hex(8))

    def __str__(self) -> str:
        process = self.process
        fields = (process.host, str(process.pid), process.started, process.boot, process.pid_namespace)
        return "/".join((*fields, self.label, self.nonce))

    @classmethod
    def parse(cls, name: str) -> Holder | None:
        """Read ``str(holder)`` back; ``None`` for a name that somebody else made up."""
        fields = name.split("/")
        if len(fields) != _FIELDS or not fields[1].isdigit():
            return None
        host, pid, started, boot, namespace, label, nonce = fields
        return cls(ProcessIdentity(host, int(pid), started, boot, namespace), label, nonce)


def known_dead(name: str) -> bool:
    """Whether the process behind a holder's or an owner's name is known dead; a name that tells nothing is not."""
    holder = Holder.parse(name)
    return holder is not None and holder.process.known_dead()


def of_host(host: str) -> str:
    """What the names of all holders on ``host`` begin with, and no others'."""
    return f"{host}/"


def short_name(name: str) -> str:
    """A holder's name as people read it: host and pid, or the name itself if it is not one of ours."""
    holder = Holder.parse(name)
    return f"{holder.process.host} pid {holder.process.pid}" if holder else name


def _boot() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return str((_PROC / "self/ns/pid").stat().st_ino)
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """Start time of a living process in clock ticks, ``None`` if there is none, empty if that cannot be told.

    A zombie is dead once no other thread of it is left: it runs nothing.
    """
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "" if _exists(pid) else None
    except OSError:
        return ""
    # The command's name stands in parentheses and may itself contain spaces and parentheses: count from its end.
    fields = stat.rpartition(")")[2].split()
    state, threads, started = fields[0], int(fields[17]), fields[19]
    return None if state in {"Z", "X"} and threads <= 1 else started


def _exists(pid: int) -> bool:
    """Whether there may be such a process. /proc can hide those of other users (hidepid); the kernel tells of them."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
