"""Tests of the sender process: kills, messages that end it, hostile receivers and templates."""

import contextlib
import gzip
import io
import os
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

import pytest
from msgspec.structs import replace

from exporter.config import Templates
from exporter.config.addresses import Address
from exporter.health import Health
from exporter.model.messages import Delivery, Failure
from exporter.notifications import child as child_module
from exporter.notifications import protocol, sender
from exporter.notifications.child import Child
from exporter.notifications.protocol import Checked, CheckTarget, CheckTemplate, Ready, Result, Send
from exporter.notifications.sender import SenderProcess, environment
from tests.clocks import NOW, HandClock
from tests.end_to_end.program import eventually, resident
from tests.http_server import Connection, Request, endless, serving
from tests.notifications.messages import message
from tests.notifications.receivers import Receiver, http_receiver
from tests.notifications.renderers import LIMITS

SECONDS = 120
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def process(clock: HandClock) -> Iterator[SenderProcess]:
    """Lend a process that is not started yet."""
    found = SenderProcess(clock, Health(clock), dict(os.environ))
    yield found
    found.stop()


def post(process: SenderProcess, url: str, number: int = 1, **fields: Any) -> "Future[Delivery | Checked]":
    """Send a message to a URL."""
    told = replace(message(), sequence=number)
    return process.ask(Send(Address("oncall", url=url), (told,), NOW, **fields))


def result(future: "Future[Delivery | Checked]") -> Delivery:
    """Wait for a delivery."""
    found = future.result(SECONDS)
    assert isinstance(found, Delivery)
    return found


def pid(process: SenderProcess) -> int:
    """Wait for the process, and return its id."""

    def ready() -> int:
        found = process._process
        return found.pid if found is not None and process._is_ready else 0

    return int(eventually(ready))


def read(answers: io.BytesIO) -> list[tuple[int, Result]]:
    """Return the results in what a process wrote, by their numbers."""
    copy = io.BytesIO(answers.getvalue())
    frames = iter(partial(protocol.read, copy), None)
    found = [(number, protocol.result_of(data)) for number, data in frames]
    return sorted(found, key=lambda one: one[0])


def is_another(process: SenderProcess, clock: HandClock, old: object) -> bool:
    """Return whether a new process has been started, for which some time may have to pass."""
    clock.pass_seconds(1)
    return process._process not in (None, old)


def test_a_message_without_an_address_comes_back_rendered(process: SenderProcess) -> None:
    """The demo shows it on its terminal."""
    found = result(process.ask(Send(Address("terminal"), (message(),), NOW)))
    assert found.delivered
    assert found.rendered is not None
    assert "Reboot scheduled" in found.rendered.title


def test_how_long_to_wait_is_told(process: SenderProcess) -> None:
    """By the answer to a plugin and to a webhook; of several services the longest counts, on any thread."""
    with http_receiver(429) as busy, http_receiver(503) as down:
        busy.answer_headers, down.answer_headers = {"Retry-After": "7"}, {"retry-after": "0090"}
        webhook = process.ask(Send(Address("oncall", webhook=f"http://{busy.authority}/"), (message(),), NOW))
        url = f"json://{busy.authority}/"
        both = f"{url} form://{down.authority}/"
        waits = [result(future).retry_after for future in (webhook, post(process, url), post(process, both))]
        assert waits == [7.0, 7.0, 90.0]
        busy.answer_headers = {}
        assert result(post(process, url)).retry_after is None


