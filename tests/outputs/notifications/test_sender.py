"""Tests of the sender process: attempts at once, ends of processes, hostile receivers and templates."""

import contextlib
import gzip
import os
import resource
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from exporter.config import Templates
from exporter.config.addresses import Address
from exporter.model.messages import Delivery, Failure
from exporter.outputs.notifications import protocol
from exporter.outputs.notifications.protocol import Checked, CheckTarget, CheckTemplate, Send, Sending
from exporter.outputs.notifications.sender import SenderProcess, environment
from tests.builders import REBOOT_ID, message
from tests.clocks import NOW
from tests.end_to_end.program import children as started_by
from tests.end_to_end.program import eventually, resident
from tests.http_server import Connection, endless, serving
from tests.http_server import Request as HttpRequest
from tests.receivers import Receiver, after, http_receiver
from tests.web.certificates import Pki

SECONDS = 120
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
ENDLESS = "takes more than 2 s of CPU time"


@pytest.fixture
def process() -> Iterator[SenderProcess]:
    """Lend a process that is not started yet."""
    found = SenderProcess(dict(os.environ))
    yield found
    found.stop()


def send(process: SenderProcess, url: str | Address, target: str = "oncall", **fields: Any) -> Delivery:
    """Send a message to a URL, and wait for the result."""
    address = Address(target, url=url) if isinstance(url, str) else url
    found = process.ask(Send(address, message(), NOW, **fields))
    assert isinstance(found, Delivery)
    return found


def pids() -> list[int]:
    """Return the ids of the sender processes, of which one may have ended just now."""
    commands = {one: Path(f"/proc/{one}/cmdline").read_text().split("\0") for one in started_by(os.getpid())}
    return [one for one, words in commands.items() if protocol.COMMAND in words]


def pid() -> int:
    """Wait for the process, and return its id."""
    (found,) = eventually(lambda: pids() if len(pids()) == 1 else [])
    return found


def children() -> list[int]:
    """Return the ids of the children of the process."""
    return started_by(pid())


@pytest.mark.parametrize(
    ("failed", "is_mail", "most"),
    [(False, False, 4), (True, False, 3), (False, True, 2)],
    ids=["any", "failed", "mail"],
)
def test_how_many_attempts_are_made_at_once(
    process: SenderProcess, failed: bool, is_mail: bool, most: int
) -> None:
    """Four; targets whose last attempt failed leave one place to others, and mail leaves two."""
    running: list[bytes] = []
    counts: list[int] = []
    full = threading.Event()

    def take(body: bytes) -> int:
        running.append(body)
        counts.append(len(running))
        if len(running) == most:
            full.set()
        full.wait(SECONDS)
        # It is slow, so that one too many would come meanwhile.
        threading.Event().wait(0.3)
        running.pop()
        return 200

    with http_receiver(take) as receiver, ThreadPoolExecutor(9) as pool:
        for number in range(9):
            address = Address(str(number), url=f"json://{receiver.authority}/")
            pool.submit(process.ask, Send(address, message(), NOW, is_mail=is_mail), failed=failed)
    assert (len(counts), max(counts)) == (9, most)


def test_targets_that_failed_stand_behind_the_others(process: SenderProcess) -> None:
    """With eight of them first in line, four that are well are among the first eight that are served."""
    running = threading.Barrier(4)

    def take(_: bytes) -> int:
        with contextlib.suppress(threading.BrokenBarrierError):
            running.wait(SECONDS)
        return 200

    with http_receiver(take) as receiver, ThreadPoolExecutor(12) as pool:
        for number in range(12):
            name = "failed" if number < 8 else "well"
            address = Address(f"{name} {number}", url=f"json://{receiver.authority}/{name}")
            pool.submit(process.ask, Send(address, message(), NOW), failed=name == "failed")
        eventually(lambda: len(receiver.requests) >= 8)
        running.abort()
    assert [request.path.strip("/") for request in receiver.requests[:8]].count("well") == 4


