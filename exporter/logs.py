"""Log lines in logfmt or JSON on standard error, one per record, with its ``extra`` as fields."""

import json
import logging
import math
import os
import re
import sys
from datetime import UTC, datetime
from typing import Any, Literal

from exporter.timefmt import rfc3339

LogFormat = Literal["logfmt", "json"]

_STANDARD = {*logging.makeLogRecord({}).__dict__, "message", "asctime"}
# Of syslog(3).
_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
_LONGEST_TEXT = 2000
_MOST_ITEMS = 100
_PLAIN = re.compile(r"[^\s\"=\\\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def configure(level: str, style: LogFormat | Literal["terminal"]) -> None:
    """Write this program's logs, and warnings of its libraries, to standard error.

    The style ``terminal`` is for commands whose output is read by people: ``warning: what: why; remedy``.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FieldsFormatter(style, journal=_writes_to_journal()))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("exporter").setLevel(level.upper())
    # urllib3 logs malformed headers with a traceback; the caller reports the resulting error.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    logging.raiseExceptions = False
    logging.captureWarnings(capture=True)


class FieldsFormatter(logging.Formatter):
    """Writes a record with its ``extra`` as fields: ``ts``, ``level``, ``component``, ``msg``, ..."""

    def __init__(self, style: LogFormat | Literal["terminal"], *, journal: bool = False) -> None:
        """With ``journal`` each line begins with its priority, see sd-daemon(3)."""
        super().__init__()
        self._written = style
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "ts": rfc3339(datetime.fromtimestamp(record.created, UTC), milliseconds=True),
            "level": record.levelname.lower(),
            "component": record.name.removeprefix("exporter."),
            "msg": record.getMessage(),
        }
        fields |= {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
        if record.exc_info:
            # The reason stands at its end.
            fields["traceback"] = self.formatException(record.exc_info)[-_LONGEST_TEXT:]
        prefix = f"<{_PRIORITIES.get(record.levelno, 6)}>" if self._journal else ""
        plain = {key: _plain(value) for key, value in fields.items()}
        if self._written == "terminal":
            _, level, _, what, *why = (_printable(str(value)) for value in plain.values())
            return ": ".join([level, what, *(["; ".join(why)] if why else [])])
        if self._written == "json":
            return prefix + _dumps(plain)
        return prefix + " ".join(
            f"{key}={_quoted(value)}" for key, value in plain.items() if value is not None
        )


def _writes_to_journal() -> bool:
    """Return whether standard error is the journal's stream, see systemd.exec(5), JOURNAL_STREAM."""
    try:
        status = os.fstat(2)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return rfc3339(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        # JSON cannot represent NaN and infinity.
        return round(value, 6) if math.isfinite(value) else str(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value[:_MOST_ITEMS]] + ["…"] * (len(value) > _MOST_ITEMS)
    text = str(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def _quoted(value: Any) -> str:
    if isinstance(value, list):
        value = ",".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    # JSON's quoting is what Go's logfmt parsers expect.
    return text if text.isprintable() and _PLAIN.fullmatch(text) else _dumps(text)


def _printable(text: str) -> str:
    return text if text.isprintable() else _dumps(text)


def _dumps(value: Any) -> str:
    """Return JSON, without escaping other alphabets unless some characters are not printable."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)
