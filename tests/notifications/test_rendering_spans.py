"""Tests of `exporter.notifications.spans`."""

from datetime import timedelta

import pytest

from exporter.notifications.spans import duration, relative, utc
from tests.clocks import NOW


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "unknown"),
        (0, "0 seconds"),
        (1, "1 second"),
        (119.4, "119 seconds"),
        (120, "2 minutes"),
        (839.7, "14 minutes"),
        (7170, "2 hours"),
        (11_520, "3 hours 12 minutes"),
        (86_400 * 2, "2 days"),
        (86_400 * 6 + 3600, "6 days 1 hour"),
    ],
)
def test_a_length_of_time_is_worded(seconds: float | None, expected: str) -> None:
    """A length of time is rounded to what a person wants to know."""
    assert duration(seconds) == expected


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        (840, "in 14 minutes"),
        (-3, "3 seconds ago"),
        (0.2, "now"),
        (0.6, "in 1 second"),
        (-60, "60 seconds ago"),
    ],
)
def test_a_time_is_told_from_now(ahead: float, expected: str) -> None:
    """A time is told by how far off it is, before or after."""
    assert relative(NOW + timedelta(seconds=ahead), NOW) == expected


def test_a_time_is_written_in_utc() -> None:
    """A time is written to the second with its zone; None is unknown."""
    assert utc(NOW + timedelta(milliseconds=700)) == "2026-03-04 22:00:00 UTC"
    assert utc(None) == relative(None, NOW) == "unknown"
