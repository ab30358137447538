"""The fleet's configuration with no message in hand while all slots are taken, ``--config benchmarks.unhoarded``.

Celery has it for Redis alone.
"""

from __future__ import annotations

from adk_worker.settings import Settings
from tasks.config import celery_config

globals().update(celery_config(Settings.load()))
worker_disable_prefetch = True
