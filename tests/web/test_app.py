"""The routes: what answers, with what status and headers, to whom."""

import asyncio
import gzip
import json
import logging
import threading
from collections.abc import Iterator

import pytest
import requests
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import GaugeMetricFamily

from exporter.errors import ConfigurationError, StoppingError
from exporter.health import DegradedReason, Health
from exporter.model.lifecycle import Transition
from exporter.web.app import WebApp
from exporter.web.rendering import MOST_IN_WORK
from exporter.web.webfile import WebSettings
from tests.builders import FREEZE_ID
from tests.clocks import HandClock
from tests.web.support import Answer, Reloads, ask, call, freeze, life, past, served, site, snapshot

PATHS = ("/", "/metrics", "/api/v1/events", "/api/v1/status", "/-/healthy", "/-/ready", "/-/in-service")


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("a_small", "One.", registry=registry).set(1)
    many = Gauge("b_many", "Many.", ["n"], registry=registry)
    for number in range(200):
        many.labels(str(number)).set(number)
    return registry


def test_no_answer_is_cached_or_sniffed() -> None:
    """Every answer forbids caching and guessing of types; HEAD has status and headers of GET, and no body."""
    with served(site(snapshot())) as port, requests.Session() as session:
        for path in (*PATHS, "/nowhere"):
            get, head = (session.request(way, f"http://127.0.0.1:{port}{path}") for way in ("GET", "HEAD"))
            assert (head.status_code, head.content) == (get.status_code, b"")
            assert {**get.headers, "date": ""} == {**head.headers, "date": ""}
            assert get.headers["content-length"] == str(len(get.content))
            assert get.headers["cache-control"] == "no-store"
            assert get.headers["x-content-type-options"] == "nosniff"
            assert "charset=utf-8" in get.headers["content-type"]


@pytest.mark.parametrize(
    ("method", "paths", "status", "text"),
    [
        ("GET", "/ // /?x=1 /-/healthy/ /-/healthy?x=1&y", 200, ""),
        ("GET", "/nowhere /metrics/x /api /-", 404, "404 Not Found; / lists what there is\n"),
        ("POST", "/metrics /", 405, "GET, HEAD"),
        ("DELETE", "/metrics", 405, "GET, HEAD"),
        ("OPTIONS", "/metrics", 405, "GET, HEAD"),
        ("GET", "/-/reload", 405, "POST"),
        ("PUT", "/-/reload", 405, "POST"),
        ("OPTIONS", "/-/reload", 405, "POST"),
    ],
)
def test_routes(method: str, paths: str, status: int, text: str) -> None:
    """Slashes at the end and unknown queries do not matter; 405 comes with Allow, and reloads nothing."""
    reloads = Reloads()
    where = site(snapshot(), reload=reloads, lifecycle_enabled=True)
    for path, _, query in (one.partition("?") for one in paths.split()):
        answer = ask(where, path, method, query)
        assert answer.status == status
        assert text in (answer.headers.get("allow"), answer.text, "")
    assert reloads.count == 0


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "application/openmetrics-text;version=abc",
        "text/plain;version=x.y",
        "text/plain, application/openmetrics-text;version=1.0.0; q=0",
        "\xff",
    ],
)
def test_metrics_come_as_prometheus_text_by_default(registry: CollectorRegistry, accept: str) -> None:
    """Uncompressed; a version that is not a number is the client's mistake, and no failure of the scrape."""
    answer = ask(site(snapshot(), registry=registry), "/metrics", accept=accept)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "a_small 1.0\n" in answer.text


def test_metrics_come_as_openmetrics_and_gzip_where_asked(registry: CollectorRegistry) -> None:
    """Prometheus' own headers get OpenMetrics, complete to its end mark, compressed unless it is small."""
    where = site(snapshot(), registry=registry)
    accept = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    answer = ask(where, "/metrics", accept=accept, accept_encoding="gzip")
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(answer.body).decode().endswith('b_many{n="199"} 199.0\n# EOF\n')
    for weight, expected in ((0.6, "application/openmetrics-text"), (0.8, "text/plain; version=1.0.0")):
        weighted = f"text/plain;version=1.0.0;q={weight},application/openmetrics-text;q=0.7"
        assert ask(where, "/metrics", accept=weighted).headers["content-type"].startswith(expected)
    answer = ask(where, "/metrics", accept=accept, accept_encoding="gzip;q=0.000, identity;q=0.5, *;Q=0")
    assert "content-encoding" not in answer.headers
    answer = ask(where, "/metrics", query="name[]=a_small", accept_encoding="gzip")
    assert "content-encoding" not in answer.headers
    assert answer.text.splitlines() == ["# HELP a_small One.", "# TYPE a_small gauge", "a_small 1.0"]


