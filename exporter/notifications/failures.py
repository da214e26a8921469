"""Attempts to send, and the reasons why one failed.

`AppriseResult` only contains that an attempt failed. While a plugin logs an exception that it handles, it is
the interpreter's current one, so its type is available. The status of an HTTP response is only in the text of
Apprise's log (docs/decisions/0003-apprise-status.md).
"""

import contextlib
import logging
import re
import smtplib
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus

import requests
import urllib3

from exporter.model.messages import Delivery, Failure
from exporter.notifications.limits import AnswerTooLargeError, Limits, TimeLimitError

# The message is at fault: too large, or malformed for the service.
_REFUSED = frozenset({400, 413, 414, 415, 422, 431})
# 5yz in response to a mail's content, not to its sender or recipient:
# https://www.rfc-editor.org/rfc/rfc5321#section-4.2
_MAIL_REFUSED = 500
# Apprise's timeouts are 4 s, and 15 s for mail, when a slow receiver may already have the message.
CONNECT_SECONDS = 5.0
READ_SECONDS = 60.0
_SEND_SECONDS = 66.0
_NO_ANSWER = "it did not answer in time"
# The types of exceptions with their meaning, the most specific first.
_MEANINGS: tuple[tuple[tuple[type[BaseException], ...], str, Failure], ...] = (
    ((AnswerTooLargeError, MemoryError), "its answer is too large", Failure.UNANSWERED),
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
_STATUS = re.compile(r"\berror=([1-5][0-9][0-9])\b")


def attempt(limits: Limits, send: Callable[[], Delivery]) -> Delivery:
    """Return the result of an attempt; it may take 66 s, and every exception is a failure."""
    try:
        with limits.limited(_SEND_SECONDS):
            return send()
    except TimeLimitError:
        return Delivery(False, f"it did not answer within {_SEND_SECONDS:g} s", Failure.UNANSWERED)
    except Exception as error:  # noqa: BLE001  # of any service; its text may have the URL
        return of_errors([error], f"{type(error).__name__} in the sender process")


class _Errors(logging.Handler):
    """Collects the exceptions that are being handled when this thread logs something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[BaseException] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        error = sys.exception()
        if error is not None and record.thread == self._thread and error not in self.found:
            self.found.append(error)


@contextlib.contextmanager
def handled_by(name: str) -> Iterator[Sequence[BaseException]]:
    """Collect the exceptions handled on this thread by code that logs to the named logger."""
    logger, errors = logging.getLogger(name), _Errors()
    logger.addHandler(errors)
    try:
        yield errors.found
    finally:
        logger.removeHandler(errors)
        # In a cycle with its frames, an exception would keep what was read until the next collection.
        for error in errors.found:
            for cause in _causes(error):
                cause.__traceback__ = None


def of(texts: Iterable[str], errors: Sequence[BaseException]) -> Delivery:
    """Return why a plugin could not send, from the ``texts`` it logged and the ``errors`` it handled."""
    found = _STATUS.search("\n".join(texts))
    return of_errors(errors) if found is None else of_status(int(found[1]))


def of_status(status: int) -> Delivery:
    """Return the result for an HTTP status that is not a success."""
    known = status in set(HTTPStatus)
    reason = f"it answered {status} ({HTTPStatus(status).phrase})" if known else f"it answered {status}"
    if 300 <= status < 400:
        reason += ", a redirect, which is not followed; correct the target's URL"
    return Delivery(False, reason, Failure.REFUSED if status in _REFUSED else Failure.TARGET)


def of_errors(errors: Sequence[BaseException], otherwise: str = "Apprise could not send it") -> Delivery:
    """Return the result for exceptions; ``otherwise`` is the reason if they do not say it."""
    chain = [cause for error in errors for cause in _causes(error)]
    for error in chain:
        if isinstance(error, smtplib.SMTPDataError) and error.smtp_code >= _MAIL_REFUSED:
            return Delivery(False, f"it answered {error.smtp_code}", Failure.REFUSED)
        if isinstance(error, smtplib.SMTPServerDisconnected) and isinstance(error.__context__, TimeoutError):
            return Delivery(False, _NO_ANSWER, Failure.UNANSWERED)
    for kinds, reason, failure in _MEANINGS:
        if any(isinstance(error, kinds) for error in chain):
            return Delivery(False, reason, failure)
    return Delivery(False, otherwise)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__
