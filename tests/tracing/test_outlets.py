"""Tests of `exporter.tracing.outlets`: OpenTelemetry's own exporters, against real receivers."""

import gzip
import json
import logging
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trustme
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from exporter.imds import InstanceFacts
from exporter.tracing.outlets import ConsoleOutlet, OtlpOutlet, Sent
from exporter.tracing.resource import resource_attributes
from exporter.tracing.spans import Span
from tests.clocks import NOW
from tests.notifications.receivers import Receiver, http_receiver
from tests.tracing.receiver import Arrived, spans

SPAN = Span(
    name="started",
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
    marks=(("updated", NOW),),
    error="too late",
)
FACTS = InstanceFacts(
    name="web_3",
    vm_id="02aab8a4",
    resource_id="/subscriptions/s/x",
    resource_group_name="group",
    subscription_id="s",
    location="westeurope",
    zone="2",
    vm_scale_set_name="web",
    vm_size="Standard_D2s_v5",
)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Run a receiver that the standard variable names."""
    with http_receiver() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{found.authority}")
        yield found


def outlet(facts: InstanceFacts = FACTS) -> OtlpOutlet:
    """Make a way out, as the environment is now."""
    return OtlpOutlet(lambda: resource_attributes(facts, None))


def test_a_span_arrives_as_it_is(receiver: Receiver) -> None:
    """Ids, times, attributes, marks and status are those that were given."""
    assert outlet().send([SPAN]) == Sent(1)
    (arrived,) = spans(receiver)
    assert receiver.requests[0].path == "/v1/traces"
    assert arrived == Arrived(
        name="started",
        trace_id=SPAN.trace_id,
        span_id=SPAN.span_id,
        parent_id=SPAN.parent_id,
        start=SPAN.start,
        end=SPAN.end,
        attributes={
            "azure.scheduled_event.type": "Freeze",
            "azure.scheduled_event.resources": ["a", "b"],
            "n": 5,
        },
        resource=arrived.resource,
        events=SPAN.marks,
        failed=True,
    )


def test_the_resource(receiver: Receiver) -> None:
    """The VM is described by the semantic conventions, the program too."""
    outlet().send([SPAN])
    (arrived,) = spans(receiver)
    about = {key: value for key, value in arrived.resource.items() if not key.startswith("telemetry.sdk.")}
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
    }


def test_what_the_user_says_wins(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Service name and resource attributes can be set as everywhere."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "host.name=other,deployment.environment.name=prod")
    outlet().send([SPAN])
    resource = spans(receiver)[0].resource
    assert resource["service.name"] == "mine"
    assert resource["host.name"] == "other"
    assert resource["deployment.environment.name"] == "prod"
    assert resource["host.id"] == "02aab8a4"


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_compression_and_headers(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    """What is set in the standard variables is what goes out."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20token,x-tenant=ops")
    assert outlet().send([SPAN]) == Sent(1)
    headers = receiver.requests[0].headers
    assert (headers["content-encoding"], headers["authorization"]) == (compression, "Bearer token")
    assert spans(receiver)[0].span_id == SPAN.span_id


def test_an_endpoint_for_traces(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable for traces alone gives the whole URL."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"http://{receiver.authority}/a/path")
    outlet().send([SPAN])
    assert receiver.requests[0].path == "/a/path"


def test_a_certificate_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver with TLS is believed when the variable names its authority, and not otherwise."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with http_receiver(tls=context) as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"https://{receiver.authority}")
        assert "certificate verify failed" in outlet().send([SPAN]).problem
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(tmp_path / "ca.pem"))
        assert outlet().send([SPAN]) == Sent(1)


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        (400, Sent(problem="it answered 400 (Bad Request)", hopeless=True)),
        (403, Sent(problem="it answered 403 (Forbidden)")),
        (302, Sent(problem="it answered 302 (Found)")),
        (500, Sent(problem="it answered 500 (Internal Server Error)")),
        (599, Sent(problem="it answered 599")),
    ],
)
def test_a_receiver_that_refuses(receiver: Receiver, status: int, sent: Sent) -> None:
    """What it answers is told; only what blames the data makes the spans hopeless."""
    receiver.mood = status
    assert outlet().send([SPAN]) == sent


def test_a_receiver_that_takes_some(receiver: Receiver) -> None:
    """What it says to have rejected has not arrived."""
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 2
    receiver.answer = answer.SerializeToString()
    assert outlet().send([SPAN, SPAN, SPAN]) == Sent(1)


