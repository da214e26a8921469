"""The routes: what answers, with what status and headers, to whom."""

import gzip
import json
import logging

import pytest
import requests
from prometheus_client import CollectorRegistry, Gauge

from exporter.errors import ConfigurationError, StoppingError
from exporter.health import DegradedReason, Health
from exporter.model.lifecycle import Transition
from exporter.web.settings import WebSettings
from tests.builders import FREEZE_ID
from tests.clocks import HandClock
from tests.web.support import Reloads, ask, freeze, past, served, site, snapshot, tracked

PATHS = ("/", "/metrics", "/api/v1/events", "/api/v1/status", "/-/healthy", "/-/ready", "/-/in-service")


@pytest.fixture
def registry() -> CollectorRegistry:
    """Make a registry with two gauges, one of them large."""
    registry = CollectorRegistry()
    Gauge("a_small", "One.", registry=registry).set(1)
    many = Gauge("b_many", "Many.", ["n"], registry=registry)
    for number in range(200):
        many.labels(str(number)).set(number)
    return registry


def test_every_page_answers_get_and_head_alike() -> None:
    """HEAD gives the status and headers of GET, Content-Length included, and no body."""
    with served(site(snapshot())) as port, requests.Session() as session:
        for path in PATHS:
            get, head = (session.request(way, f"http://127.0.0.1:{port}{path}") for way in ("GET", "HEAD"))
            assert (get.status_code, head.status_code, head.content) == (200, 200, b"")
            assert {**get.headers, "date": ""} == {**head.headers, "date": ""}
            assert get.headers["content-length"] == str(len(get.content))


@pytest.mark.parametrize("path", [*PATHS, "/nowhere"])
def test_no_answer_is_cached_or_sniffed(path: str) -> None:
    """Every answer forbids caching and guessing of types, and names its character set."""
    headers = ask(site(snapshot()), path).headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert "charset=utf-8" in headers["content-type"]


@pytest.mark.parametrize(
    ("path", "methods", "allowed"),
    [("/metrics", "POST DELETE OPTIONS", "GET, HEAD"), ("/-/reload", "GET PUT OPTIONS", "POST")],
)
def test_a_wrong_method_is_told_the_right_ones(path: str, methods: str, allowed: str) -> None:
    """405 comes with Allow, and nothing is reloaded."""
    reloads = Reloads()
    for method in methods.split():
        answer = ask(site(snapshot(), reload=reloads, lifecycle_enabled=True), path, method)
        assert (answer.status, answer.headers["allow"]) == (405, allowed)
    assert reloads.count == 0


@pytest.mark.parametrize("path", ["/nowhere", "/metrics/x", "/api", "//", "/-"])
def test_unknown_paths_are_not_found(path: str) -> None:
    """404 is plain text; several slashes alone are still the landing page."""
    answer = ask(site(snapshot()), path)
    if path == "//":
        assert answer.status == 200
    else:
        assert (answer.status, answer.text) == (404, "404 Not Found; / lists what there is\n")


def test_slashes_and_queries_do_not_matter() -> None:
    """A slash at the end and an unknown query change nothing."""
    answer = ask(site(snapshot()), "/-/healthy/", query="x=1&y")
    assert (answer.status, answer.text) == (200, "The exporter is healthy.\n")


def test_metrics_come_as_prometheus_text_by_default(registry: CollectorRegistry) -> None:
    """Without an Accept header the classic text format comes, uncompressed."""
    answer = ask(site(snapshot(), registry=registry), "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "a_small 1.0\n" in answer.text


def test_metrics_come_as_openmetrics_and_gzip_where_asked(registry: CollectorRegistry) -> None:
    """Prometheus' own headers get OpenMetrics, compressed, and complete to its end mark."""
    accept = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    answer = ask(site(snapshot(), registry=registry), "/metrics", accept=accept, accept_encoding="gzip")
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-encoding"] == "gzip"
    text = gzip.decompress(answer.body).decode()
    assert text.endswith('b_many{n="199"} 199.0\n# EOF\n')


def test_small_answers_are_not_compressed(registry: CollectorRegistry) -> None:
    """What fits a packet stays as it is, and name[] leaves only what it names."""
    answer = ask(
        site(snapshot(), registry=registry), "/metrics", query="name[]=a_small", accept_encoding="gzip"
    )
    assert "content-encoding" not in answer.headers
    assert answer.text.splitlines() == ["# HELP a_small One.", "# TYPE a_small gauge", "a_small 1.0"]


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text;version=abc", "text/plain;version=x.y", "\xff"]
)
def test_a_strange_accept_header_gets_the_default(registry: CollectorRegistry, accept: str) -> None:
    """A version that is not a number is the client's mistake, and no failure of the scrape."""
    assert ask(site(snapshot(), registry=registry), "/metrics", accept=accept).status == 200


