"""Tests of the sender process: kills, messages that end it, hostile receivers and templates."""

import contextlib
import gzip
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from exporter.config import Templates
from exporter.config.addresses import Address
from exporter.health import Health
from exporter.model.messages import Delivery, Failure
from exporter.outputs.notifications import protocol
from exporter.outputs.notifications.protocol import (
    Checked,
    CheckTarget,
    CheckTemplate,
    Ready,
    Request,
    Result,
    Send,
)
from exporter.outputs.notifications.sender import SenderProcess, environment
from tests.bench.loops import HandLoops
from tests.builders import REBOOT_ID, message
from tests.clocks import NOW, HandClock
from tests.end_to_end.program import children as started_by
from tests.end_to_end.program import eventually, resident
from tests.http_server import Connection, endless, serving
from tests.http_server import Request as HttpRequest
from tests.receivers import Receiver, http_receiver

SECONDS = 120
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def health(clock: HandClock) -> Health:
    return Health(clock)


@pytest.fixture
def process(clock: HandClock, health: Health) -> Iterator[SenderProcess]:
    """Lend a process that is not started yet."""
    found = SenderProcess(clock, health, dict(os.environ))
    yield found
    found.stop()


@pytest.fixture
def loops(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> HandLoops:
    """Return what moves the process on, in this thread; to be asked for before the process."""
    return HandLoops(clock, monkeypatch)


def post(process: SenderProcess, url: str, number: int = 1, **fields: Any) -> "Future[Delivery | Checked]":
    """Send a message to a URL."""
    told = replace(message(), sequence=number)
    return process.ask(Send(Address("oncall", url=url), told, NOW, **fields))


def result(future: "Future[Delivery | Checked]") -> Delivery:
    """Wait for a delivery."""
    found = future.result(SECONDS)
    assert isinstance(found, Delivery)
    return found


def answers(process: SenderProcess) -> bool:
    """Wait for an answer of the process, before which it has reported all that came earlier."""
    return result(process.ask(Send(Address("terminal"), message(), NOW))).delivered


def is_done(future: "Future[Delivery | Checked]", loops: HandLoops) -> bool:
    """Advance the clock by a second, and return whether a request has its result."""
    loops.advance(1)
    return future.done()


def pids() -> list[int]:
    """Return the ids of the sender processes, of which one may have ended just now."""
    commands = {one: Path(f"/proc/{one}/cmdline").read_text().split("\0") for one in started_by(os.getpid())}
    return [one for one, words in commands.items() if protocol.COMMAND in words]


def pid() -> int:
    """Wait for the process, and return its id."""
    (found,) = eventually(lambda: pids() if len(pids()) == 1 else [])
    return found


def kill(clock: HandClock) -> None:
    """Kill the process, and wait for the next one, for which some time may have to pass."""
    first = pid()
    os.kill(first, signal.SIGKILL)

    def is_another() -> bool:
        clock.pass_seconds(1)
        return pids() not in ([], [first])

    eventually(is_another)


def test_a_kill_before_the_start_loses_nothing(
    process: SenderProcess, clock: HandClock, receiver: Receiver
) -> None:
    """Messages wait for a process that is ready."""
    futures = [post(process, f"json://{receiver.authority}/", number) for number in range(5)]
    for _ in range(2):
        kill(clock)
    assert all(result(future).delivered for future in futures)
    assert len(receiver.requests) == 5


def test_a_process_that_hangs_is_replaced(
    loops: HandLoops, process: SenderProcess, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """One that answers nothing for 300 s; what was not begun is repeated."""
    process.prepare()
    loops.settle()
    assert answers(process)
    first = pid()
    os.kill(first, signal.SIGSTOP)
    future = post(process, f"json://{receiver.authority}/")
    loops.advance(299)
    assert (pid(), caplog.messages) == (first, [])
    loops.advance(1)
    eventually(partial(is_done, future, loops))
    assert result(future).delivered
    assert caplog.messages[0] == "the sender process hangs and is replaced"
    ended = vars(caplog.records[-1])
    assert ended["message"] == "the sender process ended"
    assert (ended["status"], ended["requests"]) == (-signal.SIGKILL, 1)
    assert len(receiver.requests) == 1


def children() -> list[int]:
    """Return the ids of the children of the process, oldest first."""
    return sorted(started_by(pid()))


def test_what_is_not_sent_is_repeated_by_another_child(process: SenderProcess, receiver: Receiver) -> None:
    """A child that ends before it has sent anything loses nothing; others do not notice."""
    process.prepare()
    url = f"json://{receiver.authority}/"
    assert result(post(process, url)).delivered
    (first,) = children()
    os.kill(first, signal.SIGSTOP)
    bad = post(process, url, 2)
    good = process.ask(Send(Address("other", url=url), message(), NOW))
    assert result(good).delivered
    os.kill(first, signal.SIGKILL)
    assert result(bad).delivered
    assert len(receiver.requests) == 3


def silent(requests: list[bytes]) -> contextlib.AbstractContextManager[Receiver]:
    """Lend a receiver that keeps what it gets and never answers."""

    def take(body: bytes) -> str:
        requests.append(body)
        return "hang"

    return http_receiver(take)


def apprise_file(folder: Path, *receivers: Receiver) -> Address:
    """Return the address of all these receivers in a file of Apprise's."""
    file = folder / "apprise.yml"
    urls = "".join(f"  - json://{one.authority}/: [{{tag: all}}]\n" for one in receivers)
    file.write_text(f"urls:\n{urls}")
    return Address("oncall", apprise_config=(str(file), "all"))


@pytest.mark.parametrize(
    ("ends", "reason"),
    [(children, "its answer ended its process (-9)"), (lambda: [pid()], "the sender process ended")],
)
def test_what_was_being_sent_is_not_repeated(
    process: SenderProcess,
    receiver: Receiver,
    tmp_path: Path,
    ends: Callable[[], list[int]],
    reason: str,
) -> None:
    """A process that ends meanwhile leaves it unanswered; what some of several services have is known.

    Later messages go out by another process.
    """
    got: list[bytes] = []
    with silent(got) as hanging:
        address = apprise_file(tmp_path, receiver, hanging)
        future = process.ask(Send(address, message(), NOW, services=("another",)))
        eventually(lambda: got and receiver.requests)
        assert answers(process)
        found, *_ = ends()
        os.kill(found, signal.SIGKILL)
        delivery = result(future)
    assert (delivery.delivered, delivery.failure) == (False, Failure.UNANSWERED)
    assert delivery.reason == reason
    assert (delivery.services[0], len(delivery.services)) == ("another", 2)
    assert result(post(process, f"json://{receiver.authority}/")).delivered
    assert len(receiver.requests) == 2


def test_a_file_that_was_edited(process: SenderProcess, receiver: Receiver, tmp_path: Path) -> None:
    """After a check, as at a reload, messages go to the services that are in Apprise's file now."""
    with http_receiver() as other:
        for expected in (receiver, other):
            address = apprise_file(tmp_path, expected)
            assert process.ask(CheckTarget(address)).result(SECONDS) == Checked(incidents=False, services=1)
            assert result(process.ask(Send(address, message(), NOW))).delivered
        assert (len(receiver.requests), len(other.requests)) == (1, 1)


def test_a_target_that_hangs_leaves_room_for_others(process: SenderProcess, receiver: Receiver) -> None:
    """It gets two of four children, and fewer while others have some."""
    got: dict[str, list[bytes]] = {"first": [], "second": []}
    with contextlib.ExitStack() as stack:
        for name, requests in got.items():
            url = f"json://{stack.enter_context(silent(requests)).authority}/"
            for number in range(6):
                told = replace(message(), sequence=number)
                process.ask(Send(Address(name, url=url), told, NOW))
        eventually(lambda: [len(one) for one in got.values()] == [2, 1])
        failed = post(process, f"json://{receiver.authority}/", failed=True)
        assert result(post(process, f"json://{receiver.authority}/", 2)).delivered
        assert result(failed).delivered
        assert [len(one) for one in got.values()] == [2, 1]
        process.stop()


def test_targets_that_hang_make_room_for_one_that_waits(receiver: Receiver) -> None:
    """While all children wait for answers, one of them gives up early, and no more than are needed."""
    with contextlib.ExitStack() as stack:
        urls = [f"json://{stack.enter_context(silent([])).authority}/" for _ in range(4)]
        urls.append(f"json://{receiver.authority}/")
        sends = [Send(Address(f"target {n}", url=url), message(), NOW) for n, url in enumerate(urls)]
        found = served("pool._CROWDED_SECONDS = 0.5", *sends, results=8)
    ended = [one for one in found if isinstance(one, Delivery)]
    assert ended[0] == Delivery(False, "it did not answer within 0.5 s", Failure.UNANSWERED)
    assert [one.delivered for one in ended[1:]] == [True]
    assert len(receiver.requests) == 1


def test_only_targets_that_hung_before_wait_for_each_other(
    process: SenderProcess, receiver: Receiver
) -> None:
    """They share two children; one that refused a connection, or could not serve, is tried at once."""
    got: list[bytes] = []
    with silent(got) as hanging:
        for name in ("first", "second", "third"):
            address = Address(name, url=f"json://{hanging.authority}/")
            process.ask(Send(address, message(), NOW, failed=True, hangs=True))
        eventually(lambda: len(got) == 2)
        assert result(post(process, f"json://{receiver.authority}/", failed=True)).delivered
        assert len(got) == 2
        process.stop()


def test_a_template_that_does_not_end_gives_way(process: SenderProcess, receiver: Receiver) -> None:
    """The message goes out in the built-in words, and later ones at once; other messages are not delayed."""
    # `9 ** (9 ** 9)` is one call of C, in which only the system can end a process.
    endless = Templates(title="{{ event.id }}", body="{{ 9 ** (9 ** 9) }}")
    bad = post(process, f"json://{receiver.authority}/bad", templates=endless)
    address = Address("other", url=f"json://{receiver.authority}/good")
    assert result(process.ask(Send(address, message(), NOW))).delivered
    found = result(bad)
    assert found.delivered
    assert found.remarks == {"body": "takes more than 2 s of CPU time"}
    assert [one.path for one in receiver.requests] == ["/good", "/bad"]
    assert "The VM reboots." in receiver.requests[1].json["message"]
    assert receiver.requests[1].json["title"] == REBOOT_ID
    assert result(post(process, f"json://{receiver.authority}/bad", 2, templates=endless)).delivered


def test_an_endless_template_is_a_mistake(process: SenderProcess) -> None:
    """Also in a call of C; a child that ends for another reason is none."""
    endless = process.ask(CheckTemplate("body", Templates(body="{{ 9 ** (9 ** 9) }}")))
    assert endless.result(SECONDS) == Checked("takes more than 2 s of CPU time")
    immense = (
        "{% set ns = namespace(s='xxxx') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"
    )
    found = process.ask(CheckTemplate("body", Templates(body=immense))).result(SECONDS)
    assert found == Checked("takes too much memory; tried with transition advised")
    (stopped,) = children()
    os.kill(stopped, signal.SIGSTOP)
    good = process.ask(CheckTemplate("body", Templates(body="x")))
    os.kill(stopped, signal.SIGKILL)
    assert good.result(SECONDS) == Checked()


def test_what_always_ends_its_child() -> None:
    """After three children a check has no result; a message is tried again later."""
    ended = "the process for it ended"
    check, told = CheckTarget(Address("a", url="json://h/")), Send(Address("a"), message(), NOW)
    found = served("pool.child.serve = lambda *_: None", check, told)
    assert found == [Ready(), Checked(failure=ended), Delivery(False, ended)]


def served(code: str, *requests: Request, results: int = 0) -> list[Result]:
    """Return what the sender process answers, in the order of requests; ``code`` changes ``pool``."""
    main = f"from exporter.outputs.notifications import pool; {code}; pool.main()"
    command = [sys.executable, "-c", main, protocol.COMMAND]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        for number, request in enumerate(requests, 1):
            process.stdin.write(protocol.line(number, request))
        process.stdin.flush()
        count = 1 + (results or len(requests))
        lines = [protocol.parts_of(process.stdout.readline()) for _ in range(count)]
        process.stdin.close()
    return [protocol.result_of(data) for _, data in sorted(lines, key=lambda one: one[0])]


def test_without_fork_a_child_is_a_program(receiver: Receiver) -> None:
    """As on Windows: it renders and sends."""
    url = f"json://{receiver.authority}/"
    sends = [Send(Address("a", url=url), replace(message(), sequence=n), NOW) for n in (1, 2)]
    found = served("pool.Pool.__init__.__kwdefaults__['forks'] = False", *sends, results=6)
    assert [one.delivered for one in found if isinstance(one, Delivery)] == [True, True]
    assert len(receiver.requests) == 2


@pytest.mark.parametrize(
    ("command", "reason"),
    [(["/none"], "No such file or directory"), ([sys.executable, "-c", "exit(3)"], "it ended with status 3")],
)
def test_a_process_that_cannot_be_started(
    loops: HandLoops,
    process: SenderProcess,
    health: Health,
    *,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    reason: str,
) -> None:
    """After three attempts a check has no result; the exporter is degraded, and messages wait for it."""
    check = process.ask(CheckTarget(Address("a", url="json://h/")))
    told = process.ask(Send(Address("terminal"), message(), NOW))
    problem = f"the sender process cannot be started: {reason}"
    attempts, needed = Mock(return_value=command), list[int]()
    check.add_done_callback(lambda _: needed.append(attempts.call_count))
    with monkeypatch.context() as patch:
        patch.setattr(protocol, "command", attempts)
        eventually(partial(is_done, check, loops))
    assert (check.result(), needed) == (Checked(failure=problem), [3])
    assert [one.message for one in health.problems()] == [problem]
    eventually(partial(is_done, told, loops))
    assert result(told).delivered
    assert health.problems() == ()


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
    good = Address("good", url=f"json://{receiver.authority}/")
    assert result(process.ask(Send(good, message(), NOW))).delivered
    first = pid()
    before = resident(first)
    with server() as url:
        bad = post(process, url)
        assert result(process.ask(Send(good, message(), NOW))).delivered
        found = result(bad)
    assert (found.delivered, found.failure) == (False, Failure.UNANSWERED)
    assert found.reason in ("its answer is too large", "its answer takes more than 2 s of CPU time")
    assert pid() == first
    assert resident(first, "VmHWM") - before < 2


def test_a_receiver_that_drips_ends_with_its_time(receiver: Receiver) -> None:
    """Its child is killed."""
    receiver.mood = "drip"
    told = Send(Address("oncall", url=f"json://{receiver.authority}/"), message(), NOW)
    found = served("pool._SEND_SECONDS = 0.3", told, results=2)[-1]
    assert found == Delivery(False, "it did not answer within 0.3 s", Failure.UNANSWERED)


def limits_of(proc: Path, name: str = "") -> list[list[str]]:
    """Return the limits of a process: each soft and hard, with its unit."""
    lines = (proc / "limits").read_text().splitlines()
    return [line.split()[-3:] for line in lines if line.startswith(name)]


def test_the_process_has_no_secret_in_its_environment(process: SenderProcess) -> None:
    """Nor on its command line; URLs go through the pipe. It has limits, and ends with the exporter alone."""
    passed = {"HTTPS_PROXY": "p", "no_proxy": "n", "SSL_CERT_FILE": "f", "LC_ALL": "C", "SystemRoot": "s"}
    others = {"MY_TOKEN": "canary", "OTEL_X": "canary", "NOTIFY_SOCKET": "s", "A_SERVICE_HOST": "h"}
    assert environment({**passed, **others, "HTTP_PROXY": "canary"}, {"HTTP_PROXY"}) == passed
    assert answers(process)
    proc = Path(f"/proc/{pid()}")
    if proc.exists():
        sockets = [link for link in (proc / "fd").iterdir() if "socket" in str(link.readlink())]
        assert sockets == []
        assert os.getsid(pid()) != os.getsid(0)
        own = int(Path("/proc/self/oom_score_adj").read_text())
        assert int((proc / "oom_score_adj").read_text()) == min(own + 500, 1000)
        assert ["0", "0", "bytes"] in limits_of(proc)
        (started,) = children()
        forked = Path(f"/proc/{started}")
        assert int((forked / "oom_score_adj").read_text()) == min(own + 700, 1000)
        (most,) = (int(line[0]) for line in limits_of(forked, "Max data size"))
        data = int((proc / "statm").read_text().split()[5]) * resource.getpagesize()
        assert most <= data + 20 * 2**20
        assert [
            link.readlink() for link in (forked / "fd").iterdir() if "socket" in str(link.readlink())
        ] == []
    first = pid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(first, number)
    assert answers(process)
    assert pid() == first


def test_what_plugins_print_is_no_answer() -> None:
    """It would be taken for one, as answers go through standard output."""
    code = "pool.Pool.run = lambda *_: print('not an answer', flush=True); pool.main()"
    command = [sys.executable, "-c", f"from exporter.outputs.notifications import pool; {code}"]
    assert subprocess.check_output(command) == b""


def test_a_stop_leaves_no_process(process: SenderProcess) -> None:
    """It is waited for; a request that comes later has a result at once."""
    assert answers(process)
    process.stop()
    assert pids() == []
    assert result(post(process, "json://h/")) == Delivery(False, "the exporter is stopping")


def test_an_idle_process_ends(loops: HandLoops, process: SenderProcess) -> None:
    """It does ten minutes after the last message; the next one starts another."""
    process.prepare()
    loops.settle()
    assert answers(process)
    loops.advance(300)
    assert answers(process)
    loops.advance(599)
    first = pid()
    loops.advance(1)
    eventually(lambda: pids() == [])
    again = process.ask(Send(Address("terminal"), message(), NOW))
    loops.settle()
    assert result(again).delivered
    assert pid() != first
