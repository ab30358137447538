"""Runs a program that must not outlive its parent: ``python -I -S leash.py PARENT_PID PROGRAM [ARGUMENT …]``.

It asks the kernel for a SIGKILL when the parent dies, however it dies, and becomes the program. It is run by its path,
so that it costs some milliseconds and imports nothing of ours. Only Linux has the request; elsewhere it is left out.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Become the program; does not return."""
    parent, program = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)
    os.execvp(program[0], program)  # noqa: S606 - the program is our parent's choice


if __name__ == "__main__":
    main(sys.argv[1:])
