"""What must hold whatever comes in: one probe for each way in, which fails where a promise is broken.

A probe takes bytes, as a file of the corpus holds them. It may be called any number of times.
"""

import logging
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import bcrypt
import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from exporter import config
from exporter.config import Hook, Overrides, Route, Rule, Templates, loading
from exporter.errors import ConfigurationError, Mistakes
from exporter.health import DegradedReason
from exporter.logs import FieldsFormatter
from exporter.metrics import Metrics
from exporter.model.events import Target
from exporter.notifications import addresses, templating
from exporter.notifications.rendering import Renderer
from exporter.serving import Server, listen
from exporter.state import Store
from exporter.web.app import WebApp
from exporter.web.settings import WebSettings
from tests.builders import body, scheduled
from tests.clocks import NOW
from tests.watch_fixture import WatchFixture
from tests.web import support
from tests.web.certificates import Pki

Owner = Route | Rule | Hook
Probe = Callable[[bytes], None]
LONGEST_MESSAGE = 10_000
# Stands in the corpus wherever a secret may stand.
CANARY = "h4nd3lC4n4ry77"
HEALTHY = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def document(answer: bytes) -> None:
    """Go all the way of a document: state, metrics in both formats, page, API, messages, log lines."""
    fixture = WatchFixture(metrics=config.Metrics(events="all", resources=True))
    with logged("exporter", logging.INFO) as log:
        fixture.poll(body())
        fixture.poll(answer)
        _look(fixture)
        fixture.poll(body(incarnation=9))
        _look(fixture)
    for record in log:
        for style in ("logfmt", "json"):
            line = FieldsFormatter(style).format(record)
            assert line.isprintable(), line
            assert record.exc_info is None, line
    _write_down(fixture)
    renderers = [Renderer(Templates(format=style)) for style in ("markdown", "html", "text")]
    for message in fixture.memory.messages:
        for renderer in renderers:
            rendered = renderer.render(message, NOW)
            (rendered.title + rendered.body).encode()
    if fixture.memory.messages:
        renderers[0].digest(fixture.memory.messages, NOW, limit=2000)


def _look(fixture: WatchFixture) -> None:
    snapshot = fixture.watch.snapshot
    list(text_string_to_metric_families(generate_latest(fixture.registry).decode()))
    list(
        openmetrics_parser.text_string_to_metric_families(
            openmetrics.generate_latest(fixture.registry).decode()
        )
    )
    site = support.site(snapshot, health=fixture.health)
    assert support.ask(site, "/").status == 200
    for path in ("/api/v1/events", "/api/v1/status"):
        msgspec.json.decode(support.ask(site, path).body)


def _write_down(fixture: WatchFixture) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder), health=fixture.health, clock=fixture.clock)
        try:
            for step in fixture.memory.steps:
                store.record(step, fixture.memory.messages)
            assert store.load() == fixture.memory.steps[-1].known
            store.outbox.waiting("someone", 1000)
        finally:
            store.close()
    reasons = {reason for reason, _ in fixture.problems()}
    assert not reasons & {DegradedReason.STATE_CORRUPT, DegradedReason.STATE_UNWRITABLE}, fixture.problems()


def configuration(text: bytes) -> None:
    """Read a configuration; where it is taken, its names fit the metrics and its matches can be asked."""
    file = _written(text, "config.yml")
    try:
        found = loading.load(file, Overrides())
    except ConfigurationError as error:
        _is_told(error, file)
        return
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.notifying(target.name for target in found.notifications.targets)
    metrics.approving(rule.name for rule in found.approval.rules)
    metrics.hooking(hook.name for hook in found.hooks)
    generate_latest(registry)
    owners: tuple[Route | Rule | Hook, ...] = (
        *found.notifications.routes,
        *found.approval.rules,
        *found.hooks,
    )
    for match in (found.in_service.match, *(owner.match for owner in owners)):
        match.holds(scheduled(), target=Target.SELF, now=NOW)


def web_configuration(text: bytes) -> None:
    """Read a web configuration, beside the certificates that it may name."""
    file = _written(text, "web.yml")
    try:
        WebSettings.load(file)
    except ConfigurationError as error:
        _is_told(error, file)


def _is_told(error: ConfigurationError, file: Path) -> None:
    assert str(error).startswith(f"{file}:"), error
    assert str(error).isprintable(), error
    assert len(str(error)) < LONGEST_MESSAGE + len(file.read_bytes())


def secrets(text: bytes) -> None:
    """Read what has canaries for its secrets as both kinds of configuration: no error repeats one."""
    for name, load in (("config.yml", _load_all), ("web.yml", WebSettings.load)):
        file = _written(text, name)
        with logged("exporter", logging.DEBUG) as log:
            try:
                load(file)
            except ConfigurationError as error:
                message = str(error)
            else:
                message = ""
        said = [message, *map(FieldsFormatter("logfmt").format, log)]
        assert CANARY not in "\n".join(said), said


def _load_all(file: Path) -> None:
    mistakes = Mistakes()
    found, locate = loading.load_located(file, Overrides(), mistakes)
    with mistakes:
        templating.check(found.notifications.templates, locate)
    for address in addresses.resolve(found.notifications, (), locate, {}, mistakes):
        assert CANARY not in addresses.shown(address.url)
    mistakes.check()


def request(sent: bytes) -> None:
    """Send bytes to the web server, open to all and with a password: it answers in HTTP, and goes on."""
    with logged("", logging.WARNING) as log:
        for port in _ports():
            answer = _exchange(port, sent)
            assert not answer or answer.startswith(b"HTTP/1.1 "), answer[:200]
            assert b"HTTP/1.1 5" not in answer, answer[:200]
            assert _exchange(port, HEALTHY).startswith((b"HTTP/1.1 200", b"HTTP/1.1 401"))
    assert not log, [record.getMessage() for record in log]


def _exchange(port: int, sent: bytes) -> bytes:
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
def _ports() -> tuple[int, int]:
    """Start both servers, once in a process; they end with it."""
    users = {"alice": bcrypt.hashpw(b"secret", bcrypt.gensalt(4))}
    sites = [
        support.site(support.snapshot(), lifecycle_enabled=True),
        support.site(support.snapshot(), settings=lambda: WebSettings(users=users)),
    ]
    servers = [Server(WebApp(site), listen("127.0.0.1:0")) for site in sites]
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


class _Gatherer(logging.Handler):
    def __init__(self, found: list[logging.LogRecord], level: int) -> None:
        super().__init__(level)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(record)


@contextmanager
def logged(name: str, level: int) -> Iterator[list[logging.LogRecord]]:
    """Gather what is logged from a level on."""
    found: list[logging.LogRecord] = []
    handler = _Gatherer(found, level)
    logger = logging.getLogger(name)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield found
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
