"""Over HTTP the exporter can only be read and, if that is allowed, reloaded."""

import contextlib
import http.client
import itertools
import json
import re
from typing import Any
from urllib.parse import urlsplit

from tests.bench import Bench, Build
from tests.builders import FREEZE_ID, REBOOT_ID, raw_event
from tests.state_support import on_disk
from tests.web.support import application

ROUTES = tuple(application().routes)
GUESSES = (
    "/-/quit",
    "/-/approve",
    f"/-/approve/{REBOOT_ID}",
    "/-/hooks/note",
    "/-/notify",
    "/api/v1/approve",
    f"/api/v1/events/{REBOOT_ID}",
    f"/api/v1/events/{REBOOT_ID}/approve",
    "/api/v1/hooks/note/run",
    f"/api/v1/events?approve={REBOOT_ID}",
    "/metadata/scheduledevents?api-version=2020-07-01",
    "/%2d/reload",
    "/-/reload/../reload",
    "*",
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "APPROVE")
APPROVAL = json.dumps({"StartRequests": [{"EventId": REBOOT_ID}]})
RELOADED = "config_last_reload_success_timestamp_seconds"
COUNTED = re.compile(
    r"^azure_scheduled_events_(?:transitions|notifications|approvals|hooks)_total\{.*$", re.MULTILINE
)
EVERYTHING = """
notifications: {targets: [{name: oncall, url: 'json://receiver.test'}]}
hooks: [{name: note, command: [note]}]
approval: {mode: 'on', rules: [{name: freezes, action: approve, match: {event_types: [Freeze]}}]}
"""


def state(bench: Bench) -> dict[str, Any]:
    """Return all that may not change, some polls later."""
    bench.advance(5)
    return {
        "stored": [on_disk(bench.state, kind) for kind in ("event", "notifications", "hooks", "approval")],
        "events": bench.request("/api/v1/events")[1],
        "counted": COUNTED.findall(bench.request("/metrics")[1]),
        "hooks": len(bench.commands),
        "messages": len(bench.sent()),
        "approvals": bench.posts,
    }


def ask(bench: Bench, method: str, path: str) -> int:
    address = urlsplit(bench.app.url).netloc
    with contextlib.closing(http.client.HTTPConnection(address, timeout=200)) as connection:
        connection.request(method, path, APPROVAL, {"Metadata": "true", "Content-Type": "application/json"})
        return connection.getresponse().status


def test_no_request_changes_anything(build: Build) -> None:
    """Every method on every route, and on paths that others have for such things, leaves all as it was."""
    bench = build(EVERYTHING, enable_lifecycle=False)
    bench.show(raw_event(), raw_event(EventId=REBOOT_ID, EventType="Reboot"))
    before, reloaded = state(bench), bench.metric(RELOADED)
    assert (bench.approved, before["hooks"], before["messages"]) == ([FREEZE_ID], 3, 3)
    assert all(before["stored"])
    statuses = {
        (method, path): ask(bench, method, path)
        for method, path in itertools.product(METHODS, (*ROUTES, *GUESSES))
    }
    assert (state(bench), bench.metric(RELOADED)) == (before, reloaded)
    answered = {(method, path) for (method, path), status in statuses.items() if status < 400}
    assert {method for method, _ in answered} == {"GET", "HEAD"}
    assert {path for _, path in answered} == {*ROUTES, GUESSES[9]} - {"/-/reload"}
    assert all(statuses["POST", path] == 403 for path in ("/-/reload", "/%2d/reload"))
