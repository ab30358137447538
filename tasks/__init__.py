"""The Celery side of the fleet: the app, its configuration and its tasks."""

from __future__ import annotations

from adk_worker.siblings import require_ours

# Before a module here imports it: ``celery`` looks in its working folder first, where an app may have a stores.py.
require_ours("stores")
