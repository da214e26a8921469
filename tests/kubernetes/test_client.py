"""The client of the API server, against one whose answers never end."""

from pathlib import Path

import pytest
import trustme

from exporter.kubernetes.client import Client
from exporter.kubernetes.objects import KubernetesError, Metadata, Pod
from tests.http_server import Connection, Request, serving
from tests.imds.test_client_hostile import tls

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("drops", [OK + b"X: y\r\n" * 80, OK + b"Content-Length: 500\r\n\r\n" + b" " * 500])
def test_an_answer_that_drips(tmp_path: Path, drops: bytes) -> None:
    """It is given up at the timeout, whether the head or the body comes byte by byte."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("it")
    whole = []

    def respond(connection: Connection, _: Request) -> None:
        connection.drip(drops)
        whole.append(not connection.stopping.is_set())

    with serving(respond, tls(authority)) as server:
        address = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
        client = Client(str(tmp_path), address)
        with pytest.raises(KubernetesError, match=r"^create pods/eviction: no answer within 0\.5 s$"):
            client.evict(Pod(Metadata("web", namespace="default")), None, 0.5)
        assert not whole
        client.close()
