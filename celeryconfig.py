"""Celery's configuration of this deployment, for programs that are started with ``--config celeryconfig``.

All that the fleet needs is in tasks/config.py, each setting with its reason. What a deployment wants otherwise goes to
the end of this file, in Celery's own names, and wins. For example::

    worker_max_tasks_per_child = 10_000  # prefork: a fresh child now and then, against tools that leak
    broker_use_ssl = {"ca_certs": "/etc/ssl/broker.pem"}
"""

from __future__ import annotations

from adk_worker.settings import Settings
from tasks.config import celery_config

globals().update(celery_config(Settings.load()))
