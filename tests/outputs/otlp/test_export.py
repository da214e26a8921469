"""What receivers get of each signal, and what becomes of answers that are none."""

import gzip
import json
import logging
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests
import trustme
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from exporter.model.vm import VirtualMachine
from exporter.outputs.otlp import logs, metrics, traces
from exporter.outputs.otlp.export import SdkExporter, TransportAdapter, resource_attributes
from exporter.outputs.otlp.telemetry import LogRecord, Signal, Span, SpanEvent
from exporter.outputs.otlp.worker import Exporter, ExportOutcome
from tests.clocks import NOW, HandClock
from tests.end_to_end.program import free_port
from tests.http_server import Connection, Request, dripping, serving, then_hang_up
from tests.memory import traced
from tests.outputs.otlp.receiver import log_records, messages, pushes, spans, values
from tests.receivers import Receiver, http_receiver, in_place_of_services

DONE = ExportOutcome()
SPAN = Span(
    name="notify oncall",
    trace_id="c7061bacafdc4513b24baa5f13a16123",
    span_id="00f067aa0ba902b7",
    parent_id="1122334455667788",
    start=NOW,
    end=NOW.replace(microsecond=123456),
    attributes={
        "azure.scheduled_event.type": "Freeze",
        "azure.scheduled_event.resources": ("a", "b"),
        "n": 5,
    },
    events=(SpanEvent("updated", NOW, {"azure.scheduled_event.description.new": "b"}),),
    error="too late",
    kind="client",
)
FACTS = VirtualMachine(
    name="web_3",
    vm_id="02aab8a4",
    resource_id="/subscriptions/s/x",
    resource_group="group",
    subscription_id="s",
    location="westeurope",
    zone="2",
    scale_set="web",
    size="Standard_D2s_v5",
    node="aks-web-0",
)
RECORD = LogRecord(
    name="azure.scheduled_event.started",
    end=NOW.replace(microsecond=123456),
    severity="critical",
    body="Reboot started: WestNO_0",
    attributes={"azure.scheduled_event.resources": ("a", "b"), "azure.scheduled_event.duration_seconds": 5},
    uid="3d1f0d0e-6a3c-5f0b-8f9b-0a6f1b1f6f0b",
    trace_id="c7061bacafdc4513b24baa5f13a16123",
    span_id="00f067aa0ba902b7",
    sampled=True,
)
SECOND = 10**9
START = int(NOW.timestamp()) * SECOND


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with http_receiver() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{found.authority}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
        yield found


def otlp(*, console: bool = False) -> SdkExporter:
    return traces.exporter(lambda: resource_attributes(FACTS, ""), console=console)


def otlp_logs(*, console: bool = False) -> SdkExporter:
    return logs.exporter(lambda: {"host.name": "web_3"}, console=console)


def otlp_metrics(*, console: bool = False) -> metrics.MetricExporter:
    """Return an exporter of a program that began a minute ago."""
    clock = HandClock()
    exporter = metrics.MetricExporter(dict, clock, clock.now(), console=console)
    clock.pass_seconds(60)
    return exporter


def test_a_span_arrives_as_it_is(receiver: Receiver) -> None:
    """Ids, times, attributes, events, kind and status are those that were given, by a named schema."""
    exporter = otlp()
    assert [exporter.export([SPAN]) for _ in range(2)] == [DONE] * 2
    assert spans(receiver) == [SPAN] * 2
    assert receiver.requests[0].path == "/v1/traces"
    # Of the resource and of the scope.
    assert receiver.requests[0].body.count(b"https://opentelemetry.io/schemas/1.44.0") == 2


def described(receiver: Receiver) -> dict[str, Any]:
    """Return the resource of the newest spans, without what is about the SDK."""
    (group,) = messages(receiver, Signal.TRACES)[-1].resource_spans
    about = values(group.resource.attributes)
    return {key: value for key, value in about.items() if not key.startswith("telemetry.sdk.")}


