from __future__ import annotations

import math

import pytest

from adk_worker.errors import ConfigurationError, InvalidNameError
from adk_worker.lease import QUEUE, LeasePolicy, RunLease, check_holder, check_ttl
from adk_worker.liveness import Holder

OLD = RunLease("acme", "run", "one", 7, 1_000.0)


@pytest.mark.parametrize(
    ("other", "superseded"),
    [
        (RunLease("acme", "run", "two", 8, 0.0), True),
        (RunLease("acme", "run", "one", 8, 0.0), True),
        (RunLease("acme", "run", "two", 7, 9_999.0), False),
        (RunLease("acme", "run", "two", 6, 9_999.0), False),
        (RunLease("acme", "other", "two", 8, 9_999.0), False),
        (RunLease("other", "run", "two", 8, 9_999.0), False),
    ],
)
def test_fences_are_compared_and_times_never(other, superseded):
    """L3."""
    assert OLD.superseded_by(other) is superseded


@pytest.mark.parametrize("seconds", [0, -1, -0.0, math.nan, math.inf, -math.inf])
def test_nothing_lives_for_no_time_or_for_ever(seconds):
    """L6."""
    with pytest.raises(ConfigurationError, match="TTL"):
        check_ttl(seconds)


@pytest.mark.parametrize("seconds", [0.001, 1, 60.0])
def test_a_ttl_that_can_be_is_returned(seconds):
    """L6."""
    assert check_ttl(seconds) == seconds


@pytest.mark.parametrize("holder", ["", " a", "a\x00b", QUEUE, None])
def test_what_can_name_no_holder_is_refused(holder):
    """L4, L5."""
    with pytest.raises(InvalidNameError, match="holder"):
        check_holder(holder)


def test_the_names_that_processes_make_name_holders():
    """L4."""
    name = str(Holder.new("task-1"))

    assert check_holder(name) == name


@pytest.mark.parametrize(("ttl", "within"), [(60, 20), (60, 5), (0.3, 0.1)])
def test_a_lease_is_renewed_within_a_third_of_its_ttl(ttl, within):
    """L10: two renewals may fail."""
    assert LeasePolicy(ttl, within).margin == pytest.approx(ttl / 6)


@pytest.mark.parametrize(("ttl", "within"), [(60, 20.1), (60, 0), (60, -1), (0, 0), (60, math.nan)])
def test_a_policy_that_cannot_keep_a_lease_is_refused(ttl, within):
    """L10: it names the settings."""
    with pytest.raises(ConfigurationError, match="ADK_LEASE_RENEW_WITHIN"):
        LeasePolicy(ttl, within)
