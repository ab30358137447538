from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.packages import PACKAGES, ROOT, modules


def python(code, *arguments):
    """Run code in a fresh interpreter and return what it printed, as JSON."""
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_imports_point_one_way():
    """The contracts stand in pyproject.toml, under tool.importlinter."""
    linter = Path(sys.executable).with_name("lint-imports")

    ran = subprocess.run([linter, "--no-cache", "--no-logo"], check=False, cwd=ROOT, capture_output=True, text=True)

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_web_app_that_imports_the_kit_gets_no_broker_and_no_driver():
    loaded = python("from adk_worker import *; import json, sys; print(json.dumps(sorted(sys.modules)))")

    heavy = {"alembic", "billiard", "celery", "kombu", "psycopg2", "redis", "sqlalchemy", "stores", "tasks"}
    models = {"anthropic", "boto3", "genai_prices", "httpx", "httpx2", "openai", "pydantic_ai"}
    assert (heavy | models).isdisjoint(name.partition(".")[0] for name in loaded)


def test_nor_does_a_worker_wait_for_the_sdks_of_models_that_none_of_its_agents_names():
    loaded = python("import tasks.worker, json, sys; print(json.dumps(sorted(sys.modules)))")

    assert {"anthropic", "openai", "pydantic_ai"}.isdisjoint(name.partition(".")[0] for name in loaded)


# Runs in a fresh interpreter: imports modules, and reports what code of our packages did meanwhile to the world
# around it. Only what our code did by itself counts (a library may read its own data as it is imported), which is what
# the innermost frame outside the standard library tells.
_WATCH = r"""
import importlib, json, os, sys, sysconfig

ours, names = sys.argv[1].split(), sys.argv[2:]
standard = tuple({sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib")})
deeds = []

def by_us():
    frame = sys._getframe(2)
    while frame is not None:
        file, module = frame.f_code.co_filename, frame.f_globals.get("__name__", "")
        if file.startswith("<frozen importlib") or module.startswith("importlib._bootstrap"):
            return None  # the import of something, not a deed of whoever imports it
        if module.partition(".")[0] in ours:
            return f"{file}:{frame.f_lineno}"
        if module != "__main__" and not (file.startswith((*standard, "<frozen")) and "site-packages" not in file):
            return None  # a library's own doing
        frame = frame.f_back
    return None

WATCHED = ("open", "os.", "socket.", "sqlite3.", "subprocess.", "shutil.", "tempfile.", "pathlib.", "glob.")

def heard(event, arguments):
    if event.startswith(WATCHED) and (where := by_us()):
        deeds.append(f"{where} {event} {arguments!r}")

class Watched(dict):
    def __getitem__(self, key):
        if where := by_us():
            deeds.append(f"{where} reads the environment: {key}")
        return super().__getitem__(key)

sys.addaudithook(heard)
os.environ._data = Watched(os.environ._data)
for name in names:
    importlib.import_module(name)
print(json.dumps(deeds))
"""


def test_importing_a_module_does_nothing():
    """Neither the environment nor a file nor a socket is touched: configuration is passed in."""
    assert python(_WATCH, " ".join(PACKAGES), *modules()) == []


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        ("import os; os.environ.get('HOME')", "environment"),
        ("import os; os.getenv('HOME')", "environment"),
        ("import pathlib; pathlib.Path('pyproject.toml').read_text()", "open"),
        ("import socket; socket.create_connection(('127.0.0.1', 9), 1)", "socket.connect"),
        ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
        ("import sqlite3; sqlite3.connect(':memory:')", "sqlite3.connect"),
    ],
)
def test_the_watch_over_imports_notices(tmp_path, deed, told):
    (tmp_path / "busy.py").write_text(f"try:\n    {deed}\nexcept OSError:\n    pass\n")

    deeds = python(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{_WATCH}", "busy", "busy")

    assert any(told in deed for deed in deeds), deeds


def test_the_watch_over_imports_does_not_blame_us_for_a_library(tmp_path):
    (tmp_path / "innocent.py").write_text("import celery, pydantic\nclass M(pydantic.BaseModel):\n    n: int\n")

    assert python(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{_WATCH}", "innocent", "innocent") == []
