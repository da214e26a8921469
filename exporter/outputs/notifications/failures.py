"""Attempts to send, and the reasons why one failed.

`AppriseResult` only contains that an attempt failed. While a plugin logs an exception that it handles, it is
the interpreter's current one, so its type is available. The status and the body of an HTTP response are only
in the text of Apprise's log (docs/decisions/0003-apprise-status.md).
"""

import ast
import contextlib
import http.client
import logging
import re
import smtplib
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import requests
import urllib3
from requests.utils import get_environ_proxies, select_proxy

from exporter.errors import one_line, without
from exporter.model.messages import Delivery, Failure
from exporter.timefmt import parse_retry_after

if TYPE_CHECKING:
    from apprise.logger import NotifyLogEntry

# The message is at fault: too large, or malformed for the service.
_REFUSED = frozenset({400, 413, 414, 415, 422, 431})
# 5yz in response to a mail's content, not to its sender or recipient:
# https://www.rfc-editor.org/rfc/rfc5321#section-4.2
_MAIL_REFUSED = 500
_NO_ANSWER = "it did not answer in time"
# The types of exceptions with their meaning, the most specific first.
_MEANINGS: tuple[tuple[tuple[type[BaseException], ...], str, Failure], ...] = (
    ((MemoryError,), "its answer is too large", Failure.UNANSWERED),
    ((requests.ReadTimeout, urllib3.exceptions.ReadTimeoutError), _NO_ANSWER, Failure.UNANSWERED),
    ((ConnectionRefusedError,), "it refuses connections", Failure.TARGET),
    ((socket.gaierror,), "its name cannot be resolved", Failure.TARGET),
    ((ssl.SSLCertVerificationError,), "its certificate is not accepted", Failure.TARGET),
    ((smtplib.SMTPAuthenticationError,), "it does not accept the credentials", Failure.TARGET),
    (
        (smtplib.SMTPRecipientsRefused, smtplib.SMTPSenderRefused),
        "it does not accept the addresses",
        Failure.TARGET,
    ),
    ((requests.ConnectTimeout, TimeoutError), "it cannot be reached in time", Failure.TARGET),
    ((requests.ConnectionError, OSError, smtplib.SMTPException), "the connection failed", Failure.TARGET),
)
# What `http.client` says of a proxy's answer to CONNECT.
_TUNNEL = re.compile(r"\bTunnel connection failed: ([1-5][0-9][0-9])\b")
_STATUS = re.compile(r"\berror=([1-5][0-9][0-9])\b")
_DETAILS = re.compile(r"Response Details:\s+(.*)", re.DOTALL)
_GONE = "the address does not exist, or no longer: create a new one in the service, and set it as the URL"
_REMEDIES = {
    401: "it does not accept the credentials: correct those in the target's URL",
    403: "it forbids this: correct the credentials in the target's URL, or what the service lets them do",
    404: _GONE,
    410: _GONE,
}
# https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3 and https://www.rfc-editor.org/rfc/rfc6585#section-4
_WITH_RETRY_AFTER = (429, 503)
# Of an answer, what is looked at, as of most plugins' log; and what is shown if it is plain text.
_MOST_BODY = 2000
_LONGEST_LINE = 100


def attempt(send: Callable[[], Delivery]) -> Delivery:
    """Return the result of an attempt; every exception is a failure."""
    try:
        return send()
    except Exception as error:  # noqa: BLE001  # of any service; its text may have the URL
        return of_errors([error], f"{type(error).__name__} in the sender process")


