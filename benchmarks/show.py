"""How the benchmarks say what they measured, and on what."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

import psutil
import redis
from rich.table import Table

from benchmarks.bed import Servers

_PACKAGES = ("celery", "kombu", "redis", "SQLAlchemy", "psycopg2-binary", "pydantic")


def machine(on: Servers) -> str:
    """What it was measured on."""
    installed = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    server = on.postgres.execute("SHOW server_version")[0][0]
    return (
        f"{platform.system()} {platform.release()}, {psutil.cpu_count()} processors ({_processor()}), "
        f"Python {platform.python_version()}, PostgreSQL {server} (fsync on), {_redis(on)}\n{installed}"
    )


def table(title: str, *columns: str) -> Table:
    """An empty table; its first column is of names, the others of numbers."""
    made = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        made.add_column(column, justify="right" if number else "left")
    return made


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def _redis(on: Servers) -> str:
    with redis.Redis.from_url(on.redis.url()) as client:
        return f"Redis {client.info('server')['redis_version']} (keeps nothing)"
