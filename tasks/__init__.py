"""The Celery side of the fleet: the app, its configuration and its tasks."""
