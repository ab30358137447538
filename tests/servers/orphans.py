"""Ends what a test session leaves behind when it is killed: servers, workers, folders.

Fixtures stop what they started, but not after a SIGKILL or an `os._exit`. So a small process holds the other end of a
pipe; when the pipe closes, the session is gone, whatever the reason, and what it had registered is ended and removed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self


class OrphanGuard:
    """Takes note of processes and folders that must not outlive this one."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            # A Ctrl-C at the terminal is for the session; this process has to come after it.
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def watch(self, pid: int) -> None:
        """Have the process ended (SIGKILL) if it is still there when this session is gone."""
        self._tell("process", [pid, started_at(pid)])

    def watch_folder(self, path: Path) -> None:
        """Have the folder removed if it is still there when this session is gone."""
        self._tell("folder", str(path))

    def close(self) -> None:
        """End the guard. What was registered and is still there is ended and removed by that too."""
        self._process.communicate()

    def _tell(self, what: str, value: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, value]).encode() + b"\n")
        self._process.stdin.flush()


def started_at(pid: int) -> int | None:
    """Return when the process started, in clock ticks since boot; None if there is none (or only its remains)."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command's name may hold blanks and parentheses; fields are counted after its last one.
    fields = status.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def end_what_is_left(lines: Iterable[bytes]) -> None:
    """Read registrations to their end, then kill and remove what is still there."""
    processes: list[tuple[int, int | None]] = []
    folders: list[str] = []
    for line in lines:
        what, value = json.loads(line)
        if what == "process":
            processes.append((value[0], value[1]))
        else:
            folders.append(value)
    for pid, start in processes:
        # The number alone may be another process's by now.
        if start is not None and started_at(pid) == start:
            os.kill(pid, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    end_what_is_left(sys.stdin.buffer)
