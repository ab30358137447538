from __future__ import annotations

import pickle
import traceback

import pytest
import structlog

from tasks.untold import TaskBrokenError, untold


def broken():
    with pytest.raises(TaskBrokenError) as raised, structlog.testing.capture_logs() as logs, untold("task-1"):
        raise ValueError("Failing row contains (acme, book the flight for Ada).")
    return raised.value, logs


def test_celery_is_told_the_kind_of_an_error_and_where_the_rest_is():
    """Flower shows text and traceback of what a task raises, to whoever may look."""
    error, _ = broken()
    assert (error.kind, error.task_id) == ("ValueError", "task-1")
    assert "task_broken" in str(error)
    told = "".join(traceback.format_exception(error))
    assert "Ada" not in told
    assert "Ada" not in repr(error)


def test_the_rest_is_in_the_log():
    _, logs = broken()
    assert [(entry["event"], entry["task_id"], entry["exc_info"]) for entry in logs] == [
        ("task_broken", "task-1", True)
    ]


def test_what_celery_is_told_survives_its_way_to_the_parent():
    """T2: under prefork it is pickled."""
    error, _ = broken()
    read = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own, a line before
    assert (str(read), read.kind) == (str(error), "ValueError")


def test_nothing_is_told_of_what_went_well():
    with structlog.testing.capture_logs() as logs, untold("task-1"):
        pass
    assert logs == []