def test_the_resource(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """VM and program are described by the semantic conventions, unless the standard variables do it."""
    otlp().export([SPAN])
    about = described(receiver)
    assert about.pop("service.version")
    assert about == {
        "service.name": "azure-scheduled-events-exporter",
        "service.instance.id": "02aab8a4",
        "cloud.provider": "azure",
        "cloud.platform": "azure.vm",
        "cloud.region": "westeurope",
        "cloud.availability_zone": "2",
        "cloud.account.id": "s",
        "cloud.resource_id": "/subscriptions/s/x",
        "host.id": "02aab8a4",
        "host.name": "web_3",
        "host.type": "Standard_D2s_v5",
        "azure.resource_group.name": "group",
        "azure.vm.scaleset.name": "web",
        "k8s.node.name": "aks-web-0",
    }
    # What the user sets wins; sampling is decided elsewhere.
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "host.name=other,deployment.environment.name=prod")
    otlp().export([SPAN])
    resource = described(receiver)
    assert resource["service.name"] == "mine"
    assert resource["host.name"] == "other"
    assert resource["deployment.environment.name"] == "prod"
    assert resource["host.id"] == "02aab8a4"


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_compression_and_headers(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    """What is set in the standard variables is what goes out, whatever ~/.netrc has for the host."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20token,x-tenant=ops")
    assert otlp().export([SPAN]) == DONE
    headers = receiver.requests[0].headers
    assert (headers["content-encoding"], headers["authorization"]) == (compression, "Bearer token")
    assert (headers["connection"], headers["accept-encoding"]) == ("close", "identity")
    assert spans(receiver)[0].span_id == SPAN.span_id


def test_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Authority and certificate of the client are those of the variables; a missing file is named."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    client = authority.issue_cert("client.test")
    client.cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
    client.private_key_pem.write_to_path(tmp_path / "client.key")
    variables = {"CLIENT_CERTIFICATE": "client.pem", "CLIENT_KEY": "missing.key", "CERTIFICATE": "ca.pem"}
    for name, file in variables.items():
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", str(tmp_path / file))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2.5")
    with http_receiver(tls=context) as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"https://{receiver.authority}")
        problem = "a certificate of the OTEL_EXPORTER_OTLP_* variables: No such file or directory"
        assert otlp().export([SPAN]) == ExportOutcome(problem=problem)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", str(tmp_path / "client.key"))
        monkeypatch.delenv("OTEL_EXPORTER_OTLP_CERTIFICATE")
        assert "certificate verify failed" in otlp().export([SPAN]).problem.lower()
        assert receiver.requests == []
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(tmp_path / "ca.pem"))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
        assert otlp().export([SPAN]) == DONE


def test_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS goes through a tunnel, plain HTTP is forwarded with the proxy's password; NO_PROXY avoids it."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "10")
    nobody = f"127.0.0.1:{free_port()}"
    with in_place_of_services({}, monkeypatch, tmp_path) as tunnel, http_receiver() as proxy:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://otel.test")
        assert otlp().export([SPAN]) == DONE
        monkeypatch.setenv("HTTP_PROXY", f"http://me:p%40ss@{proxy.authority}")
        monkeypatch.setenv("http_proxy", f"http://me:p%40ss@{proxy.authority}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{nobody}")
        assert otlp().export([SPAN]) == DONE
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        assert "refused" in otlp().export([SPAN]).problem
    assert [request.headers["host"] for request in tunnel.requests] == ["otel.test"]
    (forwarded,) = proxy.requests
    assert forwarded.path == f"http://{nobody}/v1/traces"
    assert forwarded.headers["proxy-authorization"] == "Basic bWU6cEBzcw=="


def test_a_retry_without_time() -> None:
    """A retry of the SDK for which no time is left does not hide why the attempt before it failed."""
    adapter = TransportAdapter("")
    request = requests.Request("POST", f"http://127.0.0.1:{free_port()}").prepare()
    for timeout in (10, 0):
        with pytest.raises(requests.ConnectionError):
            adapter.send(request, timeout=timeout)
    assert "refused" in adapter.problem


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 407 No\r\n\r\n", "the proxy answered with status 407"),
        (b"", "the server closed the connection without an answer"),
    ],
)
def test_a_proxy_that_refuses(monkeypatch: pytest.MonkeyPatch, answer: bytes, problem: str) -> None:
    """The problem is that of the proxy, and one of another kind than HTTP is refused by name."""
    with serving(then_hang_up(answer)) as proxy:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://otel.test")
        monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{proxy.port}")
        monkeypatch.setenv("https_proxy", f"127.0.0.1:{proxy.port}")
        assert otlp().export([SPAN]) == ExportOutcome(problem=problem)
        monkeypatch.setenv("HTTPS_PROXY", f"https://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("https_proxy", f"https://127.0.0.1:{proxy.port}")
        assert otlp().export([SPAN]) == ExportOutcome(problem="only http:// proxies are supported")


@pytest.mark.parametrize(
    ("status", "refused"),
    [(400, True), (413, True), (422, True), *((one, False) for one in (302, 304, 403, 429, 500))],
)
def test_a_receiver_that_refuses(receiver: Receiver, status: int, *, refused: bool) -> None:
    """The status is reported, with Retry-After; only that of invalid data means not to send it again."""
    location = f"http://{receiver.authority}/login"
    receiver.mood, receiver.answer_headers = status, {"Location": location, "Retry-After": "120"}
    problem, retry_after = f"the receiver answered with status {status}", 120 if status == 429 else 0
    expected = ExportOutcome(problem=problem, refused=refused, retry_after=retry_after)
    assert otlp().export([SPAN]) == expected


@pytest.mark.parametrize(
    ("rejected", "message", "reason"),
    [(2, "too long\n for CANARYabc1", "too long for ..."), (0, "be brief", "be brief"), (-(2**63), "", "")],
)
def test_partial_success(
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    rejected: int,
    message: str,
    reason: str,
) -> None:
    """The receiver's message is logged, on one line and without the values of the request's headers.

    The number of rejected spans is part of the outcome.
    """
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20CANARYabc1")
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = rejected
    answer.partial_success.error_message = message
    plain = answer.SerializeToString()
    for packed, encoding in ((plain, {}), (gzip.compress(plain), {"Content-Encoding": "gzip"})):
        receiver.answer, receiver.answer_headers = packed, encoding
        assert otlp().export([SPAN] * 3) == ExportOutcome(rejected=max(rejected, 0), reason=reason)
    assert [record.__dict__["reason"] for record in caplog.records] == ([reason] * 2 if reason else [])


@pytest.mark.parametrize("headers", [{}, {"Content-Encoding": "br"}])
def test_an_answer_that_is_not_protobuf(receiver: Receiver, headers: dict[str, str]) -> None:
    """The status alone decides that spans were accepted."""
    receiver.answer, receiver.answer_headers = b"ok", headers
    assert otlp().export([SPAN]) == DONE


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HEADERS", "authorization=a%0ACANARY"),
        ("HEADERS", "x=%E2%82%ACCANARY"),
        ("TRACES_ENDPOINT", "http://a%zz/CANARY"),
    ],
)
def test_a_request_that_cannot_be_made(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """A header with a line break, or a URL that is not valid, is reported without its text."""
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{variable}", value)
    outcome = otlp().export([SPAN])
    assert outcome.problem
    assert "CANARY" not in outcome.problem
    assert receiver.requests == []


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("layers", [0, 1, 2])
def test_an_answer_without_end(monkeypatch: pytest.MonkeyPatch, status: int, layers: int) -> None:
    """Little of an answer is read and unpacked, whatever its status and however often it is compressed."""
    body = bytes(32 * 1024**2)
    head = f"HTTP/1.1 {status} -\r\n"
    if layers:
        head += f"Content-Encoding: {', '.join(['gzip'] * layers)}\r\n"
    for _ in range(layers):
        body = gzip.compress(body)

    def respond(connection: Connection, _: Request) -> None:
        connection.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
        connection.send(body)

    succeeds = status == 200 and layers > 0
    # What fails is tried again until then.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60" if succeeds else "1")
    with serving(respond) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        exporter = otlp()
        exporter.export([SPAN])
        outcome, peak = traced(lambda: exporter.export([SPAN]))
    assert (outcome == DONE) == succeeds
    assert peak < 2 * 1024**2


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\nX-Slow: ",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: ",
    ],
)
def test_an_answer_that_drips(monkeypatch: pytest.MonkeyPatch, start: bytes) -> None:
    """An export ends with its timeout, even if head, body or trailers of the answer keep arriving."""
    with serving(dripping(start, b"x" * 100_000)) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1.5")
        assert "timed out" in otlp().export([SPAN]).problem


def test_no_secret_is_logged(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a malformed header nor a failing export shows what is in the variables."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "CANARY")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"http://{receiver.authority}/CANARY")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1.5")
    receiver.mood = "reset"
    caplog.set_level(logging.DEBUG)
    assert otlp().export([SPAN]).problem
    assert "CANARY" not in "".join(r.getMessage() for r in caplog.records if r.levelno > logging.DEBUG)


@pytest.mark.parametrize(
    "echo",
    [
        b"HTTP/1.1 502 Bad\r\nAuthorization Bearer %s\r\n\r\n",
        b"HTTP/1.1 502 Bad\r\nContent-Length: 1\r\nPath /%s\r\n\r\n",
    ],
)
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20CANARYabc1"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://{authority}/CANARYabc1/v1/traces"),
        ("http_proxy", "http://me:CANARYabc1@{authority}"),
    ],
)
def test_a_secret_that_is_repeated(
    monkeypatch: pytest.MonkeyPatch, echo: bytes, variable: str, value: str
) -> None:
    """A problem with an answer that repeats headers or the path of the request has no part of them."""
    with serving(then_hang_up(echo.replace(b"%s", b"CANARYabc1"))) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", server.url)
        monkeypatch.setenv(variable, value.format(authority=f"127.0.0.1:{server.port}"))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1.5")
        problem = otlp().export([SPAN]).problem
    assert problem.startswith("illegal header line: ")
    assert "CANARY" not in problem


def test_what_cannot_be_encoded(receiver: Receiver) -> None:
    """A span that protobuf does not take is a failure, which is not that of the request before it."""
    receiver.mood, exporter = 400, otlp()
    assert exporter.export([SPAN]).refused
    outcome = exporter.export([msgspec.structs.replace(SPAN, name="\ud800")])
    assert outcome.problem
    assert ("status" in outcome.problem, outcome.refused) == (False, False)


def test_a_record_arrives_as_it_is(receiver: Receiver) -> None:
    """Name, time, severity, body, attributes and ids are those that were given; the uid is an attribute."""
    other = LogRecord("azure.scheduled_event.degraded", NOW, "warning", "degraded: x", {}, "uid")
    assert otlp_logs().export([RECORD, other]) == DONE
    assert log_records(receiver) == [RECORD, other]
    assert receiver.requests[0].path == "/v1/logs"
    (group,) = messages(receiver, Signal.LOGS)[0].resource_logs
    assert values(group.resource.attributes)["host.name"] == "web_3"
    assert [record.severity_number for record in group.scope_logs[0].log_records] == [17, 13]


def registry() -> CollectorRegistry:
    found = CollectorRegistry()
    Counter("transitions", "T.", ["event_type"], registry=found).labels("Freeze").inc(
        2, exemplar={"trace_id": SPAN.trace_id}
    )
    Counter("pause_seconds", "P.", registry=found)
    Gauge("event_seconds_to_not_before", "E.", registry=found).set(-1.5)
    Gauge("process_resident_memory_bytes", "M.", registry=found).set(5)
    notice = Histogram("notice_seconds", "N.", ["event_type"], buckets=(30, 300), registry=found)
    notice.labels("Freeze").observe(20)
    notice.labels("Freeze").observe(900, {"trace_id": SPAN.trace_id})
    notice.labels("Reboot")
    Gauge("empty", "No series.", ["target"], registry=found)
    return found


def test_families_arrive_as_they_are(receiver: Receiver) -> None:
    """Counters lose their suffix, units follow from names; start times, buckets and trace ids come along."""
    assert otlp_metrics().export(registry().collect()).problem == ""
    (found,) = pushes(receiver)
    assert receiver.requests[0].path == "/v1/metrics"
    units = {name: metric.unit for name, metric in found.items()}
    assert units == {
        "transitions": "",
        "pause_seconds": "s",
        "event_seconds_to_not_before": "",
        "process_resident_memory_bytes": "By",
        "notice_seconds": "s",
    }
    counter = found["transitions"].sum
    (point,) = counter.data_points
    assert (counter.is_monotonic, counter.aggregation_temporality) == (
        True,
        AGGREGATION_TEMPORALITY_CUMULATIVE,
    )
    assert (point.as_double, values(point.attributes)) == (2, {"event_type": "Freeze"})
    assert (point.start_time_unix_nano, point.time_unix_nano) == (START, START + 60 * SECOND)
    assert [(one.trace_id.hex(), one.as_double) for one in point.exemplars] == [(SPAN.trace_id, 2)]
    assert found["event_seconds_to_not_before"].gauge.data_points[0].as_double == -1.5
    histogram = found["notice_seconds"].histogram
    first, second = histogram.data_points
    assert histogram.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
    assert values(second.attributes) == {"event_type": "Reboot"}
    assert (list(first.explicit_bounds), list(first.bucket_counts)) == ([30, 300], [1, 0, 1])
    assert (first.count, first.sum, first.start_time_unix_nano) == (2, 920, START)
    assert [one.trace_id.hex() for one in first.exemplars] == [SPAN.trace_id]
    assert not first.HasField("min")
    assert second.count == 0


def test_requests_are_bounded(receiver: Receiver) -> None:
    """Many series go in several requests, none of which has much more than 2,000."""
    found = CollectorRegistry()
    for number in range(5):
        gauge = Gauge(f"g{number}", "G.", ["n"], registry=found)
        for label in range(900):
            gauge.labels(str(label)).set(label)
    assert otlp_metrics().export(found.collect()) == DONE
    assert [list(one) for one in pushes(receiver)] == [["g0", "g1"], ["g2", "g3"], ["g4"]]


def test_values_that_are_rejected(receiver: Receiver) -> None:
    """They are a problem, although the answer is a success: they would be missing silently."""
    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points = 3
    answer.partial_success.error_message = "out of order"
    receiver.answer = answer.SerializeToString()
    assert (
        otlp_metrics().export(registry().collect()).problem == "the receiver rejects 3 values: out of order"
    )
    receiver.mood = 400
    assert otlp_metrics().export(registry().collect()).problem == "the receiver answered with status 400"


@pytest.mark.parametrize(
    ("make", "items", "printed"),
    [
        (otlp, lambda: [SPAN], f'"trace_id": "0x{SPAN.trace_id}"'),
        (otlp_logs, lambda: [RECORD], f'"body": "{RECORD.body}"'),
        (otlp_metrics, lambda: registry().collect(), '"name": "transitions"'),
    ],
)
def test_the_console(
    capsys: pytest.CaptureFixture[str], make: Callable[..., Exporter], items: Callable[[], Any], printed: str
) -> None:
    """Each signal can be printed as JSON."""
    assert make(console=True).export(items()) == DONE
    shown = capsys.readouterr().out
    assert json.loads(shown)
    assert printed in shown
