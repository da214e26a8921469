"""Tests of `exporter.logs`: one readable line per record, whatever is in it."""

import io
import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from exporter.logs import FieldsFormatter

AT = datetime(2026, 3, 4, 22, 0, tzinfo=UTC)


def line(style: Literal["logfmt", "json"], message: str, **fields: Any) -> str:
    """Give the line for a record."""
    record = logging.LogRecord("exporter.watch", logging.WARNING, __file__, 1, message, (), None)
    record.created = AT.timestamp()
    record.__dict__.update(fields)
    return FieldsFormatter(style).format(record)


def test_logfmt() -> None:
    """Fields stand one after another; what has spaces or quotes is quoted, None is left out."""
    written = line("logfmt", "poll failed", reason="timeout", count=3, ratio=0.5, at=AT, left=None, on=True)
    assert written == (
        'ts=2026-03-04T22:00:00.000Z level=warning component=watch msg="poll failed"'
        " reason=timeout count=3 ratio=0.5 at=2026-03-04T22:00:00Z on=true"
    )


def test_json() -> None:
    """The same as one object, None as null."""
    assert json.loads(line("json", "poll failed", names=("a", "b"), left=None, at=AT)) == {
        "ts": "2026-03-04T22:00:00.000Z",
        "level": "warning",
        "component": "watch",
        "msg": "poll failed",
        "names": ["a", "b"],
        "left": None,
        "at": "2026-03-04T22:00:00Z",
    }


@pytest.mark.parametrize(
    "text", ['a "b"', "a\nb", "a\r\nlevel=error", "\x1b[31m", "a=b", "", "\u2028", "é €"]
)
@pytest.mark.parametrize("style", ["logfmt", "json"])
def test_data_forges_no_lines(style: Any, text: str) -> None:
    """What Azure or a user wrote makes neither a second line nor steers the terminal."""
    written = line(style, "said", text=text)
    assert len(written.splitlines()) == 1
    assert written.isprintable()


def test_text_of_many_letters_stays_readable() -> None:
    """Letters beyond ASCII are written as they are."""
    assert line("logfmt", "said", text="Größe").endswith("text=Größe")
    assert '"Größe"' in line("json", "said", text="Größe")


def test_a_traceback_stays_on_its_line() -> None:
    """An error of ours is one line too, so that no line is taken for another record."""
    try:
        int("first\nsecond")
    except ValueError:
        record = logging.LogRecord("exporter.app", logging.ERROR, __file__, 1, "died", (), sys.exc_info())
    for style in ("logfmt", "json"):
        written = FieldsFormatter(style).format(record)
        assert len(written.splitlines()) == 1
        assert "ValueError" in written


@pytest.mark.parametrize("style", ["logfmt", "json"])
def test_a_lone_surrogate_does_not_lose_the_line(style: Any) -> None:
    """Half a character from a broken document can be written to a stream."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    stream.write(line(style, "said", text="\ud800"))
    stream.flush()
