"""The exporter that runs on this VM, asked over HTTP, for the commands that show what it knows."""

from typing import TypeVar
from urllib.parse import unquote, urlsplit

import msgspec
import urllib3

from exporter.errors import ExporterError
from exporter.web import api

T = TypeVar("T")

_SECONDS = 5.0
_INSTEAD = "or pass --imds.endpoint http://169.254.169.254 to ask IMDS instead"


class NoExporterError(ExporterError):
    """Nothing answers at the exporter's address."""


class RunningExporter:
    """Asks one exporter; ``url`` may have a user name and a password, the attribute has neither."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        given, _, host = parts.netloc.rpartition("@")
        self.url = parts._replace(netloc=host).geturl()
        self._headers = urllib3.make_headers(basic_auth=unquote(given)) if given else {}
        # Proxies are ignored: nothing but this VM is asked by default.
        self._pool = urllib3.PoolManager(timeout=urllib3.Timeout(total=_SECONDS), retries=False)

    def events(self) -> api.Events:
        """Return what it knows of events.

        Raises:
            NoExporterError: nothing answers there.
            ExporterError: what answers does not let us in, or is not an exporter.
        """
        return self._ask("/api/v1/events", api.Events)

    def status(self) -> api.Status:
        """Return how it is.

        Raises:
            NoExporterError: nothing answers there.
            ExporterError: what answers does not let us in, or is not an exporter.
        """
        return self._ask("/api/v1/status", api.Status)

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def _ask(self, path: str, kind: type[T]) -> T:
        response = self._get(path)
        if response.status == 401:
            raise ExporterError(
                f"{self.url} requires a user name and a password: pass http://USER:PASSWORD@HOST:PORT in the "
                f"environment variable SCHEDULED_EVENTS_EXPORTER_URL, {_INSTEAD}"
            )
        if response.status != 200:
            raise ExporterError(f"{self.url} answers with status {response.status}; {_INSTEAD}")
        try:
            return msgspec.json.decode(response.data, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ExporterError(f"{self.url} is not an exporter of this version; {_INSTEAD}") from error

    def _get(self, path: str) -> urllib3.BaseHTTPResponse:
        try:
            return self._pool.request("GET", self.url + path, headers=self._headers, redirect=False)
        except urllib3.exceptions.SSLError as error:
            raise ExporterError(
                f"{self.url} cannot be verified ({error}); name the host as its certificate does, set "
                f"SSL_CERT_FILE to the authority's certificate, {_INSTEAD}"
            ) from error
        except urllib3.exceptions.ProtocolError as error:
            raise ExporterError(
                f"{self.url} closed the connection; if the exporter serves TLS, pass "
                f"--exporter.url https://HOST:PORT, {_INSTEAD}"
            ) from error
        except urllib3.exceptions.HTTPError as error:
            raise NoExporterError(f"no exporter answers at {self.url}") from error