def test_a_failing_scrape_is_500_and_logged(
    registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """The client learns nothing of the inside; the log has the traceback."""
    broken = Gauge("c_broken", "Broken.", registry=registry)
    broken.set_function(lambda: 1 // 0)
    with caplog.at_level(logging.ERROR):
        answer = ask(site(snapshot(), registry=registry), "/metrics")
    assert (answer.status, answer.text) == (500, "500 Internal Server Error; the exporter's log says why\n")
    assert caplog.records[0].exc_info
    assert "division" not in answer.text


def test_readiness_waits_for_the_first_document() -> None:
    """Before it, ready is 503 with the reason, while healthy is 200."""
    waiting = site(snapshot(ready=False, up=False, last_error="timeout: no answer within 150s"))
    answer = ask(waiting, "/-/ready")
    assert answer.status == 503
    assert "http://169.254.169.254 yet: timeout: no answer within 150s" in answer.text
    assert ask(waiting, "/-/healthy").status == 200


def test_in_service_says_why_not() -> None:
    """A reason makes it 503."""
    answer = ask(site(snapshot(), in_service=lambda: "Reboot in 4 min"), "/-/in-service")
    assert (answer.status, answer.text) == (503, "Out of service: Reboot in 4 min\n")


@pytest.mark.parametrize(("enabled", "status", "count"), [(False, 403, 0), (True, 200, 1)])
def test_reload_needs_the_flag(enabled: bool, status: int, count: int) -> None:
    """Without --web.enable-lifecycle nothing is reloaded."""
    reloads = Reloads()
    answer = ask(site(snapshot(), reload=reloads, lifecycle_enabled=enabled), "/-/reload", "POST")
    assert (answer.status, reloads.count) == (status, count)


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (ConfigurationError("c.yml:3: imds.port: unknown key"), 500, "c.yml:3: imds.port: unknown key"),
        (StoppingError(), 503, "the exporter is stopping"),
    ],
)
def test_a_reload_that_fails_is_answered_with_the_reason(error: Exception, status: int, text: str) -> None:
    """The message has the file and the line; while the exporter stops, the status is 503."""
    answer = ask(site(snapshot(), reload=Reloads(error), lifecycle_enabled=True), "/-/reload", "POST")
    assert answer.status == status
    assert text in answer.text


def test_events_have_the_documented_shape() -> None:
    """Every field is there, times end in Z, what is unknown is null."""
    current = tracked(freeze(duration_seconds=None))
    ended = past(freeze(event_id="b", resources=("x",)), Transition.COMPLETED, ago=60)
    answer = ask(site(snapshot(current=(current,), past=(ended,))), "/api/v1/events")
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    body = json.loads(answer.text)
    assert list(body) == ["instance", "current", "past"]
    assert body["current"] == [
        {
            "id": FREEZE_ID,
            "ids": [FREEZE_ID],
            "type": "Freeze",
            "source": "Platform",
            "status": "Scheduled",
            "target": "self",
            "resources": ["WestNO_0", "WestNO_1"],
            "description": freeze().description,
            "not_before": "2026-03-04T22:12:00Z",
            "duration_seconds": None,
            "first_seen": "2026-03-04T21:59:00Z",
            "started": None,
            "ended": None,
            "outcome": None,
            "transitions": [{"transition": "scheduled", "at": "2026-03-04T21:59:00Z"}],
            "approval": {"state": None, "rule": None, "reason": None},
            "impact_seconds": None,
            "paused_seconds": None,
            "doubts": [],
        }
    ]
    assert (body["past"][0]["outcome"], body["past"][0]["target"]) == ("completed", "other")
    assert body["past"][0]["ended"] == "2026-03-04T21:59:00Z"


def test_status_tells_of_the_watch_and_the_house() -> None:
    """A problem makes it degraded, with its reason."""
    health = Health(HandClock())
    assert json.loads(ask(site(snapshot(), health=health), "/api/v1/status").text)["state"] == "ok"
    health.report(DegradedReason.STATE_UNWRITABLE, "/x: read-only file system")
    body = json.loads(ask(site(snapshot(), health=health), "/api/v1/status").text)
    assert body.pop("version")
    assert body == {
        "up": True,
        "ready": True,
        "last_success": "2026-03-04T21:59:59Z",
        "last_error": "",
        "started": "2026-03-04T22:00:00Z",
        "last_scrape": None,
        "document_incarnation": 7,
        "instance": "WestNO_0",
        "endpoint": "http://169.254.169.254",
        "state": "degraded",
        "problems": ["state_unwritable: /x: read-only file system"],
    }


def test_configured_headers_are_on_every_answer() -> None:
    """They beat the exporter's own, errors included."""
    settings = WebSettings(
        headers={"X-Frame-Options": "deny", "Content-Security-Policy": "default-src 'self'"}
    )
    for path in ("/", "/nowhere"):
        headers = ask(site(snapshot(), settings=lambda: settings), path).headers
        assert headers["x-frame-options"] == "deny"
        assert headers["content-security-policy"] == "default-src 'self'"
