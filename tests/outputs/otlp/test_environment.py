import uuid
from typing import Literal

import pytest
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

from exporter.errors import ConfigurationError
from exporter.model.events import trace_id
from exporter.model.tracing import is_sampled
from exporter.outputs.otlp.environment import endpoint, interval, sampled_share, selected, timeout
from exporter.outputs.otlp.telemetry import Signal

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
HEADERS = "OTEL_EXPORTER_OTLP_METRICS_HEADERS"
TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
HERE = "http://localhost:4318"
OTLP = {"otlp": HERE}
ENCODE = (
    "write name=value without quotation marks, and percent-encode what is not a letter, a digit or -, such "
    "as a space as %20 and ; as %3B"
)
NO_PAIR = "OTEL_RESOURCE_ATTRIBUTES: entry 2 is not of the form name=value; write a comma in a value as %2C"
CONSOLE = {"console": "console"}
NO_URL = ": is not a valid URL; write it like http://localhost:4318"
NO_GRPC = (
    ": is not supported; set it to http/protobuf, "
    "and the endpoint to the receiver's port for that, by default 4318"
)


@pytest.mark.parametrize(
    ("enabled", "environ", "found"),
    [
        ("auto", {}, {}),
        ("auto", {ENDPOINT: HERE}, OTLP),
        ("auto", {TRACES: f"{HERE}/v1/traces"}, OTLP),
        ("auto", {"OTEL_TRACES_EXPORTER": "console"}, CONSOLE),
        ("auto", {"OTEL_TRACES_EXPORTER": "none", ENDPOINT: HERE}, {}),
        ("auto", {"OTEL_TRACES_EXPORTER": "none,otlp", ENDPOINT: HERE}, {}),
        ("auto", {"OTEL_TRACES_EXPORTER": " OTLP, console", ENDPOINT: HERE}, OTLP | CONSOLE),
        ("auto", {"OTEL_SDK_DISABLED": "TRUE", ENDPOINT: HERE}, {}),
        ("auto", {"OTEL_TRACES_SAMPLER": "parentbased_always_off", ENDPOINT: HERE}, {}),
        # Without a receiver, it does not matter.
        ("auto", {"OTEL_TRACES_SAMPLER": "xray"}, {}),
        (True, {}, OTLP),
        (True, {"OTEL_SDK_DISABLED": "true"}, {}),
        (False, {ENDPOINT: HERE, "OTEL_TRACES_EXPORTER": "console"}, {}),
        ("auto", {ENDPOINT: HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "HTTP/Protobuf"}, OTLP),
        (
            "auto",
            {ENDPOINT: "https://user:secret@[2001:db8::1]:4318/token"},
            {"otlp": "https://[2001:db8::1]:4318"},
        ),
        (
            "auto",
            {ENDPOINT: HERE, "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer abc, x=%22a%3B%C3%BC,"},
            OTLP,
        ),
        ("auto", {ENDPOINT: HERE, TRACES: "https://otel.example/x"}, {"otlp": "https://otel.example"}),
    ],
)
def test_what_is_wanted(
    enabled: Literal["auto"] | bool, environ: dict[str, str], found: dict[str, str]
) -> None:
    """Nothing unless it is asked for; of an endpoint no more is shown than scheme, host and port."""
    assert selected(Signal.TRACES, enabled, environ) == found


