"""The exceptions that this program raises on purpose, and the words of messages.

A message about a configuration names the place, what is wrong and the remedy. It repeats the value unless the
key can hold a secret.

Exceptions of libraries are translated into these at the boundary, ``from`` the original. A subclass exists
only if some caller catches it.
"""

import base64
import re
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from urllib.parse import quote, unquote, unquote_plus


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
    match = re.match(r"[^:]*(?::[^:]+)*?:(\d+): ", problem)
    return int(match[1]) if match else 0


class PollOutcome(StrEnum):
    """Outcome of a request to IMDS: a metric label, a log field and the reason of an error."""

    SUCCESS = "success"
    TIMEOUT = "timeout"
    CONNECTION_ERROR = "connection_error"
    THROTTLED = "throttled"
    HTTP_ERROR = "http_error"
    INVALID_DOCUMENT = "invalid_document"


class ImdsError(ExporterError):
    """IMDS gave no usable answer."""

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
        self.status = status  # that of its HTTP answer, 0 without one
        self.retry_after = retry_after  # the seconds for which it asks to be left alone
        self.newest_versions = newest_versions  # the API versions that it names in a refusal


class StateDirectoryInUseError(ExporterError):
    """Another exporter holds the state directory; two would send every message twice."""


class StoppingError(ExporterError):
    def __init__(self) -> None:
        super().__init__("the exporter is stopping")


def cause(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """Return the innermost reason of an error, on one line: the outer ones contain objects and addresses.

    It may quote what a server sent, and is therefore `without` the secrets that a request contained.
    """
    # Not __context__: it includes whatever the caller was handling when it sent the request.
    while inner := error.__cause__ or next((a for a in error.args if isinstance(a, Exception)), None):
        error = inner
    words = error.strerror if isinstance(error, OSError) else None
    if isinstance(error, UnicodeDecodeError):
        words = f"it is {not_text(error)}"
    elif isinstance(error, RecursionError):
        words = "it is nested too deeply"
    return one_line(without(words or str(error), secrets)) or type(error).__name__


def not_text(error: UnicodeDecodeError) -> str:
    """Return what bytes are that cannot be decoded, and where, in place of Python's words."""
    return f"not UTF-8 text: {error.reason} at byte {error.start}"


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


def did_you_mean(wrong: str, words: Collection[str], otherwise: str = "") -> str:
    """Return a remedy: the known word that is likely to be meant, or else all of them."""
    meant = near(wrong, words)
    return f"did you mean {meant}?" if meant else otherwise or f"must be one of: {', '.join(words)}"


def near(wrong: str, words: Iterable[str]) -> str:
    """Return the known word that is the most similar, "" if none is similar enough."""
    from difflib import get_close_matches

    folded = {word.lower(): word for word in words}
    return next((folded[word] for word in get_close_matches(wrong.lower(), folded, 1)), "")


def basic(credentials: str) -> str:
    """Return the ``user:password`` of a URL as the Basic scheme of HTTP has it in a header."""
    user, _, password = unquote(credentials).partition(":")
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def without(text: str, secrets: Iterable[str]) -> str:
    """Return a foreign text without any part of these URLs and values of headers, which it may repeat."""
    for part in sorted(_parts(secrets), key=len, reverse=True):
        # A short part counts as a whole word only: a user named "a" is in every answer.
        is_long = len(part) >= _LONG_PART
        pattern = re.escape(part) if is_long else rf"(?<!\w){re.escape(part)}(?!\w)"
        text = re.sub(pattern, "...", text, flags=re.IGNORECASE)
        if is_long:
            text = _without_start(text, part)
    return text


def _without_start(text: str, part: str) -> str:
    """Return a text without the start of a part at its end: the text may have been cut there."""
    end = text[-len(part) :]
    for match in re.finditer(rf"(?={re.escape(part[:_LONG_PART])})", end, re.IGNORECASE):
        rest = end[match.start() :]
        if part[: len(rest)].lower() == rest.lower():
            return text.removesuffix(rest) + "..."
    return text


_LONG_PART = 6
_BASE64 = (base64.b64encode, base64.urlsafe_b64encode)
_SEPARATORS = re.compile(r"[/:@?&=#,;+\s]+")


def _parts(secrets: Iterable[str]) -> set[str]:
    """Return all that is between separators, in every form in which it may be repeated.

    That is as written, decoded, percent-encoded once or twice, and in base64, as credentials are sent.
    """
    texts: set[str] = set()
    for secret in secrets:
        address, _, query = secret.partition("://")[2].partition("?") if "://" in secret else (secret, "", "")
        pairs = [pair.partition("=") for pair in query.split("&")]
        # Names of parameters, such as format, are words of many answers; what has a digit is no such name.
        values = [value for _, _, value in pairs]
        values += [name for name, is_pair, _ in pairs if not is_pair or re.search(r"\d", name)]
        parts = {part for text in (address, *values) for part in (text, *_SEPARATORS.split(text))}
        decoded = {shown for part in parts for shown in (unquote(part), unquote_plus(part))}
        texts |= parts | decoded | {part for text in decoded for part in _SEPARATORS.split(text)}
        if credentials := address.partition("/")[0].rpartition("@")[0]:
            texts.add(basic(credentials))
    texts -= {"", "yes", "no"}
    quoted = {quote(part, safe="") for part in texts}
    encoded = {
        encode(part.encode()).decode() for part in texts if len(part) >= _LONG_PART for encode in _BASE64
    }
    encoded |= {part.rstrip("=") for part in encoded}
    return texts | quoted | {quote(part, safe="") for part in quoted} | encoded