@pytest.mark.parametrize(("rejected", "taken"), [(-1, 1), (-(2**63), 1), (7, 0)])
def test_a_receiver_that_cannot_count(receiver: Receiver, rejected: int, taken: int) -> None:
    """No more spans were taken than there are, and no fewer than none."""
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = rejected
    receiver.answer = answer.SerializeToString()
    assert outlet().send([SPAN]) == Sent(taken)


@pytest.mark.parametrize(
    ("headers", "answer"),
    [
        ({"Content-Encoding": "gzip"}, b"no gzip"),
        ({"Content-Encoding": "gzip"}, gzip.compress(bytes(50_000_000))),
        ({"Content-Length": "999"}, b"cut off"),
        ({}, b"x" * 20_000_000),
    ],
    ids=["garbled", "bomb", "cut", "huge"],
)
def test_an_answer_of_any_kind(receiver: Receiver, headers: dict[str, str], answer: bytes) -> None:
    """Where the status says that spans are taken they are not sent again, and the answer is not unpacked."""
    receiver.answer, receiver.answer_headers = answer, headers
    way_out = outlet()
    assert way_out.send([SPAN]) == Sent(1)
    assert len(way_out._session.answer) <= 65536


def test_a_redirect_is_not_looked_at(receiver: Receiver) -> None:
    """Where it leads to may be no URL, and may have secrets in it."""
    receiver.mood, receiver.answer_headers = 302, {"Location": "http://[CANARY"}
    assert outlet().send([SPAN]).problem == "it answered 302 (Found)"


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        (
            "HEADERS",
            "authorization=a%0ACANARY",
            "a value in OTEL_EXPORTER_OTLP_HEADERS cannot be sent in a header",
        ),
        ("HEADERS", "x=%E2%82%ACCANARY", "a value in OTEL_EXPORTER_OTLP_HEADERS cannot be sent in a header"),
        ("TRACES_ENDPOINT", "http://a%zz/CANARY", "its URL, or that of a proxy, cannot be used"),
    ],
)
def test_what_cannot_be_sent_is_not_shown(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, problem: str
) -> None:
    """A header with a line break, or a URL that is none, is told of without its text."""
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{variable}", value)
    assert outlet().send([SPAN]) == Sent(problem=problem)
    assert receiver.requests == []


@pytest.mark.parametrize("mood", ["hang", "drip"])
def test_a_receiver_that_is_slow(receiver: Receiver, monkeypatch: pytest.MonkeyPatch, mood: str) -> None:
    """A try ends with its timeout, be it that nothing comes or a byte now and then."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.3")
    receiver.mood = mood
    begun = time.monotonic()
    assert "timed out" in outlet().send([SPAN]).problem.lower()
    assert time.monotonic() - begun < 10


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection is told in a few words, whatever the URL."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1/token")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    assert outlet().send([SPAN]).problem == "Connection refused"


def test_one_try_is_one_request(receiver: Receiver) -> None:
    """When to try again is decided elsewhere; the SDK does not do it by itself."""
    receiver.mood = 503
    begun = time.monotonic()
    assert outlet().send([SPAN]).problem == "it answered 503 (Service Unavailable)"
    assert time.monotonic() - begun < 5
    receiver.mood = 200
    assert outlet().send([SPAN]) == Sent(1)
    assert receiver.requests[0].headers["connection"] == "close"


def test_no_secret_is_logged(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a malformed header nor a failing try shows what is in the variables."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "CANARY")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"http://{receiver.authority}/CANARY")
    receiver.mood = 500
    with caplog.at_level(logging.DEBUG, logger="opentelemetry"):
        outlet().send([SPAN])
    assert "OTEL_EXPORTER_OTLP_HEADERS has an entry that is no name=value" in caplog.text
    assert "CANARY" not in caplog.text


def test_what_cannot_be_encoded(receiver: Receiver) -> None:
    """A span that protobuf does not take is hopeless, and nothing is sent."""
    odd = msgspec.structs.replace(SPAN, name="\ud800")
    assert outlet().send([odd]) == Sent(problem="the spans cannot be encoded", hopeless=True)
    assert receiver.requests == []


def test_limits_hold(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard variable for the length of values is heeded."""
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "3")
    outlet().send([SPAN])
    assert spans(receiver)[0].fact("type") == "Fre"


def test_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    """Spans are printed as JSON."""
    assert ConsoleOutlet(dict).send([SPAN]) == Sent(1)
    printed = json.loads(capsys.readouterr().out)
    assert printed["context"]["trace_id"] == f"0x{SPAN.trace_id}"
