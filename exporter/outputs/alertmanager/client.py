"""The calls of Alertmanager's API v2.

Source: https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import msgspec

from exporter import __version__
from exporter.clock import Clock
from exporter.config import PROGRAM
from exporter.config.addresses import Address, without_credentials
from exporter.errors import basic, cause, one_line, without
from exporter.transport import Answer, Request, Transport

_TIMEOUT_SECONDS = 10.0  # for a whole answer


class AlertmanagerError(Exception):
    """Alertmanager did not accept the request; the message contains no secret.

    ``retry_after`` is the number of seconds for which it asks to be left alone.
    """

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Client:
    """Sends requests to the Alertmanager of an address; its ``label`` may be shown."""

    def __init__(self, address: Address, clock: Clock) -> None:
        url = urlsplit(address.url)
        credentials = url.netloc.rpartition("@")[0]
        self.label = f"{url.scheme}://{url.hostname}"
        self._base = without_credentials(address.url)
        self._headers = {"User-Agent": f"{PROGRAM}/{__version__}", **address.headers}
        self._secrets = (address.url, *address.headers.values())
        if credentials:
            self._headers["Authorization"] = f"Basic {basic(credentials)}"
        self._clock = clock
        self._transport = Transport(self._base)

    def post(self, alerts: Sequence[dict[str, Any]]) -> float:
        """Post ``postableAlerts``; return by how many seconds this VM's clock is ahead of Alertmanager's.

        Raises:
            AlertmanagerError: they were not accepted, or it is unknown whether they were.
        """
        sent = self._clock.now()
        answer = self._ask("/api/v2/alerts", msgspec.json.encode(alerts))
        return answer.clock_offset(sent, self._clock.now())

    def look(self) -> None:
        """Check that the API answers to these credentials; nothing is changed.

        Raises:
            AlertmanagerError: it does not.
        """
        self._ask("/api/v2/status")

    def close(self) -> None:
        self._transport.close()

    def _ask(self, path: str, body: bytes | None = None) -> Answer:
        method, headers = ("GET", {}) if body is None else ("POST", {"Content-Type": "application/json"})
        request = Request(method, self._base + path, self._headers | headers, body)
        try:
            answer = self._transport.send(request, _TIMEOUT_SECONDS)
        except TimeoutError as error:
            raise AlertmanagerError(f"no answer within {_TIMEOUT_SECONDS:g} s") from error
        except Exception as error:
            # Not a list of types: a malformed answer can cause any error in a parser.
            raise AlertmanagerError(cause(error, self._secrets)) from error
        if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise AlertmanagerError(self._problem(answer), answer.retry_after(self._clock.now()))
        return answer

    def _problem(self, answer: Answer) -> str:
        problem = f"status {answer.status}"
        if answer.status < HTTPStatus.BAD_REQUEST:
            return f"{problem}: redirects are not followed; correct alertmanager.urls"
        words = answer.body.decode(errors="replace")
        if "<" in words or not words.strip():
            return problem
        return f"{problem}: {one_line(without(words, self._secrets))}"
