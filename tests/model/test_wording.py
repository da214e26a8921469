from datetime import timedelta

import pytest

from exporter.model import wording as words
from tests.clocks import NOW


def test_small_words() -> None:
    """Nouns follow their number, and what would steer a terminal is replaced."""
    assert [words.count(number, "event") for number in (0, 1, 2)] == ["0 events", "1 event", "2 events"]
    assert words.printable("a\x1b\u202eé") == "a??é"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "0 s"),
        (None, "unknown"),
        (0.4, "0 s"),
        (725, "12 min 5 s"),
        (97200, "1 day 3 h"),
        (59.6, "1 min"),
        (3599.7, "1 h"),
        (86_390, "1 day"),
        (86_340, "23 h 59 min"),
        (169_200, "1 day 23 h"),
    ],
)
def test_durations_are_said_in_two_units(seconds: float | None, expected: str) -> None:
    """The two largest units are enough for a person, rounded to the nearest."""
    assert words.duration(seconds) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "unknown duration"),
        (0, "no interruption"),
        (9, "about 9 s"),
    ],
)
def test_expected_durations_are_said_plainly(seconds: int | None, expected: str) -> None:
    """Unknown, none and some are three things."""
    assert words.impact(seconds) == expected


@pytest.mark.parametrize(
    ("seconds", "expected", "rough"),
    [
        (0.4, "now", "0 s"),
        (119.4, "in 1 min 59 s", "119 s"),
        (119.6, "in 2 min", "2 min"),
        (-3, "3 s ago", "-3 s"),
        (7200, "in 2 h", "2 h"),
        (169_200, "in 1 day 23 h", "47 h"),
        (172_800, "in 2 days", "2 days"),
    ],
)
def test_times_are_said_from_now(seconds: float, expected: str, rough: str) -> None:
    """In both directions, and in one unit where room is short."""
    ahead = timedelta(seconds=seconds)
    assert (words.relative(NOW + ahead, NOW), words.roughly(ahead)) == (expected, rough)
    assert words.relative(None, NOW) == "unknown"


def test_an_unknown_type_is_admitted() -> None:
    """A type that Azure adds later is shown, and not explained wrongly; so are other words and values."""
    assert "does not know" in words.effect("Levitate")
    assert [words.requester(source) for source in ("Robot", "")] == ["Robot", "unknown"]
    assert [words.utc(at) for at in (NOW, None, "soon")] == ["2026-03-04 22:00:00 UTC", "unknown", "soon"]