class _Errors(logging.Handler):
    """Collects the exceptions that are being handled when this thread logs something."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        error = sys.exception()
        if error is not None and record.thread == self._thread and error not in self.errors:
            self.errors.append(error)


@contextlib.contextmanager
def handled_by(name: str) -> Iterator[Sequence[BaseException]]:
    """Collect the exceptions handled on this thread by code that logs to the named logger."""
    logger, errors = logging.getLogger(name), _Errors()
    logger.addHandler(errors)
    try:
        yield errors.errors
    finally:
        logger.removeHandler(errors)
        # In a cycle with its frames, an exception would keep what was read until the next collection.
        for error in errors.errors:
            for cause in _causes(error):
                cause.__traceback__ = None


def of(logs: Sequence["NotifyLogEntry"], errors: Sequence[BaseException], secrets: Sequence[str]) -> Delivery:
    """Return why a plugin could not send, from what it logged and the ``errors`` it handled.

    ``secrets`` are the URLs of the service, none of whose parts is shown.
    """
    # At the level debug it logs the message, too, which may contain anything.
    warnings = "\n".join(entry.message for entry in logs if entry.level != "DEBUG")
    match = _STATUS.search(warnings)
    if match is None:
        return of_errors(errors, secrets=secrets)
    bodies = [text[1] for entry in logs if (text := _DETAILS.match(entry.message))]
    words = said(_unescaped(bodies[-1]), secrets) if bodies else ""
    return of_status(int(match[1]), words)


def of_status(status: int, words: str = "", retry_after: str = "") -> Delivery:
    """Return the result for an HTTP status that is not a success.

    ``words`` are the receiver's own, without secrets, and ``retry_after`` is the header.
    """
    is_known = status in set(HTTPStatus)
    reason = f"it answered {status} ({HTTPStatus(status).phrase})" if is_known else f"it answered {status}"
    if words:
        reason += ": " + re.sub(r"(?<!\.)\.$", "", words)
    if 300 <= status < 400:
        reason += ", a redirect, which is not followed; correct the target's URL"
    elif status in _REMEDIES:
        reason += f"; {_REMEDIES[status]}"
    wait = parse_retry_after(retry_after, datetime.now(UTC)) if status in _WITH_RETRY_AFTER else None
    return Delivery(
        False, reason, Failure.REFUSED if status in _REFUSED else Failure.TARGET, retry_after=wait
    )


def said(body: bytes, secrets: Sequence[str]) -> str:
    """Return the reason in a receiver's answer, one line without any part of ``secrets``; "" if none.

    That is ``error``, ``description``, ``message`` and the first of ``errors`` of a JSON object, or a short
    line of plain text.
    """
    body = body[:_MOST_BODY]
    try:
        reasons = list(dict.fromkeys(_reasons(msgspec.json.decode(body))))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        line = body.decode(errors="replace").strip()
        reasons = [line] if len(line) <= _LONGEST_LINE and line.isprintable() and "<" not in line else []
    return one_line(without(": ".join(reasons), secrets))


def _reasons(answer: Any) -> Iterator[str]:
    if isinstance(answer, str):
        yield answer.strip()
    elif isinstance(answer, list) and answer:
        yield from _reasons(answer[0])
    elif isinstance(answer, dict):
        for key in ("error", "description", "message", "errors"):
            yield from filter(None, _reasons(answer.get(key)))


def _unescaped(text: str) -> bytes:
    """Return a body as a plugin received it: most log the literal of bytes."""
    if text.startswith(("b'", 'b"')):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError):
            answer = ast.literal_eval(text)
            return answer if isinstance(answer, bytes) else b""
    return text.encode(errors="replace")


def of_errors(
    errors: Sequence[BaseException], otherwise: str = "Apprise could not send it", secrets: Sequence[str] = ()
) -> Delivery:
    """Return the result for exceptions; ``otherwise`` is the reason if they do not say it."""
    chain = [cause for error in errors for cause in _causes(error)]
    words = next((f": {answer}" for error in chain if (answer := said(_smtp_words(error), secrets))), "")
    for error in chain:
        if isinstance(error, smtplib.SMTPDataError | smtplib.SMTPConnectError | smtplib.SMTPHeloError):
            is_refused = isinstance(error, smtplib.SMTPDataError) and error.smtp_code >= _MAIL_REFUSED
            failure = Failure.REFUSED if is_refused else Failure.TARGET
            return Delivery(False, f"it answered {error.smtp_code}{words}", failure)
        if isinstance(error, smtplib.SMTPServerDisconnected) and isinstance(error.__context__, TimeoutError):
            return Delivery(False, _NO_ANSWER, Failure.UNANSWERED)
        # What it raises for too many headers has no type of its own; a lost connection has.
        if type(error) is http.client.HTTPException or isinstance(error, http.client.LineTooLong):
            return Delivery(False, "its answer is too large", Failure.UNANSWERED)
    proxy = _proxy(chain)
    for kinds, reason, failure in _MEANINGS:
        if any(isinstance(error, kinds) for error in chain):
            return Delivery(False, proxy or reason + words, failure)
    return Delivery(False, otherwise)


def _smtp_words(error: BaseException) -> bytes:
    """Return what a mail server answered, on one line; b"" for any other error."""
    answer: bytes | str = b""
    if isinstance(error, smtplib.SMTPResponseException):
        answer = error.smtp_error
    elif isinstance(error, smtplib.SMTPRecipientsRefused) and error.recipients:
        answer = next(iter(error.recipients.values()))[1]
    words = answer if isinstance(answer, bytes) else answer.encode(errors="replace")
    return b" ".join(words.split())


def _proxy(chain: Sequence[BaseException]) -> str:
    """Return what is wrong with the proxy, named without its password; "" if it is not the proxy."""
    failed = next((error for error in chain if isinstance(error, requests.exceptions.ProxyError)), None)
    if failed is None:
        return ""
    target = str(failed.request.url) if failed.request is not None else ""
    proxy = urlsplit(str(select_proxy(target, get_environ_proxies(target)) or ""))
    # Without what stands before the host.
    name = f"the proxy {proxy.scheme}://{proxy.netloc.rpartition('@')[2]}" if proxy.hostname else "the proxy"
    if any(isinstance(error, ConnectionRefusedError) for error in chain):
        return f"{name} refuses connections"
    if any(isinstance(error, socket.gaierror) for error in chain):
        return f"{name} cannot be found: its name cannot be resolved"
    answered = next((match for error in chain if (match := _TUNNEL.search(str(error)))), None)
    if answered is None:
        return f"{name} fails"
    status = int(answered[1])
    return f"{name} answered {status}" + (
        f" ({HTTPStatus(status).phrase})" if status in set(HTTPStatus) else ""
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__
