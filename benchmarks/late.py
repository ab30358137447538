"""The fleet's configuration with late acknowledgements, ``--config benchmarks.late``."""

from __future__ import annotations

from adk_worker.settings import Settings
from tasks.config import celery_config

globals().update(celery_config(Settings.load()))
task_acks_late = True
