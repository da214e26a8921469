import logging
import smtplib
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
import requests
import urllib3

from exporter.model.messages import Delivery, Failure
from exporter.outputs.notifications import failures
from exporter.timefmt import parse_retry_after
from tests.docs.pages import DOCS

CONNECTION = requests.ConnectionError


def caused(kind: type[Exception], cause: Exception) -> Exception:
    error = kind()
    error.__cause__ = cause
    return error


def circular() -> Exception:
    error = CONNECTION()
    error.__cause__ = ValueError()
    error.__cause__.__context__ = error
    return error


def late() -> Exception:
    """Return what smtplib raises where a server does not answer any more."""
    error = smtplib.SMTPServerDisconnected("Connection unexpectedly closed: timed out")
    error.__context__ = TimeoutError()
    return error


@pytest.mark.parametrize(
    ("error", "reason", "failure"),
    [
        (requests.ReadTimeout(), "it did not answer in time", Failure.UNANSWERED),
        (
            caused(CONNECTION, urllib3.exceptions.ReadTimeoutError(None, "", "")),  # type: ignore[arg-type]
            "it did not answer in time",
            Failure.UNANSWERED,
        ),
        (requests.ConnectTimeout(), "it cannot be reached in time", Failure.TARGET),
        (caused(CONNECTION, ConnectionRefusedError()), "it refuses connections", Failure.TARGET),
        (caused(CONNECTION, socket.gaierror()), "its name cannot be resolved", Failure.TARGET),
        (
            caused(requests.exceptions.SSLError, ssl.SSLCertVerificationError()),
            "its certificate is not accepted",
            Failure.TARGET,
        ),
        (circular(), "the connection failed", Failure.TARGET),
        (smtplib.SMTPServerDisconnected(), "the connection failed", Failure.TARGET),
        (
            smtplib.SMTPAuthenticationError(535, b"no"),
            "it does not accept the credentials: no",
            Failure.TARGET,
        ),
        (smtplib.SMTPRecipientsRefused({}), "it does not accept the addresses", Failure.TARGET),
        (late(), "it did not answer in time", Failure.UNANSWERED),
        (ValueError("CANARY"), "Apprise could not send it", Failure.TARGET),
    ],
)
def test_exceptions_are_known_by_type(error: Exception, reason: str, failure: Failure) -> None:
    """The reason is ours, without any of the exception's own text."""
    assert failures.of_errors([error]) == Delivery(delivered=False, reason=reason, failure=failure)


def test_a_status_says_whose_fault_it_is() -> None:
    """What would be refused later, too, is the message's; everything else is the target's."""
    refused = {status for status in range(100, 600) if failures.of_status(status).failure is Failure.REFUSED}
    assert refused == {400, 413, 414, 415, 422, 431}
    told = f"| {', '.join(map(str, sorted(refused)))}, or 5yz"
    assert told in (DOCS / "delivery.md").read_text()
    redirects = {status for status in range(100, 600) if "redirect" in failures.of_status(status).reason}
    assert redirects == set(range(300, 400))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("9" * 5000, 300.0),
        ("Wed, 04 Mar 2026 22:00:30 GMT", 30.0),
        ("Wed, 04 Mar 2026 21:59:30 GMT", 0.0),
        ("", None),
        ("-1", None),
        ("\N{ARABIC-INDIC DIGIT SEVEN}", None),
        ("Wed, 99 Mar 2026 22:00:30 GMT", None),
    ],
)
def test_the_time_to_wait(header: str, seconds: float | None) -> None:
    """It is in seconds or a date, and at most five minutes."""
    assert parse_retry_after(header, datetime(2026, 3, 4, 22, tzinfo=UTC)) == seconds


def test_only_answers_that_ask_to_wait_do() -> None:
    """That are 429 and 503."""
    waits = {status for status in range(100, 600) if failures.of_status(status, "", "7").retry_after}
    assert waits == {429, 503}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": "bad key ' + b"CANARY%2Fabc" + b'"}', "bad key ..."),
        (b'{"error": "bad key canary/abc for u"}', "bad key ... for ..."),
        (b'{"message": "no such user: us"}', "no such user: us"),
        (b'{"error": "' + b"no, " * 100 + b'"}', ("no, " * 40)[:159] + "\N{HORIZONTAL ELLIPSIS}"),
        (b'{"errors": [{"message": "a"}, {"message": "b"}], "error": {"code": 7}}', "a"),
        (b"[" * 3000, ""),
        (b" " * 1992 + b"canary/abc", "..."),
        (b"\xff\xfe", "\N{REPLACEMENT CHARACTER}" * 2),
        (b"", ""),
    ],
)
def test_what_a_receiver_said(body: bytes, words: str) -> None:
    """It is short and on one line, without any part of the target's URL."""
    assert failures.said(body, ("json://u:p@h.test/CANARY%2Fabc?mode=yes",)) == words


def test_the_exceptions_of_an_attempt() -> None:
    """Each is found once, none of other threads; tracebacks would keep an immense answer in memory."""
    logger = logging.getLogger("test.failures")

    def fail(error: Exception) -> None:
        try:
            raise error
        except type(error):
            logger.warning("failed")
            logger.warning("again")

    with failures.handled_by(logger.name) as errors, ThreadPoolExecutor(1) as pool:
        logger.warning("nothing has failed yet")
        pool.submit(fail, ValueError()).result()
        fail(caused(CONNECTION, MemoryError()))
    (error,) = errors
    assert (error.__traceback__, type(error.__cause__)) == (None, MemoryError)
    assert logger.handlers == []
