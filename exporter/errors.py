"""The exceptions that this program raises on purpose, and the redaction of secrets in messages.

Exceptions of libraries are translated into these at the boundary, ``from`` the original. A subclass exists
only if some caller catches it.
"""

import os
import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path


class ExporterError(Exception):
    """Base class of all expected errors: exit status 1."""


class ConfigurationError(ExporterError):
    """Flags or files are invalid: exit status 2. Each of ``problems`` has place, cause and remedy."""

    @property
    def problems(self) -> tuple[str, ...]:
        return self.args

    def __str__(self) -> str:
        return "; ".join(self.problems)


class Mistakes:
    """Collects configuration errors, also as a context manager, in order to raise them as one."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, ConfigurationError):
            return False
        self.problems += error.problems
        return True

    def in_order(self) -> list[str]:
        """Return the collected problems, each once, by their lines."""
        return sorted(dict.fromkeys(self.problems), key=_line)

    def check(self) -> None:
        """Raise the collected problems, each once, by their lines, as a ConfigurationError."""
        if self.problems:
            raise ConfigurationError(*self.in_order())


def _line(problem: str) -> int:
    """Return the line of a problem that begins with ``FILE:LINE: ``; 0 for any other."""
    found = re.match(r"[^:]*(?::[^:]+)*?:(\d+): ", problem)
    return int(found[1]) if found else 0


class PollOutcome(StrEnum):
    """Outcome of a request to IMDS: a metric label, a log field and the reason of an error."""

    SUCCESS = "success"
    TIMEOUT = "timeout"
    CONNECTION_ERROR = "connection_error"
    THROTTLED = "throttled"
    HTTP_ERROR = "http_error"
    INVALID_DOCUMENT = "invalid_document"


class ImdsError(ExporterError):
    """IMDS gave no usable answer; ``status`` is that of its HTTP answer, 0 without one.

    ``retry_after`` is the number of seconds for which it asks to be left alone, ``newest_versions`` the API
    versions that it names in a refusal.
    """

    def __init__(
        self,
        reason: PollOutcome,
        message: str,
        status: int = 0,
        *,
        retry_after: float = 0.0,
        newest_versions: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status
        self.retry_after = retry_after
        self.newest_versions = newest_versions


class StateDirectoryInUseError(ExporterError):
    """Another exporter holds the state directory; two would send every message twice."""


class StoppingError(ExporterError):
    def __init__(self) -> None:
        super().__init__("the exporter is stopping")


def innermost(error: BaseException) -> BaseException:
    """Return the innermost error that caused a library's error."""
    # Not __context__: it includes whatever the caller was handling when it sent the request.
    while (
        inner := error.__cause__ or next((a for a in error.args if isinstance(a, Exception)), None)
    ) is not None:
        error = inner
    return error


def cause(error: BaseException) -> str:
    """Return the innermost reason of an error, on one line: the outer ones contain objects and addresses."""
    found = innermost(error)
    words = found.strerror if isinstance(found, OSError) else None
    return one_line(words or str(found)) or type(found).__name__


# Of a foreign text, what is looked at and what is shown, in characters.
_LONGEST_TEXT = 4096
_LONGEST_LINE = 160


def one_line(text: str) -> str:
    """Return the start of a foreign text as one short line, without control characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[:_LONGEST_TEXT]).split())
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…"


def is_encodable(text: str) -> bool:
    """Return whether a text can be written as UTF-8; Python reads bytes that are not as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# Letters and digits mixed, or a run of either that is longer than in names and numbers people write.
_TOKEN = re.compile(r"(?=[^\W_]*\d)(?=[^\W_]*[^\W\d_])[^\W_]{8,}|\d{9,}|[^\W_]{24,}")
_LONGEST = 60


def may_be_secret(text: str) -> bool:
    """Return whether a value looks like an address or a token, which errors must not repeat."""
    return "://" in text or "@" in text or len(text) > _LONGEST or bool(_TOKEN.search(text))


def quoted(value: object) -> str:
    """Return a value as an error may show it: in quotes, or only its length if it may be a secret."""
    text = str(value)
    return f"a text of {len(text)} characters" if may_be_secret(text) else repr(text)


def program(command: str) -> str:
    """Return the program of a command for an error: arguments, which may be secrets, are left out.

    A space ends the program, except in the names of directories that exist.
    """
    folders = [str(path) for path in Path(command).parents if os.path.isdir(path)]  # noqa: PTH112  # never raises
    folder = next((path for path in folders if command.startswith(path)), "")
    name, *arguments = command[len(folder) :].split() or [""]
    shown = quoted(name) if may_be_secret(name) else folder + name
    return f"{shown} ..." if arguments else shown


def scrubbed(text: str) -> str:
    """Return a library's message, which may contain the user's values, without possible secrets."""
    return re.sub(r"[^\s'\"]+", lambda word: "..." if may_be_secret(word[0]) else word[0], text)
