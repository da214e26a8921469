"""The reasons why Apprise could not send a message.

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
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urljoin, urlsplit

from exporter.model.messages import Delivery, Failure

# The message is at fault: too large, or malformed for the service.
_REFUSED = frozenset({400, 413, 414, 415, 422, 431})
# 5yz in response to a mail's content, not to its sender or recipient:
# https://www.rfc-editor.org/rfc/rfc5321#section-4.2
_MAIL_REFUSED = range(500, 600)
_REDIRECT_SECONDS = 5.0
_NO_ANSWER = "it did not answer in time"
_STATUS = re.compile(r"\berror=([1-5][0-9][0-9])\b")


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


def of(plugin: Any, texts: Iterable[str], errors: Sequence[BaseException]) -> Delivery:
    """Return why a plugin could not send, from the ``texts`` it logged and the ``errors`` it handled."""
    found = _STATUS.search("\n".join(texts))
    if found is None:
        return of_errors(errors)
    status = int(found[1])
    return of_redirect(status, _location(plugin)) if 300 <= status < 400 else of_status(status)


def of_status(status: int) -> Delivery:
    """Return the result for an HTTP status."""
    failure = Failure.REFUSED if status in _REFUSED else Failure.TARGET
    return Delivery(delivered=False, reason=f"it answered {_named(status)}", failure=failure)


def of_redirect(status: int, location: str) -> Delivery:
    """Return the result for a redirect to ``location``, scheme and host, "" if unknown."""
    where = f" to {location}; correct the target's URL" if location else ", which is not followed"
    return Delivery(delivered=False, reason=f"it answered {_named(status)}, a redirect{where}")


def _named(status: int) -> str:
    known = status in set(HTTPStatus)
    return f"{status} ({HTTPStatus(status).phrase})" if known else str(status)


def _location(plugin: Any) -> str:
    """Return the scheme and host that a plugin's server redirects to; "" if unknown.

    Apprise does not report it, so another request is sent to the same path, without message, headers and
    credentials. That is possible only for services with the server's name in the URL.
    """
    import requests

    host = getattr(plugin, "host", None)
    if not host:
        return ""
    scheme = "https" if getattr(plugin, "secure", False) else "http"
    port = f":{plugin.port}" if getattr(plugin, "port", None) else ""
    url = f"{scheme}://{host}{port}{getattr(plugin, 'fullpath', None) or '/'}"
    try:
        with requests.get(
            url,
            timeout=_REDIRECT_SECONDS,
            allow_redirects=False,
            stream=True,
            verify=plugin.verify_certificate,
        ) as response:
            if not response.is_redirect:
                return ""
            found = urlsplit(urljoin(url, response.headers["Location"]))
    except (requests.RequestException, ValueError):
        return ""
    return f"{found.scheme}://{found.netloc.rpartition('@')[2]}"


def of_errors(errors: Sequence[BaseException]) -> Delivery:
    """Return the result for the exceptions that a plugin handled."""
    chain = [cause for error in errors for cause in _causes(error)]
    for error in chain:
        if isinstance(error, smtplib.SMTPDataError) and error.smtp_code in _MAIL_REFUSED:
            return Delivery(False, f"it answered {error.smtp_code}", Failure.REFUSED)
        if isinstance(error, smtplib.SMTPServerDisconnected) and isinstance(error.__context__, TimeoutError):
            return Delivery(False, _NO_ANSWER, Failure.UNANSWERED)
    for kinds, reason, failure in _meanings():
        if any(isinstance(error, kinds) for error in chain):
            return Delivery(False, reason, failure)
    return Delivery(delivered=False, reason="Apprise could not send it")


def _meanings() -> Iterator[tuple[tuple[type[BaseException], ...], str, Failure]]:
    """Yield types of exceptions with their meaning, the most specific first."""
    import requests
    import urllib3

    yield (requests.ReadTimeout, urllib3.exceptions.ReadTimeoutError), _NO_ANSWER, Failure.UNANSWERED
    for kinds, reason in (
        ((ConnectionRefusedError,), "it refuses connections"),
        ((socket.gaierror,), "its name cannot be resolved"),
        ((ssl.SSLCertVerificationError,), "its certificate is not accepted"),
        ((smtplib.SMTPAuthenticationError,), "it does not accept the credentials"),
        (
            (smtplib.SMTPRecipientsRefused, smtplib.SMTPSenderRefused),
            "it does not accept the addresses",
        ),
        ((requests.ConnectTimeout, TimeoutError), "it cannot be reached in time"),
        ((requests.ConnectionError, OSError, smtplib.SMTPException), "the connection failed"),
    ):
        yield kinds, reason, Failure.TARGET


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__
