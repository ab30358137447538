"""A pool that says of itself what those of gevent and eventlet do."""

from __future__ import annotations

from celery.concurrency.solo import TaskPool as Solo


class TaskPool(Solo):
    """Of greenlets, by its own account."""

    is_green = True
