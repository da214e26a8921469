"""An IMDS that hands out the truth, fails in every way, and keeps a journal of what it said to whom."""

import contextlib
import json
import random
import socket
import struct
import threading
import time

import msgspec

from tests.faults.truth import VM, Document, Truth
from tests.http_server import Connection, HttpServer, Request, answer

FACTS = json.dumps({"compute": {"name": VM, "vmId": "c0ffee00-0000-4000-8000-000000000001"}}).encode()
ERRORS = ("500 Oops", "503 Busy", "404 Not Found", "405 No", "410 Gone", "400 Bad Request", "429 Slow Down")
GARBAGE = (
    answer(b""),
    answer(b"<html>gateway</html>"),
    answer(b"null"),
    answer(b"[]"),
    answer(b'{"DocumentIncarnation": 7}'),
    answer(b'{"DocumentIncarnation": "x", "Events": {}}'),
    answer(b"[" * 5000),
    answer(b"\xff\xfe\x00" * 9),
    b"\x16\x03\x01 no HTTP at all\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
)
FAULTS = ("error", "hang", "reset", "garbage", "short", "drip", "slow", "stale", "lose")


class Talk(msgspec.Struct):
    """A request about scheduled events and its result; times are of the monotonic clock.

    ``document`` is what it was answered with, None for a failure. ``approves`` has the ids that it approved,
    in small letters, whether or not that was answered. ``closed`` is when the client hung up.
    """

    life: int
    who: str
    asked: float
    connection: int
    document: Document | None = None
    answered: float = 0.0
    approves: tuple[str, ...] = ()
    approving: bool = False
    closed: float | None = None


class Azure(HttpServer):
    """Serves `Truth`; ``fault`` is one of `FAULTS`, or "" for none."""

    def __init__(self, truth: Truth, chance: random.Random) -> None:
        self.truth = truth
        self.talks: list[Talk] = []
        self.fault = ""
        self.fault_seconds = 0.0
        self.lifted = threading.Event()
        self._chance = chance
        self._open: dict[socket.socket, list[Talk]] = {}
        self._guard = threading.Lock()
        super().__init__(self._respond)

    def misbehave(self, fault: str) -> None:
        """Fail in a way from now on; "" lets everything be well, and ends what hangs."""
        self.lifted.set()
        self.lifted, self.fault = threading.Event(), fault
        if not fault:
            self.lifted.set()

    def _serve(self, sock: socket.socket) -> None:
        with self._guard:
            self._open[sock] = []
        super()._serve(sock)
        with self._guard:
            for talk in self._open.pop(sock):
                talk.closed = time.monotonic()

    def _respond(self, connection: Connection, request: Request) -> None:
        if "/metadata/instance" in request.path:
            connection.send(answer(FACTS) if not self.fault else answer(status="500 Oops"))
            return
        talk = Talk(
            int(request.headers["x-life"]),
            request.headers["x-who"],
            request.at,
            id(connection.sock),
            approving=request.method == "POST",
        )
        with self._guard:
            self.talks.append(talk)
            self._open[connection.sock] = [talk]
        # Once: it may be another a moment later.
        fault = self.fault
        if fault in ("", "slow", "stale", "lose"):
            self._well(connection, request, talk, fault)
        else:
            self._badly(connection, request, fault)

    def _well(self, connection: Connection, request: Request, talk: Talk, fault: str) -> None:
        if fault == "slow":
            self.lifted.wait(self._chance.uniform(0.1, 0.4))
        documents = self.truth.documents
        step = max(len(documents) - 1 - (self._chance.randint(1, 3) if fault == "stale" else 0), 0)
        if talk.approving:
            ids = [entry["EventId"].lower() for entry in json.loads(request.body)["StartRequests"]]
            talk.approves = tuple(ids)
        if fault == "lose":
            connection.hang_up()
            return
        body = b"{}" if talk.approving else documents[step].body
        connection.send(answer(body))
        talk.document, talk.answered = documents[step], time.monotonic()

    def _badly(self, connection: Connection, request: Request, fault: str) -> None:
        body = self.truth.newest.body if request.method == "GET" else b"{}"
        # With 200 an approval is taken, whatever else the answer has.
        match "error" if (fault, request.method) == ("garbage", "POST") else fault:
            case "error":
                connection.send(answer(b"no", status=self._chance.choice(ERRORS)))
            case "hang":
                self.lifted.wait(30)
                connection.hang_up()
            case "reset":
                linger = struct.pack("ii", 1, 0)
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                raise ConnectionResetError
            case "garbage":
                connection.send(self._chance.choice(GARBAGE))
                connection.hang_up()
            case "short":
                connection.send(answer(body + b" " * 9)[:-9][: -self._chance.randint(1, len(body))])
                connection.hang_up()
            case "drip":
                self._drip(connection, answer(body))

    def _drip(self, connection: Connection, data: bytes) -> None:
        """Begin to answer, so slowly that it never comes to an end."""
        for number in range(len(data) - 1):
            connection.send(data[number : number + 1])
            if self.lifted.wait(0.05):
                break
        with contextlib.suppress(OSError):
            connection.hang_up()
