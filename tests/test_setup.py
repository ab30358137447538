"""What the setup behind the scripts does when it cannot go on; that it goes on, every run of scripts/test shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run_test_script(**environment):
    return subprocess.run(
        [ROOT / "scripts" / "test", "--version"],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, **{name: str(value) for name, value in environment.items()}},
    )


def test_an_interpreter_that_is_none_is_named(tmp_path):
    ran = run_test_script(PYTHON="/nowhere/python3", ADK_VENV=tmp_path / "venv")

    assert ran.returncode == 69
    assert "PYTHON=/nowhere/python3 is not a Python" in ran.stderr


def test_an_interpreter_that_is_too_old_is_named(tmp_path):
    old = tmp_path / "python3"
    old.write_text(f'#!/bin/sh\nexec {sys.executable} -c "import sys; sys.version_info = (3, 10); $2"\n')
    old.chmod(0o755)

    ran = run_test_script(PYTHON=old, ADK_VENV=tmp_path / "venv")

    assert ran.returncode == 69
    assert f"PYTHON={old} is not a Python of 3.11 to 3.14" in ran.stderr


def test_a_folder_that_is_no_environment_is_left_alone(tmp_path):
    letter = tmp_path / "letter"
    letter.write_text("dear")

    ran = run_test_script(ADK_VENV=tmp_path)

    assert ran.returncode == 69
    assert f"{tmp_path} is in the way" in ran.stderr
    assert letter.read_text() == "dear"


@pytest.mark.parametrize("script", ["scripts/demo", "scripts/test", "scripts/lock", ".ci/run"])
def test_a_script_can_be_run(script):
    assert os.access(ROOT / script, os.X_OK)
