"""Log lines in logfmt or JSON on standard error, one per record, with its ``extra`` as fields."""

import json
import logging
import math
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from exporter.timefmt import rfc3339

LogFormat = Literal["logfmt", "json"]

_STANDARD = {*logging.makeLogRecord({}).__dict__, "message", "asctime"}
_PLAIN = re.compile(r"[^\s\"=\\\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def configure(level: str, style: LogFormat) -> None:
    """Write this program's logs, and warnings of its libraries, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FieldsFormatter(style))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("exporter").setLevel(level.upper())
    # urllib3 logs malformed headers with a traceback; the caller reports the resulting error.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    logging.raiseExceptions = False
    logging.captureWarnings(capture=True)


class FieldsFormatter(logging.Formatter):
    """Writes a record with its ``extra`` as fields: ``ts``, ``level``, ``component``, ``msg``, ..."""

    def __init__(self, style: LogFormat) -> None:
        super().__init__()
        self._write = _as_json if style == "json" else _as_logfmt

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for a record."""
        fields: dict[str, Any] = {
            "ts": rfc3339(datetime.fromtimestamp(record.created, UTC), milliseconds=True),
            "level": record.levelname.lower(),
            "component": record.name.removeprefix("exporter."),
            "msg": record.getMessage(),
        }
        fields |= {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return self._write(fields)


def _as_json(fields: Mapping[str, Any]) -> str:
    return _dumps({key: _plain(value) for key, value in fields.items()})


def _as_logfmt(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={_quoted(_plain(value))}" for key, value in fields.items() if value is not None)


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return rfc3339(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        # JSON cannot represent NaN and infinity.
        return round(value, 6) if math.isfinite(value) else str(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value)


def _quoted(value: Any) -> str:
    if isinstance(value, list):
        value = ",".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    # JSON's quoting is what Go's logfmt parsers expect.
    return text if text.isprintable() and _PLAIN.fullmatch(text) else _dumps(text)


def _dumps(value: Any) -> str:
    """Return JSON, without escaping other alphabets unless some characters are not printable."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)