def test_a_process_that_hangs_is_replaced(
    process: SenderProcess,
    receiver: Receiver,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that starts nothing; what was not begun is repeated."""
    posix = pytest.importorskip("exporter.outputs.notifications.posix")
    assert send(process, f"json://{receiver.authority}/").delivered
    os.kill(pid(), signal.SIGSTOP)
    monkeypatch.setattr(posix, "_USED_SECONDS", 0.0)
    monkeypatch.setattr(posix, "_SILENT_SECONDS", 1.0)
    replace_process = posix.Children._replace

    def replaced(children: Any, process: int) -> None:
        # The new one may take as long as it does on a busy machine.
        monkeypatch.setattr(posix, "_SILENT_SECONDS", 60.0)
        replace_process(children, process)

    monkeypatch.setattr(posix.Children, "_replace", replaced)
    assert send(process, f"json://{receiver.authority}/").delivered
    assert caplog.messages[0] == "the sender process hangs and is replaced"
    assert len(receiver.requests) == 2


def silent(requests: list[bytes]) -> contextlib.AbstractContextManager[Receiver]:
    """Lend a receiver that keeps what it gets and never answers."""

    def take(body: bytes) -> str:
        requests.append(body)
        return "hang"

    return http_receiver(take)


def apprise_file(folder: Path, *urls: str) -> Address:
    """Return the address of all services with these URLs in a file of Apprise's."""
    file = folder / "apprise.yml"
    file.write_text("urls:\n" + "".join(f"  - {url}: [{{tag: all}}]\n" for url in urls))
    return Address("oncall", apprise_config=(str(file), "all"))


def test_what_was_being_sent_is_not_repeated(
    process: SenderProcess, receiver: Receiver, tmp_path: Path
) -> None:
    """A child that ends meanwhile leaves it unanswered; each service that has it is told of at once."""
    got: list[bytes] = []
    noted: list[str] = []
    with silent(got) as hanging, ThreadPoolExecutor(1) as pool:
        urls = (f"json://{one.authority}/" for one in (receiver, hanging))
        request = Send(apprise_file(tmp_path, *urls), message(), NOW, services=("another",))
        asked = pool.submit(process.ask, request, note=noted.append)
        eventually(lambda: got and noted)
        (child,) = children()
        os.kill(child, signal.SIGKILL)
        delivery = asked.result()
    assert delivery == Delivery(
        False, "its process was ended", Failure.UNANSWERED, services=("another", *noted)
    )
    assert send(process, f"json://{receiver.authority}/").delivered
    assert len(receiver.requests) == 2


def test_many_services_behind_a_tag(pki: Pki, tmp_path: Path) -> None:
    """Twenty over TLS get a message by one attempt, within the limits of its child."""
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(Path(DEFAULT_CA_BUNDLE_PATH).read_bytes() + pki.authority.cert_pem.bytes())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    process = SenderProcess({**os.environ, "REQUESTS_CA_BUNDLE": str(bundle)})
    with http_receiver(after(0.3), tls=tls) as receiver:
        urls = [f"jsons://{receiver.authority}/{number}" for number in range(20)]
        delivery = send(process, apprise_file(tmp_path, *urls))
        process.stop()
    assert delivery.delivered, delivery.reason
    assert sorted(request.path for request in receiver.requests) == sorted(f"/{n}" for n in range(20))


def test_a_child_outlives_the_process(process: SenderProcess) -> None:
    """What it was sending arrives once, and its result too."""
    got: list[bytes] = []
    with silent(got) as receiver, ThreadPoolExecutor(1) as pool:

        def take(body: bytes) -> int:
            got.append(body)
            return 200 if receiver.released.wait(SECONDS) else 500

        receiver.mood = take
        slow = pool.submit(send, process, f"json://{receiver.authority}/")
        eventually(lambda: got)
        os.kill(pid(), signal.SIGKILL)
        eventually(lambda: not pids())
        receiver.released.set()
        assert slow.result().delivered
    assert len(got) == 1


def test_a_file_that_was_edited(process: SenderProcess, receiver: Receiver, tmp_path: Path) -> None:
    """Messages go to the services that are in Apprise's file now, also where a child goes on."""
    with http_receiver() as other:
        for expected in (receiver, other):
            assert send(process, apprise_file(tmp_path, f"json://{expected.authority}/")).delivered
        assert (len(receiver.requests), len(other.requests)) == (1, 1)


def test_a_template_that_does_not_end_gives_way(process: SenderProcess, receiver: Receiver) -> None:
    """The message goes out in the built-in words; it is tried anew with the next one."""
    # `9 ** (9 ** 9)` is one call of C, in which only the system can end a process.
    endless = Templates(title="{{ event.id }}", body="{{ 9 ** (9 ** 9) }}")
    found = send(process, f"json://{receiver.authority}/", templates=endless)
    assert (found.delivered, found.remarks) == (True, {"body": ENDLESS})
    assert "The VM reboots." in receiver.requests[0].json["message"]
    assert receiver.requests[0].json["title"] == REBOOT_ID
    found = send(process, f"json://{receiver.authority}/", templates=Templates(title="{{ 'x' * 9 }}"))
    assert (found.delivered, found.remarks) == (True, {})


def test_an_endless_template_is_a_mistake(process: SenderProcess) -> None:
    """Also in a call of C; so is an immense one."""
    endless = process.ask(CheckTemplate("body", Templates(body="{{ 9 ** (9 ** 9) }}")))
    assert endless == Checked(ENDLESS)
    immense = (
        "{% set ns = namespace(s='xxxx') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"
    )
    found = process.ask(CheckTemplate("body", Templates(body=immense)))
    assert found == Checked("takes too much memory; tried with transition advised")


def bomb(connection: Connection, _: HttpRequest) -> None:
    """Answer with 300 kB that unpack to 300 MiB."""
    body = gzip.compress(b"\0" * 2**20, 9) * 300
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.send(head.encode() + body)


def endless_reply(connection: socket.socket) -> None:
    """Take a mail, and reply with lines that never end."""
    connection.sendall(b"220 mail.example.com\r\n")
    lines = connection.makefile("rb")
    while lines.readline().upper() != b"DATA\r\n":
        connection.sendall(b"250 ok\r\n")
    connection.sendall(b"354 go on\r\n")
    while lines.readline() != b".\r\n":
        pass
    while True:
        connection.sendall((b"250-" + b"x" * 500 + b"\r\n") * 100)


@contextlib.contextmanager
def mail_server(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve one connection until the client closes it; yield the URL for Apprise."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            talk(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"mailto://127.0.0.1:{server.getsockname()[1]}/?from=a@example.com&to=b@example.com"
        thread.join(SECONDS)


@contextlib.contextmanager
def web_server(respond: Callable[[Connection, HttpRequest], None]) -> Iterator[str]:
    """Serve until the end of the block; yield the URL for Apprise."""
    with serving(respond) as server:
        yield f"json://127.0.0.1:{server.port}/"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize(
    "server",
    [
        partial(web_server, endless(OK, b"x")),
        partial(web_server, endless(b"HTTP/1.1 200 OK\r\n", b"X: " + b"x" * 60000 + b"\r\n")),
        partial(web_server, bomb),
        partial(mail_server, endless_reply),
    ],
    ids=["body", "head", "gzip", "mail"],
)
def test_an_immense_answer_ends_only_its_attempt(
    process: SenderProcess, receiver: Receiver, server: Callable[[], contextlib.AbstractContextManager[str]]
) -> None:
    """The message may have arrived; others are sent meanwhile, and the process itself does not grow."""
    good = f"json://{receiver.authority}/"
    assert send(process, good).delivered
    first = pid()
    before = resident(first)
    with server() as url, ThreadPoolExecutor(1) as pool:
        bad = pool.submit(send, process, url)
        assert send(process, good, target="good").delivered
        found = bad.result()
    assert (found.delivered, found.failure) == (False, Failure.UNANSWERED)
    assert found.reason in ("its answer is too large", "its answer takes more than 2 s of CPU time")
    assert pid() == first
    assert resident(first, "VmHWM") - before < 2


def changed(code: str) -> Callable[..., list[str]]:
    """Return how to start a sender process with other constants."""
    main = f"from exporter.outputs.notifications import posix, protocol; {code}; posix.main()"
    return lambda *arguments: [sys.executable, "-c", main, protocol.COMMAND, *arguments]


def test_a_receiver_that_drips_ends_with_its_time(
    process: SenderProcess, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel ends its child."""
    receiver.mood = "drip"
    monkeypatch.setattr(protocol, "command", changed("protocol._WORK_SECONDS = -33.0"))
    monkeypatch.setattr(protocol, "READ_SECONDS", 1.0)
    monkeypatch.setattr(protocol, "_WORK_SECONDS", -4.0)
    found = send(process, f"json://{receiver.authority}/")
    assert found == Delivery(False, "it did not answer within 1 s", Failure.UNANSWERED)


def test_the_process_has_no_secret_in_its_environment(process: SenderProcess) -> None:
    """Nor on its command line, nor in a core file; URLs go through a socket. Only the exporter ends it."""
    passed = {"HTTPS_PROXY": "p", "no_proxy": "n", "SSL_CERT_FILE": "f", "LC_ALL": "C", "SystemRoot": "s"}
    others = {
        "MY_TOKEN": "canary",
        "OTEL_X": "canary",
        "NOTIFY_SOCKET": "s",
        "NETRC": "f",
        "A_SERVICE_HOST": "h",
    }
    assert environment({**passed, **others, "HTTP_PROXY": "canary"}, {"HTTP_PROXY"}) == passed
    terminal = Address("terminal")
    assert send(process, terminal).delivered
    proc = Path(f"/proc/{pid()}")
    if proc.exists():
        sockets = [link for link in (proc / "fd").iterdir() if "socket" in str(link.readlink())]
        assert len(sockets) == 1
        assert os.getsid(pid()) != os.getsid(0)
        assert resource.prlimit(pid(), resource.RLIMIT_CORE) == (0, 0)
        own = int(Path("/proc/self/oom_score_adj").read_text())
        assert int((proc / "oom_score_adj").read_text()) == min(own + 500, 1000)
        got: list[bytes] = []
        with silent(got) as hanging, ThreadPoolExecutor(1) as pool:
            pool.submit(send, process, f"json://{hanging.authority}/", target="hanging")
            eventually(lambda: got)
            forked = Path(f"/proc/{max(children())}")
            assert int((forked / "oom_score_adj").read_text()) == min(own + 700, 1000)
            hanging.released.set()
    first = pid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(first, number)
    assert send(process, terminal).delivered
    assert pid() == first


def test_a_stop_signals_no_process_that_has_ended(
    process: SenderProcess,
    receiver: Receiver,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its number may be that of another program by then."""
    assert send(process, f"json://{receiver.authority}/").delivered
    os.kill(pid(), signal.SIGKILL)
    eventually(lambda: "the sender process ended" in caplog.messages)
    signalled: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _: signalled.append(group))
    process.stop()
    assert signalled == []


def test_an_idle_process_ends(
    process: SenderProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It does ten minutes after the last message; the next one starts another."""
    with monkeypatch.context() as patch:
        patch.setattr(protocol, "command", changed("posix._IDLE_SECONDS = 0.5"))
        assert send(process, Address("terminal")).delivered
        eventually(lambda: pids() == [])
    assert send(process, Address("terminal")).delivered
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["/none"], "the sender process cannot be started: No such file or directory"),
        ([sys.executable, "-c", "exit(3)"], "the process for it ended"),
    ],
)
def test_a_process_that_cannot_be_started(
    process: SenderProcess, monkeypatch: pytest.MonkeyPatch, command: list[str], reason: str
) -> None:
    """A message is tried again later, and a check has no result."""
    with monkeypatch.context() as patch:
        patch.setattr(protocol, "command", lambda *_: command)
        assert process.ask(CheckTarget(Address("a", url="json://h/"))) == Checked(failure=reason)
        assert send(process, Address("terminal")) == Delivery(False, reason)
    assert send(process, Address("terminal")).delivered


def test_without_fork_a_child_is_a_program(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows: it renders and sends, and is ended when its time is over."""
    process = SenderProcess(dict(os.environ), forks=False)
    process.prepare()
    assert send(process, f"json://{receiver.authority}/").delivered
    # It is not even loaded by then.
    monkeypatch.setattr(protocol, "limit", lambda _: 0)
    assert send(process, f"json://{receiver.authority}/") == Delivery(False, "the process for it ended")
    assert len(receiver.requests) == 1
    process.stop()
    assert pids() == []


def test_without_fork_a_receiver_that_hangs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program whose time is over is ended, and what it has written is read afterwards."""
    line = msgspec.json.encode(Sending()).decode()
    code = f"import threading; print({line!r}, flush=True); threading.Event().wait()"
    monkeypatch.setattr(protocol, "command", lambda: [sys.executable, "-c", code])
    monkeypatch.setattr(protocol, "limit", lambda _: 2)
    process = SenderProcess(dict(os.environ), forks=False)
    found = send(process, "json://h/")
    assert found == Delivery(False, "it did not answer within 30 s", Failure.UNANSWERED)
