"""What must hold whatever comes in: one probe for each way in, which fails where a promise is broken.

A probe takes bytes, as a file of the corpus holds them. It may be called any number of times.
"""

import io
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from logging.handlers import BufferingHandler
from pathlib import Path
from unittest.mock import patch

import bcrypt
import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from exporter import app
from exporter.commands import check_config
from exporter.config import Hook, Overrides, Route, Rule, Templates
from exporter.errors import ConfigurationError, ImdsError
from exporter.health import Health
from exporter.logs import FieldsFormatter
from exporter.metrics import Metrics, SnapshotCollector
from exporter.model.advance import advance
from exporter.model.documents import decode_document
from exporter.model.events import Affected
from exporter.model.lifecycle import Step, WatchState
from exporter.model.messages import Message
from exporter.model.views import Snapshot, by_urgency
from exporter.outputs.approval.approver import attempts_counter
from exporter.outputs.notifications import checking
from exporter.outputs.notifications.outbox import Outbox, job_of
from exporter.outputs.notifications.planning import Plan
from exporter.serving.addresses import listen
from exporter.serving.server import Server
from exporter.state.store import Store
from exporter.watch.watch import log_transition
from exporter.web import webfile
from exporter.web.webfile import WebSettings
from tests.bench.senders import MemorySender
from tests.builders import body, scheduled
from tests.clocks import NOW, HandClock
from tests.faults.fuzz_inputs import CANARY
from tests.outputs.notifications.sending import rendered
from tests.web import support
from tests.web.certificates import Pki

Probe = Callable[[bytes], None]
LONGEST_MESSAGE = 10_000
_MOST_RECORDS = 1_000_000
# The sample's file with a URL.
CHAT = "/etc/azure-scheduled-events-exporter/chat"
PLAN = Plan([Route(("someone",))])
HEALTHY = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def document(answer: bytes) -> None:
    """Go all the way of a document: state, metrics in both formats, page, API, messages, log lines."""
    clock = HandClock()
    known, steps, messages = WatchState(), list[Step](), list[Message]()
    with logged("exporter", logging.INFO) as log:
        for listed in (body(), answer, body(incarnation=9)):
            try:
                found = decode_document(listed)
            except ImdsError:
                continue
            steps.append(advance(known, found, NOW, instance="WestNO_0", watching=True))
            known = steps[-1].state
            messages += PLAN.compose(steps[-1].occurrences, instance="WestNO_0", now=NOW)
            for occurrence in steps[-1].occurrences:
                log_transition(occurrence, "WestNO_0")
            _look(known)
    for record in log:
        for style in ("logfmt", "json"):
            line = FieldsFormatter(style).format(record)
            assert line.isprintable(), line
            assert record.exc_info is None, line
    _write_down(steps, messages, clock)
    templates = [Templates(format=style) for style in ("markdown", "html", "text")]
    for message in messages:
        for one in templates:
            shown = rendered(message, templates=one)
            (shown.title + shown.body).encode()


def _look(known: WatchState) -> None:
    past = tuple(reversed(known.past.values()))
    snapshot = Snapshot(
        current=by_urgency(known.current.values()), past=past, all_events=True, resources=True
    )
    registry = CollectorRegistry()
    scene = support.Scene(snapshot)
    registry.register(SnapshotCollector(scene))
    for families in (
        text_string_to_metric_families(generate_latest(registry).decode()),
        openmetrics_parser.text_string_to_metric_families(openmetrics.generate_latest(registry).decode()),
    ):
        series = [(s.name, tuple(sorted(s.labels.items()))) for family in families for s in family.samples]
        assert len(series) == len(set(series))
    assert support.ask(scene, "/").status == 200
    for path in ("/api/v1/events", "/api/v1/status"):
        msgspec.json.decode(support.ask(scene, path).body)


def _write_down(steps: Sequence[Step], messages: Sequence[Message], clock: HandClock) -> None:
    health = Health(clock)
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder), health=health, clock=clock)
        try:
            for step in steps:
                store.record(step, map(job_of, messages))
            assert store.load() == steps[-1].state
            store.jobs("notifications", Outbox).first("someone", 1000)
        finally:
            store.close()
    assert health.problems() == ()


