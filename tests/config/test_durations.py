"""Tests of `exporter.timefmt` and of the values of `exporter.config`: what flags and files may hold."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import ApiVersion, Endpoint, PollInterval, Positive
from exporter.errors import quoted
from exporter.timefmt import Duration, format_duration


@given(st.integers(0, 10**12))
def test_a_duration_is_read_as_it_is_written(milliseconds: int) -> None:
    """Reading what was written gives the same time again."""
    assert round(Duration.parse(format_duration(milliseconds / 1000)) * 1000) == milliseconds


@given(st.text())
def test_any_text_is_a_duration_or_an_error(text: str) -> None:
    """No text gives anything but seconds or the one error."""
    try:
        seconds = Duration.parse(text)
    except ValueError as error:
        message = str(error)
    else:
        assert seconds >= 0
        return
    assert message == f"{quoted(text)} is not a valid duration; write it like 500ms, 1s, 15m, 1h30m or 7d"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("200ms", 0.2),
        ("1s", 1),
        ("15m", 900),
        ("1h30m", 5400),
        ("7d", 604800),
        ("1w", 604800),
        ("100y", 3153600000),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    """Durations are written as Prometheus writes them."""
    assert Duration.parse(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "1.5s", "-1s", "s", "1s1m", "1m1m", "1 s", "1S", "soon", "٣s"])
def test_no_durations(text: str) -> None:
    """Neither bare numbers nor fractions, signs, spaces or units out of order are taken."""
    with pytest.raises(ValueError, match="is not a valid duration"):
        Duration.parse(text)


@pytest.mark.parametrize("text", ["100y1ms", "101y", "9" * 400 + "s"])
def test_durations_past_all_clocks(text: str) -> None:
    """A duration that would run out of the range of times is refused, however many digits it has."""
    with pytest.raises(ValueError, match=r"^('.*'|a text of 401 characters) is too long; write"):
        Duration.parse(text)


def test_durations_are_shown_as_they_are_written() -> None:
    """A duration in a message reads as in the file; one before now has a sign."""
    assert str(Duration(5400)) == "1h30m"
    assert format_duration(-61) == "-1m1s"
    assert format_duration(0.0001) == "0s"


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("discover", "discover"),
        ("http://169.254.169.254", "http://169.254.169.254"),
        ("https://imds.test:8443/", "https://imds.test:8443"),
        ("http://[::1]:80", "http://[::1]:80"),
    ],
)
def test_endpoints(text: str, endpoint: str) -> None:
    """A URL without path, or ``discover``."""
    assert Endpoint.parse(text) == endpoint


REMEDY = "write a URL without path, like http://169.254.169.254, or discover"


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Endpoint, "imds", f"is not a valid URL; {REMEDY}"),
        (Endpoint, "ftp://a", f"is not a valid URL; {REMEDY}"),
        (Endpoint, "http://", f"is not a valid URL; {REMEDY}"),
        (Endpoint, "http://a:0", f"is not a valid URL; {REMEDY}"),
        (Endpoint, "http://a:99999", f"is not a valid URL; {REMEDY}"),
        (Endpoint, "http://[::1", f"is not a valid URL; {REMEDY}"),
        (Endpoint, 7, f"is not a valid URL; {REMEDY}"),
        (Endpoint, "http://a/metadata", f"has more than scheme, host and port; {REMEDY}"),
        (Endpoint, "http://a b", f"is not a valid URL; {REMEDY}"),
        (Endpoint, "http://a\nb", f"is not a valid URL; {REMEDY}"),
        (Endpoint, "http://a?", f"has more than scheme, host and port; {REMEDY}"),
        (Endpoint, "http://@a", f"has more than scheme, host and port; {REMEDY}"),
        (Endpoint, "http://u:p@a", f"has more than scheme, host and port; {REMEDY}"),
        (PollInterval, "100ms", "100ms is out of range; Azure asks for 1s, and 200ms to 1h is possible"),
        (PollInterval, "2h", "2h is out of range; Azure asks for 1s, and 200ms to 1h is possible"),
        (Positive, "0s", "0s is too short; write more than 0s"),
        (ApiVersion, "latest", f"'latest' is not a known version; known are {', '.join(ApiVersion.KNOWN)}"),
        (
            ApiVersion,
            "2020-7-1",
            f"'2020-7-1' is not a known version; known are {', '.join(ApiVersion.KNOWN)}",
        ),
        (
            ApiVersion,
            "2020-13-01",
            f"'2020-13-01' is not a known version; known are {', '.join(ApiVersion.KNOWN)}",
        ),
    ],
)
def test_what_is_refused(kind: Any, value: object, message: str) -> None:
    """Each value that makes no sense is refused with what is wrong and how to write it right."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole message is compared
        kind.parse(value)
    assert str(caught.value) == message


def test_a_version_yet_to_come_is_taken() -> None:
    """Azure may publish a version after this program was written."""
    assert ApiVersion.parse("2031-01-01") == "2031-01-01"
