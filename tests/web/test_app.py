"""The routes: what answers, with what status and headers, to whom."""

import json
import logging
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from unittest.mock import Mock

import pytest
import requests
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import GaugeMetricFamily

from exporter import __version__
from exporter.errors import ConfigurationError, StoppingError
from exporter.health import DegradedReason
from exporter.metrics import Metrics
from exporter.simulator import Fault
from exporter.web.app import MOST_IN_WORK
from exporter.web.webfile import WebSettings
from tests.bench import Build
from tests.builders import FREEZE_ID, raw_event
from tests.clocks import NOW
from tests.web.support import Scene, application, ask, served

PATHS = ("/", "/metrics", "/api/v1/events", "/api/v1/status", "/-/healthy", "/-/ready", "/-/in-service")


def test_no_answer_is_cached_or_sniffed() -> None:
    """Nor does it name the server; HEAD has status and headers of GET, and no body."""
    with served(Scene()) as port, requests.Session() as session:
        session.headers["accept-encoding"] = "identity"
        for path in (*PATHS, "/nowhere"):
            get, head = (session.request(way, f"http://127.0.0.1:{port}{path}") for way in ("GET", "HEAD"))
            assert (head.status_code, head.content) == (get.status_code, b"")
            assert {**get.headers, "date": ""} == {**head.headers, "date": ""}
            assert get.headers["content-length"] == str(len(get.content))
            assert get.headers["cache-control"] == "no-store"
            assert get.headers["x-content-type-options"] == "nosniff"
            assert "server" not in get.headers
            assert "charset=utf-8" in get.headers["content-type"]


def test_routes(build: Build) -> None:
    """Slashes at the end and unknown queries do not matter; 405 comes with Allow, and reloads nothing."""
    bench = build()
    for method, paths, status, expected in (
        ("GET", "/ // /?x=1 /-/healthy/ /-/healthy?x=1&y", 200, ""),
        ("GET", "/nowhere /metrics/x /api /-", 404, "404 Not Found; start at /\n"),
        ("POST", "/metrics /", 405, "GET, HEAD"),
        ("DELETE", "/metrics", 405, "GET, HEAD"),
        ("OPTIONS", "/metrics", 405, "GET, HEAD"),
        ("GET", "/-/reload", 405, "POST"),
        ("PUT", "/-/reload", 405, "POST"),
        ("OPTIONS", "/-/reload", 405, "POST"),
    ):
        for path in paths.split():
            answer = requests.request(method, bench.app.url + path, timeout=60)
            assert answer.status_code == status
            assert expected in (answer.headers.get("allow"), answer.text, "")
    assert bench.metric("config_last_reload_success_timestamp_seconds") == NOW.timestamp()


def test_metrics_come_as_prometheus_text_by_default(build: Build) -> None:
    """Uncompressed; a version that is not a number is the client's mistake, and no failure of the scrape."""
    url = f"{build().app.url}/metrics"
    for accept in (
        "",
        "application/openmetrics-text;version=abc",
        "text/plain;version=x.y",
        "text/plain, application/openmetrics-text;version=1.0.0; q=0",
        "\xff",
    ):
        answer = requests.get(url, headers={"accept": accept, "accept-encoding": "identity"}, timeout=60)
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "azure_scheduled_events_up 1.0\n" in answer.text


def test_metrics_come_as_openmetrics_and_gzip_where_asked(build: Build) -> None:
    """Prometheus' own headers get OpenMetrics, complete to its end mark, compressed unless it is small."""
    url = f"{build().app.url}/metrics"

    def scraped(accept: str, accept_encoding: str = "gzip", query: str = "") -> requests.Response:
        headers = {"accept": accept, "accept-encoding": accept_encoding}
        return requests.get(url + query, headers=headers, timeout=60)

    accept = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    answer = scraped(accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.text.endswith("\n# EOF\n")
    for weight, expected in ((0.6, "application/openmetrics-text"), (0.8, "text/plain; version=1.0.0")):
        weighted = f"text/plain;version=1.0.0;q={weight},application/openmetrics-text;q=0.7"
        assert scraped(weighted).headers["content-type"].startswith(expected)
    assert "content-encoding" not in scraped(accept, "gzip;q=0.000, identity;q=0.5, *;Q=0").headers
    answer = scraped("", query="?name[]=azure_scheduled_events_up")
    assert "content-encoding" not in answer.headers
    assert answer.text.splitlines()[2:] == ["azure_scheduled_events_up 1.0"]


def test_a_failing_scrape_is_500_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The client learns nothing of the inside; the log has the traceback."""
    metrics = Metrics(CollectorRegistry())
    Gauge("broken", "Broken.", registry=metrics.registry).set_function(lambda: 1 // 0)
    with caplog.at_level(logging.ERROR):
        answer = ask(application(metrics=metrics), "/metrics")
    assert (answer.status, answer.text) == (500, "500 Internal Server Error; see the exporter's log\n")
    assert caplog.records[0].exc_info
    assert "division" not in answer.text


@pytest.mark.parametrize("is_allowed", [False, True])
def test_pages_of_other_sites_cannot_reload(build: Build, is_allowed: bool) -> None:
    """Browsers say which site's page sends a request, other clients nothing; without the flag nobody can."""
    bench = build(enable_lifecycle=is_allowed)
    for headers, status in (
        ({}, 200),
        ({"origin": "https://vm:9843", "host": "VM:9843", "sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none", "host": "vm:9843"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"origin": "http://evil.example", "host": "vm:9843"}, 403),
        ({"origin": "http://vm:80", "host": "vm:9843"}, 403),
        ({"origin": "null", "host": "vm:9843"}, 403),
    ):
        assert bench.reload(**headers) == (status if is_allowed else 403)


def test_a_reload_that_fails_is_answered_with_the_reason() -> None:
    """The message has the file and the line; while the exporter stops, the status is 503."""
    reload = Mock(side_effect=ConfigurationError("c.yml:3: imds.port: unknown key"))
    answer = ask(application(reload=reload), "/-/reload", "POST")
    assert answer.status == 500
    assert "c.yml:3: imds.port: unknown key" in answer.text
    reload.side_effect = StoppingError
    answer = ask(application(reload=reload), "/-/reload", "POST")
    assert (answer.status, answer.text) == (503, "503 Service Unavailable; the exporter is stopping\n")


def test_events_have_the_documented_shape(build: Build) -> None:
    """Every field is there, times end in Z, what is unknown is null."""
    bench = build()
    bench.show(raw_event(EventId="b", EventStatus="Started", NotBefore="", Resources=["x"]))
    bench.show(raw_event(DurationInSeconds=-1))
    body = json.loads(bench.request("/api/v1/events")[1])
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
            "description": "Virtual machine is being paused.",
            "not_before": "2026-03-04T22:15:00Z",
            "duration_seconds": None,
            "first_seen": "2026-03-04T22:00:02Z",
            "started": None,
            "ended": None,
            "outcome": None,
            "changed_to": None,
            "left": False,
            "transitions": [{"transition": "scheduled", "at": "2026-03-04T22:00:02Z"}],
            "approval": {"state": None, "rule": None, "reason": None},
            "impact_seconds": None,
            "paused_seconds": None,
            "doubts": [],
        }
    ]
    (past,) = body["past"]
    ends = (past["outcome"], past["target"], past["ended"], past["impact_seconds"])
    assert ends == ("completed", "other", "2026-03-04T22:00:02Z", 1.0)


