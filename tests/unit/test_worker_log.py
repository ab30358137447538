"""The lines of a worker's log."""

from __future__ import annotations

import logging

import pytest
import structlog

from tasks.logs import configure_logging


@pytest.fixture
def log(caplog):
    before = structlog.get_config()
    configure_logging()
    caplog.set_level(logging.INFO)
    yield structlog.get_logger("tasks.test")
    structlog.configure(**before)


def test_a_line_is_an_event_with_its_fields(log, caplog):
    log.bind(tenant="acme").info("step_ended", run_id="run 1", fence=3, late=False, why=None)
    (record,) = caplog.records
    assert record.getMessage() == 'event=step_ended tenant=acme run_id="run 1" fence=3 late=false why='
    assert (record.name, record.levelname) == ("tasks.test", "INFO")


def test_a_level_that_is_not_wanted_makes_no_line(log, caplog):
    log.debug("detail")
    assert caplog.records == []


def test_a_per_cent_sign_is_no_format(log, caplog):
    log.info("said", text="100%s %d")
    assert caplog.records[0].getMessage() == 'event=said text="100%s %d"'


def test_nothing_that_is_logged_begins_a_line_or_moves_a_cursor(log, caplog):
    """Run ids are callers', and errors are models' and tools'."""
    log.info("said", text="one\nevent=forged\r\x1b[2Jtwo\u2028three\u202e")
    message = caplog.records[0].getMessage()
    assert message.isprintable()
    assert message.count("event=") == 2
    assert message.startswith('event=said text="one')


def test_a_traceback_is_printed_below_the_line(log, caplog):
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        log.warning("gave_back", exc_info=True)
    (record,) = caplog.records
    assert record.getMessage() == "event=gave_back"
    assert record.exc_info[0] is ZeroDivisionError


def test_a_traceback_that_comes_as_text_is_printed_below_the_line_too(log, caplog):
    log.warning("gave_back", detail="no", exception="Traceback:\n  File\x1b[2J\nValueError: no\n")
    (record,) = caplog.records
    line, *below = record.getMessage().split("\n")
    assert line == "event=gave_back detail=no"
    assert (below[0], below[2]) == ("Traceback:", "ValueError: no")
    assert all(text.isprintable() for text in below)


def test_an_exception_s_own_line_has_its_traceback(log, caplog):
    try:
        _ = 1 / 0
    except ZeroDivisionError as error:
        log.exception("broken")
        log.exception("broken", exc_info=error)
    assert [record.exc_info[0] for record in caplog.records] == [ZeroDivisionError] * 2