def test_a_failing_scrape_is_500_and_logged(
    registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """The client learns nothing of the inside; the log has the traceback."""
    broken = Gauge("c_broken", "Broken.", registry=registry)
    broken.set_function(lambda: 1 // 0)
    with caplog.at_level(logging.ERROR):
        answer = ask(site(snapshot(), registry=registry), "/metrics")
    assert (answer.status, answer.text) == (500, "500 Internal Server Error; see the exporter's log\n")
    assert caplog.records[0].exc_info
    assert "division" not in answer.text


def test_probes_say_why_not() -> None:
    """Ready is 503 before the first document, in-service where there is a reason; healthy is 200."""
    waiting = site(
        snapshot(ready=False, up=False, last_error="timeout: no answer within 150s"),
        in_service=lambda: "Reboot in 4 min",
    )
    answer = ask(waiting, "/-/ready")
    assert answer.status == 503
    assert "http://169.254.169.254 yet: timeout: no answer within 150s" in answer.text
    assert ask(waiting, "/-/healthy").status == 200
    answer = ask(waiting, "/-/in-service")
    assert (answer.status, answer.text) == (503, "Out of service: Reboot in 4 min\n")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "https://vm:9843", "host": "VM:9843", "sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "none", "host": "vm:9843"}, 200),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"origin": "http://evil.example", "host": "vm:9843"}, 403),
        ({"origin": "http://vm:80", "host": "vm:9843"}, 403),
        ({"origin": "null", "host": "vm:9843"}, 403),
    ],
)
def test_pages_of_other_sites_cannot_reload(headers: dict[str, str], status: int) -> None:
    """Browsers say which site's page sends a request, other clients nothing; without the flag nobody can."""
    reloads = Reloads()
    assert ask(site(snapshot(), reload=reloads), "/-/reload", "POST", **headers).status == 403
    answer = ask(site(snapshot(), reload=reloads, lifecycle_enabled=True), "/-/reload", "POST", **headers)
    assert (answer.status, reloads.count) == (status, status == 200)


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
    current = life(freeze(duration_seconds=None))
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
            "changed_to": None,
            "transitions": [{"transition": "scheduled", "at": "2026-03-04T21:59:00Z"}],
            "approval": {"state": None, "rule": None, "reason": None},
            "impact_seconds": None,
            "paused_seconds": None,
            "doubts": [],
        }
    ]
    assert (body["past"][0]["outcome"], body["past"][0]["target"]) == ("completed", "other")
    assert body["past"][0]["ended"] == "2026-03-04T21:59:00Z"


def test_past_events_come_in_pages() -> None:
    """A hundred at a time, newest first; a page that is not a number from 1 is refused."""
    gone = tuple(past(freeze(event_id=str(n)), Transition.VANISHED, ago=n) for n in range(200))
    where = site(snapshot(past=gone))
    answers = [ask(where, "/api/v1/events", query=f"page=x&page={n}") for n in (1, 2, 3)]
    pages = [json.loads(answer.text) for answer in answers]
    assert [len(page["past"]) for page in pages] == [100, 100, 0]
    assert [event["id"] for page in pages for event in page["past"]] == [str(n) for n in range(200)]
    links = [answer.headers.get("link") for answer in answers]
    assert links == ['<?page=2>; rel="next"', None, None]
    for wrong in ("x", "0", "00", "-1", "1e3", "9" * 100, "\u0663"):
        assert ask(where, "/api/v1/events", query=f"page={wrong}").status == 400


class Slow:
    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.allowed = threading.Semaphore(0)
        self.count = 0

    def collect(self) -> Iterator[GaugeMetricFamily]:
        self.begun.release()
        assert self.allowed.acquire(timeout=30)
        self.count += 1
        yield GaugeMetricFamily("turn", "Number of the rendering.", value=self.count)


def test_a_flood_of_scrapes_costs_two_renderings(registry: CollectorRegistry) -> None:
    """Those that arrive during one share the next, which is newer; probes are answered meanwhile."""
    slow = Slow()
    app = WebApp(site(snapshot(), registry=registry))
    registry.register(slow)

    async def flood() -> list[Answer]:
        first = asyncio.create_task(call(app, "/metrics"))
        await asyncio.to_thread(slow.begun.acquire, timeout=30)
        others = [asyncio.create_task(call(app, "/metrics")) for _ in range(MOST_IN_WORK + 9)]
        assert (await call(app, "/-/healthy")).status == 200
        others.pop(0).cancel()
        slow.allowed.release(3)
        answers = await asyncio.gather(first, *others)
        assert slow.count == 2
        assert "turn 3.0" in (await call(app, "/metrics")).text
        return answers

    answers = asyncio.run(flood())
    assert [answer.status for answer in answers] == [200] * MOST_IN_WORK + [503] * 9
    assert {answer.headers.get("retry-after") for answer in answers[-9:]} == {"1"}
    assert ["turn 1.0" in answer.text for answer in answers[:-9]] == [True] + [False] * (MOST_IN_WORK - 1)


def test_status_tells_of_the_watch_and_the_house() -> None:
    """A problem makes it degraded, with its reason."""
    clock = HandClock()
    health = Health(clock)
    assert json.loads(ask(site(snapshot(), health=health), "/api/v1/status").text)["state"] == "ok"
    health.report(DegradedReason.STATE_UNWRITABLE, "/x: read-only file system")
    app = WebApp(site(snapshot(last_error="no answer"), health=health, clock=clock))
    clock.pass_seconds(5)
    ask(app, "/metrics")
    body = json.loads(ask(app, "/api/v1/status").text)
    assert body.pop("version")
    assert body == {
        "up": True,
        "ready": True,
        "last_success": "2026-03-04T21:59:59Z",
        "last_error": "no answer",
        "started": "2026-03-04T22:00:00Z",
        "last_scrape": "2026-03-04T22:00:05Z",
        "kubernetes": None,
        "configuration": None,
        "targets": [],
        "document_incarnation": 7,
        "instance": "WestNO_0",
        "endpoint": "http://169.254.169.254",
        "api_version": "2020-07-01",
        "state": "degraded",
        "problems": ["imds_failing: no answer", "state_unwritable: /x: read-only file system"],
        "last_status": 0,
        "instance_api_version": "",
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