def test_past_events_come_in_pages(build: Build) -> None:
    """A hundred at a time; a page that is not a number from 1 is refused."""
    bench = build()
    bench.show(*(raw_event(EventId=str(number)) for number in range(200)))
    bench.show()
    url = f"{bench.app.url}/api/v1/events?page="
    answers = [requests.get(f"{url}x&page={n}", timeout=60) for n in (1, 2, 3)]
    pages = [answer.json()["past"] for answer in answers]
    assert [len(page) for page in pages] == [100, 100, 0]
    assert {event["id"] for page in pages for event in page} == set(map(str, range(200)))
    links = [answer.headers.get("link") for answer in answers]
    assert links == ['<?page=2>; rel="next"', None, None]
    for wrong in ("x", "0", "00", "-1", "1e3", "9" * 100, "\u0663"):
        assert requests.get(url + wrong, timeout=60).status_code == 400


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


def test_a_flood_of_scrapes_costs_two_renderings() -> None:
    """Those that arrive during one share the next, which is newer; probes are answered meanwhile."""
    slow, metrics = Slow(), Metrics(CollectorRegistry())
    metrics.registry.register(slow)
    slow.count = 0
    app = application(metrics=metrics)

    with ThreadPoolExecutor(MOST_IN_WORK + 9) as pool:
        first = pool.submit(ask, app, "/metrics")
        assert slow.begun.acquire(timeout=30)
        others = [pool.submit(ask, app, "/metrics") for _ in range(MOST_IN_WORK + 8)]
        refused = [other.result() for other in islice(as_completed(others, timeout=30), 9)]
        assert ask(app, "/-/healthy").status == 200
        slow.allowed.release(3)
    assert slow.count == 2
    assert "turn 3.0" in ask(app, "/metrics").text
    assert {(answer.status, answer.headers.get("retry-after")) for answer in refused} == {(503, "1")}
    shared = [other.result() for other in others if other.result().status == 200]
    assert "turn 1.0" in first.result().text
    assert len(shared) == MOST_IN_WORK - 1
    assert all("turn 2.0" in answer.text for answer in shared)


def test_status_tells_of_the_watch_and_of_problems(build: Build) -> None:
    """A problem makes it degraded, with its reason, which is on the page, too."""
    bench = build()
    assert json.loads(bench.request("/api/v1/status")[1])["state"] == "ok"
    bench.app.health.report(DegradedReason.STATE_UNWRITABLE, "/x: read-only file system")
    page = " ".join(re.sub("<.*?>", "", bench.request("/")[1]).split())
    assert "Watching, but degraded" in page
    assert "state unwritable: /x: read-only file system since Wed 4 Mar, 22:00:00 UTC" in page
    bench.request("/metrics")
    bench.simulator.set_fault(Fault("error"))
    bench.advance(5)
    body = json.loads(bench.request("/api/v1/status")[1])
    failing, unwritable = body.pop("problems")
    assert failing == f"imds_failing: {body.pop('last_error')}"
    assert unwritable == "state_unwritable: /x: read-only file system"
    known = {"state": "degraded", "up": False, "ready": True, "last_status": 500, "instance": "WestNO_0"}
    known |= dict.fromkeys(("last_success", "started", "last_scrape"), "2026-03-04T22:00:00Z")
    assert body | known | {"version": __version__, "endpoint": bench.imds.url} == body


def test_configured_headers_are_on_every_answer() -> None:
    """They beat the exporter's own, errors included."""
    settings = WebSettings(
        headers={"X-Frame-Options": "deny", "Content-Security-Policy": "default-src 'self'"}
    )
    for path in ("/", "/nowhere"):
        headers = ask(application(settings=lambda: settings), path).headers
        assert headers["x-frame-options"] == "deny"
        assert headers["content-security-policy"] == "default-src 'self'"
