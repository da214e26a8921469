"""The program as a process under attack, with an IMDS that the test controls."""

import contextlib
import gzip
import http.client
import json
import signal
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.builders import body
from tests.end_to_end.program import eventually, exporter, free_port
from tests.http_server import Connection, HttpServer, Request, answer, serving

# Many times what an answer takes on a small machine.
ANSWER_SECONDS = 60.0


class Running(NamedTuple):
    """The program, an IMDS whose answer is the first of ``documents``, and where it answers itself."""

    process: "subprocess.Popen[bytes]"
    port: int
    documents: list[bytes]
    imds: HttpServer
    log: Path
    authorization: str = ""
    tls: ssl.SSLContext | None = None

    def get(self, path: str, method: str = "GET", **headers: str) -> bytes:
        """Ask once, within the time that an answer may take; return the body of a 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        if self.tls:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=ANSWER_SECONDS, context=self.tls
            )
        with contextlib.closing(connection):
            known = {"Authorization": self.authorization} if self.authorization else {}
            connection.request(method, path, headers=known | headers)
            answered = connection.getresponse()
            content = answered.read()
            assert answered.status == 200, content[:200]
            return gzip.decompress(content) if answered.getheader("Content-Encoding") == "gzip" else content

    def show(self, document: bytes, incarnation: int, within: float = 60.0) -> None:
        """Set the document of IMDS, and wait until the program has processed it."""
        self.documents[0] = answer(document)
        eventually(
            lambda: json.loads(self.get("/api/v1/status"))["document_incarnation"] == incarnation,
            within=within,
        )

    def files(self) -> int:
        """Count the open files."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def stop(self) -> str:
        """End it as a service manager does, in good order; return its log."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0, f"status {self.process.returncode}"
        text = self.log.read_text()
        assert "raceback" not in text
        return text


@contextlib.contextmanager
def running(
    folder: Path,
    *flags: str,
    config: str = "{}",
    authorization: str = "",
    tls: ssl.SSLContext | None = None,
    prefix: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """Run it with a configuration against an IMDS that is idle at first."""
    documents = [answer(body(incarnation=1))]

    def azure(connection: Connection, _: Request) -> None:
        connection.send(documents[0])

    file, log, port = folder / "config.yml", folder / "log", free_port()
    file.write_text(config)
    flags = ("--instance.name", "WestNO_0", "--config.file", str(file), *flags)
    with (
        serving(azure) as imds,
        exporter(
            imds.url, folder / "state", port, *flags, log=log, prefix=prefix, environ=environ
        ) as process,
    ):
        found = Running(process, port, documents, imds, log, authorization, tls)
        eventually(lambda: found.get("/-/ready"))
        yield found
