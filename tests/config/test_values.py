from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import (
    API_VERSIONS,
    parse_api_version,
    parse_endpoint,
    parse_instance_name,
    parse_link,
    parse_poll_interval,
    parse_positive,
)
from exporter.config.kubernetes import parse_grace_period
from exporter.config.match import parse_time_of_day, parse_zone
from exporter.timefmt import format_duration, parse_duration


@given(st.integers(0, 10**12))
def test_a_duration_is_read_as_it_is_written(milliseconds: int) -> None:
    """Reading what was written gives the same time again."""
    assert round(parse_duration(format_duration(milliseconds / 1000)) * 1000) == milliseconds


POLLS = "Azure asks for 1s, and 200ms to 1h is possible"
KNOWN = f"known are {', '.join(API_VERSIONS)}"
PAGE = "write it like https://vm-1.example.com:9843/"
TOO_MUCH = f"has more than scheme, host, port and path; {PAGE}"
REMEDY = "write a URL without path, like http://169.254.169.254, or discover"


@pytest.mark.parametrize(
    ("parse", "value", "message"),
    [
        # Neither bare numbers nor fractions, signs, spaces or units out of order.
        *(
            (parse_duration, text, "is not a valid duration; write it like 500ms, 1s, 15m, 1h30m or 7d")
            for text in ("", "1", "1.5s", "-1s", "s", "1s1m", "1m1m", "1 s", "1S", "soon", "٣s")
        ),
        # Beyond the range of times, however many digits it has.
        *(
            (parse_duration, text, "is too long; write at most 100y")
            for text in ("100y1ms", "101y", "9" * 400 + "s")
        ),
        *(
            (parse_time_of_day, text, 'is not a valid time of day; write it like "22:00"')
            for text in ("9", "9:00", "25:00", "24:01", "12:60", "22:00:30", "noon", "", 1320)
        ),
        *(
            (parse_zone, text, "is not a known time zone; write it like Europe/Berlin or UTC")
            for text in ("Mars/Olympus", "", "../../etc/passwd", "Europe")
        ),
        *(
            (parse_instance_name, letter * 257, "has 257 characters; at most 256 are allowed")
            for letter in "aä𝄞"
        ),
        (parse_endpoint, "imds", f"is not a valid URL; {REMEDY}"),
        (parse_endpoint, "http://a:0", f"is not a valid URL; {REMEDY}"),
        (parse_endpoint, "http://[::1", f"is not a valid URL; {REMEDY}"),
        (parse_endpoint, 7, f"is not a valid URL; {REMEDY}"),
        (parse_endpoint, "http://a?", f"has more than scheme, host and port; {REMEDY}"),
        (parse_poll_interval, "199ms", f"is out of range; {POLLS}"),
        *(
            (parse_link, text, f"is not a valid URL; {PAGE}")
            for text in ("vm-1", "ftp://a", "http://<", "http://ä", "http://`", "http://a b")
        ),
        (parse_link, "https://a/?", TOO_MUCH),
        (parse_positive, "0s", "is too short; write more than 0s"),
        (parse_api_version, "latest", f"is not a known version; {KNOWN}"),
        (parse_api_version, "2020-13-01", f"is not a known version; {KNOWN}"),
    ],
)
def test_what_is_refused(parse: Any, value: object, message: str) -> None:
    """Each value that makes no sense is refused with what is wrong and how to write it right."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole message is compared
        parse(value)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_duration, "0", 0),
        (parse_duration, "1h30m", 5400),
        (parse_duration, "1w", 604800),
        (parse_duration, "100y", 3153600000),
        *((parse_instance_name, letter * 256, letter * 256) for letter in "aä𝄞"),
        (parse_endpoint, "http://a:80/", "http://a:80"),
        (parse_link, "https://a/!~_'()=;", "https://a/!~_'()=;"),
        (parse_poll_interval, "1h", 3600),
        (parse_positive, "1ms", 0.001),
        (parse_grace_period, "", 0),
        # Azure may publish it after this program was written.
        (parse_api_version, "2031-01-01", "2031-01-01"),
    ],
)
def test_what_is_taken(parse: Any, text: str, value: object) -> None:
    """Values up to the limits are taken, and so is a version yet to come."""
    assert parse(text) == value
