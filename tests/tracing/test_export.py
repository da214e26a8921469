"""Tests of `exporter.tracing.export`: the SDK's own exporters, against real receivers."""

import json
import logging
import ssl
from pathlib import Path

import msgspec
import pytest
import trustme
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from exporter.model.jobs import Span, SpanEvent
from exporter.model.vm import VirtualMachine
from exporter.tracing.export import SpanExporter, console_exporter, otlp_exporter, resource_attributes
from exporter.tracing.worker import ExportOutcome
from tests.clocks import NOW
from tests.notifications.receivers import Receiver, http_receiver
from tests.tracing.receiver import Arrived, spans

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
)


def otlp(facts: VirtualMachine = FACTS) -> SpanExporter:
    """Make an exporter, as the environment is now."""
    return otlp_exporter(lambda: resource_attributes(facts, None))


def numbered(count: int) -> list[Span]:
    """Return so many spans, which differ in their names and ids."""
    return [msgspec.structs.replace(SPAN, name=f"span {n}", span_id=f"{n + 1:016x}") for n in range(count)]


def test_a_span_arrives_as_it_is(receiver: Receiver) -> None:
    """Ids, times, attributes, events, kind and status are those that were given."""
    assert otlp().export([SPAN]) == ExportOutcome(1)
    (arrived,) = spans(receiver)
    assert receiver.requests[0].path == "/v1/traces"
    assert arrived == Arrived(
        name="notify oncall",
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
        events=(("updated", NOW, {"azure.scheduled_event.description.new": "b"}),),
        failed=True,
        kind="client",
        schemas=("https://opentelemetry.io/schemas/1.44.0",) * 2,
    )


def test_a_root(receiver: Receiver) -> None:
    """A span without a parent keeps its ids, and one that did not fail has no error."""
    root = msgspec.structs.replace(SPAN, parent_id="", error="", kind="internal")
    assert otlp().export([SPAN, root]) == ExportOutcome(2)
    found = spans(receiver)[1]
    assert (found.trace_id, found.span_id, found.parent_id) == (SPAN.trace_id, SPAN.span_id, "")
    assert (found.kind, found.failed) == ("internal", False)


def test_the_resource(receiver: Receiver) -> None:
    """The VM is described by the semantic conventions, the program too."""
    otlp().export([SPAN])
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


def test_the_configured_name_wins() -> None:
    """What IMDS calls the VM matters only if nothing is configured."""
    facts = VirtualMachine(name="from IMDS")
    assert resource_attributes(facts, "configured")["host.name"] == "configured"
    assert resource_attributes(facts, None)["host.name"] == "from IMDS"


def test_a_resource_that_is_learnt_later(receiver: Receiver) -> None:
    """What is known at the time of an export describes its spans."""
    known: dict[str, str] = {"host.name": "early"}
    exporter = otlp_exporter(lambda: dict(known))
    exporter.export([SPAN])
    known["host.name"] = "late"
    exporter.export([SPAN])
    assert [span.resource["host.name"] for span in spans(receiver)] == ["early", "late"]


def test_what_the_user_sets_wins(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Service name and resource attributes can be set as everywhere."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "host.name=other,deployment.environment.name=prod")
    otlp().export([SPAN])
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
    assert otlp().export([SPAN]) == ExportOutcome(1)
    headers = receiver.requests[0].headers
    assert (headers["content-encoding"], headers["authorization"]) == (compression, "Bearer token")
    assert headers["connection"] == "close"
    assert spans(receiver)[0].span_id == SPAN.span_id


def test_an_endpoint_for_traces(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable for traces alone is the whole URL."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"http://{receiver.authority}/a/path")
    otlp().export([SPAN])
    assert receiver.requests[0].path == "/a/path"


def test_a_certificate_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver with TLS is trusted when the variable names its authority, and not otherwise."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with http_receiver(tls=context) as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"https://{receiver.authority}")
        assert "certificate verify failed" in otlp().export([SPAN]).problem
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(tmp_path / "ca.pem"))
        assert otlp().export([SPAN]) == ExportOutcome(1)


@pytest.mark.parametrize(
    ("status", "refused"),
    [(400, True), (413, True), (422, True), (302, False), (403, False), (500, False), (503, False)],
)
def test_a_receiver_that_refuses(receiver: Receiver, status: int, *, refused: bool) -> None:
    """The status is reported; only those for invalid data mean that it must not be sent again."""
    receiver.mood, receiver.answer_headers = status, {"Location": f"http://{receiver.authority}/login"}
    problem = f"the receiver answered with status {status}"
    assert otlp().export([SPAN]) == ExportOutcome(problem=problem, refused=refused)


@pytest.mark.parametrize(
    ("rejected", "message", "accepted"),
    [(2, "too long", 1), (0, "be brief", 3), (-1, "", 3), (-(2**63), "", 3), (7, "no", 0)],
)
def test_partial_success(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, rejected: int, message: str, accepted: int
) -> None:
    """Rejected spans do not count as accepted, and the receiver's message is logged."""
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = rejected
    answer.partial_success.error_message = message
    receiver.answer = answer.SerializeToString()
    assert otlp().export(numbered(3)) == ExportOutcome(accepted)
    assert [record.__dict__["reason"] for record in caplog.records] == ([message] if message else [])


def test_an_answer_that_is_not_protobuf(receiver: Receiver) -> None:
    """The status alone decides that spans were accepted."""
    receiver.answer = b"ok"
    assert otlp().export([SPAN]) == ExportOutcome(1)


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


def test_a_receiver_that_hangs(receiver: Receiver) -> None:
    """An export ends with its timeout."""
    receiver.mood = "hang"
    assert "timed out" in otlp().export([SPAN]).problem.lower()
    assert not receiver.released.is_set()


def test_a_refused_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection has a short reason, whatever the URL."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1/token")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
    assert otlp().export([SPAN]).problem == "Connection refused"


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


def test_what_cannot_be_encoded(receiver: Receiver) -> None:
    """A span that protobuf does not take is a failure, and nothing is sent."""
    odd = msgspec.structs.replace(SPAN, name="\ud800")
    assert otlp().export([odd]).problem
    assert receiver.requests == []


def test_limits_hold(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard variable for the length of values is heeded."""
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "3")
    otlp().export([SPAN])
    assert spans(receiver)[0].fact("type") == "Fre"


def test_sampling_is_not_left_to_chance(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every event is traced, whatever the fleet-wide sampling variable."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    assert otlp().export([SPAN]) == ExportOutcome(1)
    assert len(spans(receiver)) == 1


def test_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    """Spans are printed as JSON."""
    assert console_exporter(dict).export([SPAN]) == ExportOutcome(1)
    printed = json.loads(capsys.readouterr().out)
    assert printed["context"]["trace_id"] == f"0x{SPAN.trace_id}"


def test_a_netrc_replaces_no_header(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver gets the header that the standard variable has."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login somebody password else\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x")
    assert otlp().export([SPAN]) == ExportOutcome(1)
    assert receiver.requests[0].headers["authorization"] == "Bearer x"