def test_every_request_has_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that cannot be read, and one whose result cannot be written: the exporter waits for it."""
    answers = io.BytesIO()
    child = Child(answers)
    results: Iterator[Checked | MemoryError] = iter([Checked(problem="\ud800"), Checked(), MemoryError()])

    def answer(*_: object) -> Checked:
        found = next(results)
        if isinstance(found, MemoryError):
            raise found
        return found

    monkeypatch.setattr(child, "result", answer)
    monkeypatch.setattr(child_module, "_MOST_THREADS", 1)
    requests = io.BytesIO()
    for number, content in enumerate([{}, *[CheckTarget(Address("a"))] * 3], 1):
        protocol.write(requests, number, content)
    child.serve(io.BytesIO(requests.getvalue()))
    eventually(lambda: len(read(answers)) == 5)
    assert dict(read(answers)) == {
        0: Ready(),
        1: Delivery(False, "ValidationError in the sender process"),
        2: Delivery(False, "UnicodeEncodeError in the sender process"),
        3: Checked(),
        4: Delivery(False, "it takes too much memory", Failure.UNANSWERED),
    }


def test_a_request_waits_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """While there is no room for another one nothing is lost: the first exists before requests are taken."""

    class Refused(threading.Thread):
        def start(self) -> None:
            if answers.getvalue():
                raise RuntimeError("can't start new thread")
            super().start()

    answers, requests = io.BytesIO(), io.BytesIO()
    child = Child(answers)
    monkeypatch.setattr(child, "result", lambda *_: Checked())
    for number in (1, 2):
        protocol.write(requests, number, CheckTarget(Address("a")))
    monkeypatch.setattr(threading, "Thread", Refused)
    child.serve(io.BytesIO(requests.getvalue()))
    eventually(lambda: len(read(answers)) == 3)
    assert read(answers) == [(0, Ready()), (1, Checked()), (2, Checked())]


def test_a_kill_repeats_nothing_that_was_being_sent(
    process: SenderProcess, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """What is not answered by then is reported; later messages go out by another process."""
    with http_receiver("hang") as hanging:
        future = post(process, f"json://{hanging.authority}/")
        first = pid(process)
        eventually(lambda: any(one.is_sending for one in process._under_way.values()))
        os.kill(first, signal.SIGKILL)
        assert result(future) == Delivery(False, "the sender process ended", Failure.ENDED)
    (logged,) = map(vars, caplog.records)
    assert (logged["message"], logged["status"]) == ("the sender process ended", -signal.SIGKILL)
    assert logged["requests"] == 1
    assert result(post(process, f"json://{receiver.authority}/")).delivered
    assert pid(process) != first
    assert len(receiver.requests) == 1


def test_a_kill_before_the_start_loses_nothing(
    process: SenderProcess, clock: HandClock, receiver: Receiver
) -> None:
    """Messages wait for a process that is ready."""
    futures = [post(process, f"json://{receiver.authority}/", number) for number in range(5)]
    eventually(lambda: process._process)
    for _ in range(2):
        old = process._process
        assert old is not None
        old.kill()
        eventually(partial(is_another, process, clock, old))
    assert all(result(future).delivered for future in futures)
    assert len(receiver.requests) == 5


def test_a_process_that_hangs_is_replaced(
    process: SenderProcess, clock: HandClock, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """A request that is not begun within 20 s is repeated; pauses of the VM do not count."""
    process.prepare()
    first = pid(process)
    os.kill(first, signal.SIGSTOP)
    future = post(process, f"json://{receiver.authority}/")
    for _ in range(10):
        clock.pass_seconds(100)
        assert process._step() == 1
    assert (pid(process), caplog.messages) == (first, [])
    clock.pass_seconds(1)
    process._step()
    assert result(future).delivered
    found = list(dict.fromkeys(caplog.messages))
    assert found == ["the sender process hangs and is replaced", "the sender process ended"]
    assert len(receiver.requests) == 1


READY = """print('[0,{"type":"ready"}]', flush=True); input()"""


@pytest.mark.parametrize("code", [READY, f"{READY}; print('{{}}', flush=True); input(); input()"])
def test_what_ends_the_process_before_it_is_sent(
    process: SenderProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    """It is tried three times, also if the process answers nonsense."""
    monkeypatch.setattr(sender, "command", lambda: [sys.executable, "-c", code])
    ended = Delivery(False, "the sender process ended 3 times", Failure.ENDED, attempts=3)
    assert result(post(process, "json://h/")) == ended
    assert caplog.messages == ["the sender process ended"] * 3
    checked = process.ask(CheckTarget(Address("a", url="json://h/"))).result(SECONDS)
    assert checked == Checked(failure="the sender process ended")


def test_only_one_at_a_time_may_end_the_process(process: SenderProcess, receiver: Receiver) -> None:
    """Of messages after whose sending it ended before; others go ahead."""
    process.prepare()
    os.kill(pid(process), signal.SIGSTOP)
    futures = [post(process, f"json://{receiver.authority}/", n, attempts=int(n < 3)) for n in (1, 2, 3)]
    assert [list(process._under_way), list(process._waiting)] == [[1, 3], [2]]
    os.kill(pid(process), signal.SIGCONT)
    assert all(result(future).delivered for future in futures)


def test_what_ends_the_process_three_times_is_given_up(process: SenderProcess, receiver: Receiver) -> None:
    """It is found among others, which are sent."""
    # `9 ** (9 ** 9)` is one call of C, in which only the system can end a process.
    endless = Templates(body="{{ 9 ** (9 ** 9) }}")
    bad = post(process, f"json://{receiver.authority}/bad", templates=endless)
    good = [post(process, f"json://{receiver.authority}/good", number) for number in range(3)]
    assert all(result(future).delivered or result(future).failure is Failure.ENDED for future in good)
    assert result(bad).delivered
    (request,) = (one for one in receiver.requests if one.path == "/bad")
    assert "The VM reboots." in request.json["message"]


def test_an_endless_template_is_a_mistake(process: SenderProcess) -> None:
    """Also in a call of C; a process that ends for another reason is none."""
    endless = process.ask(CheckTemplate("body", Templates(body="{{ 9 ** (9 ** 9) }}")))
    assert endless.result(SECONDS) == Checked("takes more than 1 s of CPU time")
    immense = (
        "{% set ns = namespace(s='xxxx') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"
    )
    found = process.ask(CheckTemplate("body", Templates(body=immense))).result(SECONDS)
    assert found == Checked("takes too much memory")
    stopped = pid(process)
    os.kill(stopped, signal.SIGSTOP)
    good = process.ask(CheckTemplate("body", Templates(body="x")))
    eventually(lambda: process._under_way)
    os.kill(stopped, signal.SIGKILL)
    assert good.result(SECONDS) == Checked()


@pytest.mark.parametrize(
    ("command", "reason"),
    [(["/none"], "No such file or directory"), ([sys.executable, "-c", "exit(3)"], "it ended with status 3")],
)
def test_a_process_that_cannot_be_started(
    process: SenderProcess, clock: HandClock, monkeypatch: pytest.MonkeyPatch, command: list[str], reason: str
) -> None:
    """After three attempts a check has no result; the exporter is degraded, and messages wait for it."""
    monkeypatch.setattr(process._loop, "start", lambda: None)
    check = process.ask(CheckTarget(Address("a", url="json://h/")))
    told = process.ask(Send(Address("terminal"), (message(),), NOW))
    problem = f"the sender process cannot be started: {reason}"
    with monkeypatch.context() as patch:
        patch.setattr(sender, "command", lambda: command)
        for failures in (1, 2, 3):
            assert not check.done()
            process._step()
            eventually(lambda: process._backoff.failures == failures)  # noqa: B023  # called at once
            assert process._step() == process._start_at - clock.monotonic() >= 1
            clock.pass_seconds(4)
    assert check.result(SECONDS) == Checked(failure=problem)
    assert [one.message for one in process._health.problems()] == [problem]
    process._step()
    assert result(told).delivered
    assert (process._health.problems(), process._backoff.failures) == ((), 0)


def bomb(connection: Connection, _: Request) -> None:
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
def web_server(respond: Callable[[Connection, Request], None]) -> Iterator[str]:
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
    """The message may have arrived; others are sent meanwhile, and the process barely grows."""
    good = f"json://{receiver.authority}/"
    assert result(post(process, good)).delivered
    first = pid(process)
    before = resident(first)
    with server() as url:
        bad = post(process, url)
        assert result(post(process, good, 2)).delivered
        assert result(bad) == Delivery(False, "its answer is too large", Failure.UNANSWERED)
    assert pid(process) == first
    assert resident(first, "VmHWM") - before < 20


def test_a_receiver_that_drips_ends_with_its_time(receiver: Receiver) -> None:
    """No thread is left behind, and another message goes out."""
    from exporter.notifications import failures
    from tests.notifications.senders import Direct

    receiver.mood = "drip"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failures, "_SEND_SECONDS", 0.3)
        found = Direct(f"json://{receiver.authority}/").send(message())
    assert found == Delivery(False, "it did not answer within 0.3 s", Failure.UNANSWERED)
    receiver.mood = 200
    assert Direct(f"json://{receiver.authority}/").send(message()).delivered


def test_a_limit_of_cpu_time_ends_with_its_block() -> None:
    """The signal that ends the process would come a second after the limit, and does not after the block."""
    with LIMITS.cpu(5):
        assert 5 < signal.getitimer(signal.ITIMER_PROF)[0] <= 6.1
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)


def test_the_process_has_no_secret_in_its_environment(process: SenderProcess) -> None:
    """Nor on its command line; URLs go through the pipe. It has limits, and ends with the exporter alone."""
    passed = {"HTTPS_PROXY": "p", "no_proxy": "n", "SSL_CERT_FILE": "f", "LC_ALL": "C", "SystemRoot": "s"}
    others = {"MY_TOKEN": "canary", "OTEL_X": "canary", "NOTIFY_SOCKET": "s", "A_SERVICE_HOST": "h"}
    assert environment({**passed, **others, "HTTP_PROXY": "canary"}, {"HTTP_PROXY"}) == passed
    process.prepare()
    proc = Path(f"/proc/{pid(process)}")
    if proc.exists():
        sockets = [link for link in (proc / "fd").iterdir() if "socket" in str(link.readlink())]
        assert sockets == []
        assert os.getsid(pid(process)) != os.getsid(0)
        own = int(Path("/proc/self/oom_score_adj").read_text())
        assert int((proc / "oom_score_adj").read_text()) == min(own + 500, 1000)
        limits = [line.split()[-3:] for line in (proc / "limits").read_text().splitlines()]
        assert ["0", "0", "bytes"] in limits
        assert [str(72 * 2**20)] * 2 + ["bytes"] in limits
    first = pid(process)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(first, number)
    assert result(process.ask(Send(Address("terminal"), (message(),), NOW))).delivered
    assert pid(process) == first


def test_what_plugins_print_is_no_answer() -> None:
    """It would be taken for one, as answers go through standard output."""
    code = "child.Child.serve = lambda *_: print('not an answer', flush=True); child.main()"
    command = [sys.executable, "-c", f"from exporter.notifications import child; {code}"]
    assert subprocess.check_output(command) == b""


def test_a_stop_leaves_no_process(process: SenderProcess) -> None:
    """It is waited for; a request that comes later has a result at once."""
    process.prepare()
    pid(process)
    running = process._process
    assert running is not None
    process.stop()
    assert running.returncode is not None
    assert result(post(process, "json://h/")) == Delivery(False, "the exporter is stopping")


def test_an_idle_process_ends(process: SenderProcess, clock: HandClock) -> None:
    """It does ten minutes after the last message; the next one starts another."""
    process.prepare()
    running = process._process if pid(process) else None
    assert running is not None
    assert process._step() == 600
    clock.pass_seconds(300)
    assert result(process.ask(Send(Address("terminal"), (message(),), NOW))).delivered
    clock.pass_seconds(599)
    assert process._step() == 1
    clock.pass_seconds(1)
    assert process._step() is None
    assert running.wait(SECONDS) == 0
    assert process._process is None
