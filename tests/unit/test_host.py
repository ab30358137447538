"""What a worker program sees to before it consumes."""

from __future__ import annotations

import sys

from tasks import host


def test_agents_are_found_in_the_working_folder_behind_everything_else(tmp_path, monkeypatch):
    """The celery script does not look there by itself; a file of that folder must not hide an installed package."""
    monkeypatch.setattr(sys, "path", ["/somewhere"])
    monkeypatch.chdir(tmp_path)

    host._look_here_too()  # noqa: SLF001 - the program around it is tested as a process
    host._look_here_too()  # noqa: SLF001

    assert sys.path == ["/somewhere", str(tmp_path)]