@pytest.mark.parametrize(
    ("signal", "environ", "message"),
    [
        (Signal.TRACES, {ENDPOINT: "localhost:4318"}, f"{ENDPOINT}{NO_URL}"),
        *(
            (Signal.TRACES, {TRACES: url}, f"{TRACES}{NO_URL}")
            for url in ("http://[::1/secret", "http://host:port/secret", "ftp://host", "http:///secret")
        ),
        (
            Signal.METRICS,
            {"OTEL_METRICS_EXPORTER": "zipkin"},
            "OTEL_METRICS_EXPORTER: is not supported; use otlp, console or none",
        ),
        (Signal.TRACES, {ENDPOINT: HERE, PROTOCOL: "grpc"}, f"{PROTOCOL}{NO_GRPC}"),
        *(
            (
                Signal.METRICS,
                {ENDPOINT: HERE, HEADERS: f"a=b, {entry},"},
                f"{HEADERS}: entry 2 is not valid; {ENCODE}",
            )
            for entry in ("CANARY", "x=CANARYü", 'x="CANARY"', "x y=CANARY")
        ),
        (Signal.LOGS, {"OTEL_LOGS_EXPORTER": "console", "OTEL_RESOURCE_ATTRIBUTES": "a=b,CANARY"}, NO_PAIR),
        (
            Signal.LOGS,
            {ENDPOINT: HERE, "OTEL_EXPORTER_OTLP_LOGS_COMPRESSION": "CANARY"},
            "OTEL_EXPORTER_OTLP_LOGS_COMPRESSION: is not supported; use gzip, deflate or none",
        ),
        (
            Signal.TRACES,
            {ENDPOINT: HERE, "OTEL_TRACES_SAMPLER": "xray"},
            "OTEL_TRACES_SAMPLER: is not supported; use always_on, always_off or traceidratio",
        ),
        *(
            (
                Signal.TRACES,
                {ENDPOINT: HERE, "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": ratio},
                "OTEL_TRACES_SAMPLER_ARG: is not a number from 0 to 1",
            )
            for ratio in ("1.5", "half", "0_1")
        ),
        (
            Signal.METRICS,
            {ENDPOINT: HERE, TEMPORALITY: "delta"},
            f"{TEMPORALITY}: is not supported; set it to cumulative",
        ),
    ],
)
def test_what_cannot_be_followed(
    signal: Signal, environ: dict[str, str], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The message names the variable of the signal and the remedy, and no secret; neither does the log."""
    with pytest.raises(ConfigurationError) as caught:
        selected(signal, "auto", environ)
    assert str(caught.value) == message
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("sampler", "ratio", "share"),
    [
        *(("", "0", 1), ("always_on", "", 1), ("parentbased_always_off", "1", 0)),
        *(("traceidratio", "0", 0), ("TraceIdRatio", "0.25", 0.25), ("traceidratio", "", 1)),
    ],
)
def test_how_many_events_are_traced(sampler: str, ratio: str, share: float) -> None:
    """All, unless a sampler says otherwise."""
    assert sampled_share({"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": ratio}) == share


def test_the_sampler_is_the_sdks() -> None:
    """Other services that sample by the trace id keep the same traces."""
    events = [str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))) for number in range(200)]
    for share in (0.0, 0.1, 0.5, 1.0):
        sampler = TraceIdRatioBased(share)
        decisions = [sampler.should_sample(None, int(trace_id(event), 16), "").decision for event in events]
        kept = [decision is Decision.RECORD_AND_SAMPLE for decision in decisions]
        assert [is_sampled(event, share) for event in events] == kept


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({}, f"{HERE}/v1/traces"),
        ({ENDPOINT: f"{HERE}/a/?key=k"}, f"{HERE}/a/v1/traces?key=k"),
        ({ENDPOINT: HERE, TRACES: " http://other/x?key=k "}, "http://other/x?key=k"),
    ],
)
def test_where_spans_go(environ: dict[str, str], url: str) -> None:
    """The variable for traces holds as it is, the general one gets a path; blanks mean nothing."""
    assert endpoint(Signal.TRACES, environ) == url


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("", 10), (" 2.5 ", 2.5), ("x", 10), ("-1", 10), ("nan", 10), ("0", 60), ("inf", 60), ("10000", 60)],
)
def test_how_long_a_try_may_take(given: str, seconds: float) -> None:
    """Every try ends, and soon enough, whatever the variable says."""
    assert timeout(Signal.TRACES, {"OTEL_EXPORTER_OTLP_TIMEOUT": given}) == seconds


@pytest.mark.parametrize(
    ("environ", "metrics", "logs"),
    [
        ({ENDPOINT: HERE}, OTLP, OTLP),
        ({TRACES: HERE}, {}, {}),
        ({ENDPOINT: HERE, "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "console"}, {}, CONSOLE),
        # Prometheus finds them on the page of metrics.
        ({ENDPOINT: HERE, "OTEL_METRICS_EXPORTER": "prometheus,otlp"}, OTLP, OTLP),
        ({ENDPOINT: HERE, "OTEL_SDK_DISABLED": "true"}, {}, {}),
    ],
)
def test_each_signal_has_its_variables(
    environ: dict[str, str], metrics: dict[str, str], logs: dict[str, str]
) -> None:
    """The general endpoint is for all signals, what concerns one is for it alone."""
    assert selected(Signal.METRICS, "auto", environ) == metrics
    assert selected(Signal.LOGS, "auto", environ) == logs
    assert endpoint(Signal.LOGS, {ENDPOINT: HERE}) == f"{HERE}/v1/logs"


@pytest.mark.parametrize(("given", "seconds"), [("", 60), (" 2500 ", 2.5), ("1", 1), ("3600000", 3600)])
def test_how_often_metrics_are_pushed(given: str, seconds: float) -> None:
    """The variable is in milliseconds; a second is the least."""
    assert interval({"OTEL_METRIC_EXPORT_INTERVAL": given}) == seconds


@pytest.mark.parametrize("given", ["soon", "0", "-1", "nan", "inf"])
def test_an_interval_that_is_none(given: str) -> None:
    """The message names the variable."""
    with pytest.raises(ConfigurationError, match="OTEL_METRIC_EXPORT_INTERVAL: is not a positive"):
        interval({"OTEL_METRIC_EXPORT_INTERVAL": given})