def configuration(text: bytes) -> None:
    """Read a configuration; where it is taken, its names fit the metrics and its matches can be asked."""
    file = _written(text, "config.yml")
    try:
        found = app.load(file, Overrides())
    except ConfigurationError as error:
        _is_told(error, file)
        return
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.deliveries.expect(target.name for target in found.notifications.targets)
    attempts = attempts_counter(metrics.registry)
    for rule in found.approval.rules:
        attempts.expect(rule.name)
    metrics.hooks.expect(hook.name for hook in found.hooks)
    generate_latest(registry)
    owners: tuple[Route | Rule | Hook, ...] = (
        *found.notifications.routes,
        *found.approval.rules,
        *found.hooks,
    )
    for match in (found.in_service.match, *(owner.match for owner in owners)):
        match.holds(scheduled(), target=Affected.SELF, now=NOW)


def web_configuration(text: bytes) -> None:
    """Read a web configuration, beside the certificates that it may name."""
    file = _written(text, "web.yml")
    try:
        webfile.load(file)
    except ConfigurationError as error:
        _is_told(error, file)


def _is_told(error: ConfigurationError, file: Path) -> None:
    assert str(error).startswith(f"{file}:"), error
    assert str(error).isprintable(), error
    assert len(str(error)) < LONGEST_MESSAGE + len(file.read_bytes())


def secrets(text: bytes) -> None:
    """Check what has canaries for its secrets as both kinds of configuration: nothing repeats one."""
    text = text.replace(CHAT.encode(), str(_written(b"json://a", "chat")).encode())
    file, web_file = _written(text, "config.yml"), _written(text, "web.yml")
    sender, said = _sender(), io.StringIO()
    with (
        logged("exporter", logging.DEBUG) as log,
        patch.object(checking, "SenderProcess", lambda *_: sender),
        patch.dict(os.environ, {"ONCALL_URL": f"json://alice:{CANARY}@example.com/{CANARY}"}),
        redirect_stdout(said),
        redirect_stderr(said),
    ):
        check_config.check_files([file], web_file)
    lines = said.getvalue().splitlines()
    lines += [FieldsFormatter(style).format(record) for record in log for style in ("logfmt", "json")]
    for line in lines:
        assert line.isprintable(), line
        assert CANARY not in line, line
    assert not any(record.exc_info for record in log), lines


@cache
def _sender() -> MemorySender:
    """Make a sender process, once: it is this process, which saves its start for each file."""
    return MemorySender(is_real=True)


def request(sent: bytes) -> None:
    """Send bytes to the web server, open to all and with a password: it answers in HTTP, and continues."""
    with logged("", logging.WARNING) as log:
        for port in ports():
            answer = exchange(port, sent)
            assert not answer or answer.startswith(b"HTTP/1.1 "), answer[:200]
            assert b"HTTP/1.1 5" not in answer, answer[:200]
            assert exchange(port, HEALTHY).startswith((b"HTTP/1.1 200", b"HTTP/1.1 401"))
    said = {record.getMessage() for record in log}
    # Whoever sends a password may have guessed it.
    assert said <= {"failed logins"}, said


def exchange(port: int, sent: bytes) -> bytes:
    """Send, listen for a moment, say that no more comes, and take what there is to the end."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as peer, suppress(ConnectionError):
        peer.sendall(sent)
        peer.settimeout(0.01)
        with suppress(TimeoutError):
            answer += peer.recv(2**20)
        # Whoever has cut the connection leaves nothing to shut down.
        with suppress(OSError):
            peer.shutdown(socket.SHUT_WR)
        peer.settimeout(30)
        while part := peer.recv(2**20):
            answer += part
    return answer


@cache
def ports() -> tuple[int, int]:
    """Start both servers, once in a process; they end with it."""
    users = {"alice": bcrypt.hashpw(b"secret", bcrypt.gensalt(4))}
    applications = [
        support.application(reload=lambda: None),
        support.application(settings=lambda: WebSettings(users=users)),
    ]
    servers = [Server(application, listen("127.0.0.1:0")) for application in applications]
    for server in servers:
        server.start()
    return servers[0].port, servers[1].port


@cache
def _folder() -> tuple["tempfile.TemporaryDirectory[str]", Path]:
    folder = tempfile.TemporaryDirectory()
    Pki.make(Path(folder.name))
    return folder, Path(folder.name)


def _written(text: bytes, name: str) -> Path:
    file = _folder()[1] / name
    file.write_bytes(text)
    return file


@contextmanager
def logged(name: str, level: int) -> Iterator[list[logging.LogRecord]]:
    """Gather what is logged from a level on."""
    handler = BufferingHandler(_MOST_RECORDS)
    handler.setLevel(level)
    logger = logging.getLogger(name)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield handler.buffer
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


PROBES: dict[str, Probe] = {
    "documents": document,
    "configurations": configuration,
    "web-configurations": web_configuration,
    "secrets": secrets,
    "requests": request,
}
