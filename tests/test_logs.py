import json
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any, Literal

import pytest

from exporter.logs import FieldsFormatter

AT = datetime(2026, 3, 4, 22, 0, tzinfo=UTC)


def line(style: Literal["logfmt", "json", "terminal"], message: str, **fields: Any) -> str:
    record = logging.LogRecord("exporter.watch", logging.WARNING, __file__, 1, message, (), None)
    record.created = AT.timestamp()
    record.__dict__.update(fields)
    return FieldsFormatter(style).format(record)


def test_logfmt() -> None:
    """Fields follow one another; what has spaces or quotes is quoted, None left out. Terminals get values."""
    fields = {"reason": "timeout", "count": 3, "ratio": 1 / 3, "at": AT, "left": None, "on": True}
    written = line("logfmt", "poll failed", **fields, names=("a", "b"))
    assert written == (
        'ts=2026-03-04T22:00:00.000Z level=warning component=watch msg="poll failed"'
        " reason=timeout count=3 ratio=0.333333 at=2026-03-04T22:00:00Z on=true names=a,b"
    )
    assert line("terminal", "said", why="this", more=2) == "warning: said: this; 2"


def test_json() -> None:
    """The same as one object, None as null."""
    assert json.loads(line("json", "poll failed", names=("a", "b"), left=None, at=AT, rate=inf)) == {
        "ts": "2026-03-04T22:00:00.000Z",
        "level": "warning",
        "component": "watch",
        "msg": "poll failed",
        "names": ["a", "b"],
        "left": None,
        "at": "2026-03-04T22:00:00Z",
        "rate": "inf",
    }


@pytest.mark.parametrize(
    "text", ['a "b"', "a\nb", "a\r\nlevel=error", "\x1b[31m", "a=b", "", "\u2028", "é €"]
)
@pytest.mark.parametrize("style", ["logfmt", "json", "terminal"])
def test_data_forges_no_lines(style: Any, text: str) -> None:
    """What Azure or a user wrote makes neither a second line nor steers the terminal."""
    written = line(style, "said", text=text)
    assert len(written.splitlines()) == 1
    assert written.isprintable()
    assert "\\u00e9" not in written


def test_priorities_in_the_journal(tmp_path: Path) -> None:
    """Where standard error is the journal's stream, each line begins with the priority of its level."""
    code = "from exporter import logs; import logging; logs.configure('debug', 'logfmt');" + "".join(
        f"logging.getLogger('exporter').{level}('{level}');"
        for level in ("debug", "info", "warning", "error", "critical")
    )
    code += "logging.getLogger('exporter').log(25, 'a level of its own')"
    path = tmp_path / "stream"
    with path.open("wb") as stream:
        found = os.fstat(stream.fileno())
        for identity in (f"{found.st_dev}:{found.st_ino}", "1:1"):
            environ = os.environ | {"JOURNAL_STREAM": identity}
            subprocess.run([sys.executable, "-c", code], stderr=stream, check=True, env=environ)
    shown = " ".join(line[:3] for line in path.read_text().splitlines())
    assert shown == "<7> <6> <4> <3> <2> <6>" + " ts=" * 6


def test_long_texts_are_cut() -> None:
    """What a peer sends takes at most 2,000 characters of a line, and 100 items of a list."""
    fields: dict[str, object] = {
        "text": "x" * 9000,
        "many": ["y"] * 9000,
        "fits": "x" * 2000,
        "fit": ["y"] * 100,
    }
    record = logging.makeLogRecord(fields | {"name": "exporter.x"})
    line = json.loads(FieldsFormatter("json").format(record))
    assert line["text"] == "x" * 2000 + "\N{HORIZONTAL ELLIPSIS}"
    assert line["many"] == ["y"] * 100 + ["\N{HORIZONTAL ELLIPSIS}"]
    assert (line["fits"], line["fit"]) == ("x" * 2000, ["y"] * 100)


def test_a_traceback_stays_on_its_line() -> None:
    """An error of ours is one line, too, so that no line looks like another record."""
    try:
        int("first\nsecond")
    except ValueError:
        record = logging.LogRecord("exporter.app", logging.ERROR, __file__, 1, "died", (), sys.exc_info())
    for style in ("logfmt", "json"):
        written = FieldsFormatter(style).format(record)
        assert len(written.splitlines()) == 1
        assert "ValueError" in written


LIBRARIES = """
import logging, sys, warnings
from exporter import logs
logs.configure(sys.argv[1], "logfmt")
for name in ("exporter.watch", "requests", "urllib3.connectionpool"):
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        logging.getLogger(name).log(level, name)
logging.getLogger("exporter").error("%d", "no number")
warnings.warn("old")
print("on it goes")
"""


def configured(level: str) -> list[str]:
    """Log at each level in a fresh process; return level and component of what came out."""
    command = [sys.executable, "-c", LIBRARIES, level]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [" ".join(entry.split()[1:3]) for entry in done.stderr.splitlines()]


@pytest.mark.parametrize(
    ("level", "ours"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_levels(level: str, ours: list[str]) -> None:
    """The level is ours alone; libraries warn, but urllib3 only where something failed."""
    assert configured(level) == [
        *(f"level={one} component=watch" for one in ours),
        "level=warning component=requests",
        "level=error component=requests",
        "level=error component=urllib3.connectionpool",
        "level=warning component=py.warnings",
    ]


def test_nobody_reading_the_log_stops_nothing() -> None:
    """A pipe whose reader has gone costs the lines, not the program."""
    command = [sys.executable, "-c", LIBRARIES, "debug"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stderr.close()
        assert process.stdout.read() == b"on it goes\n"
    closed = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    assert subprocess.run(closed, stdout=subprocess.PIPE, check=True).stdout == b"on it goes\n"
