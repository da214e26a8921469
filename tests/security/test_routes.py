"""Over HTTP the running exporter can only be read and, if that is allowed, reloaded."""

import contextlib
import http.client
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.web.app import WebApp
from tests.builders import FREEZE_ID, REBOOT_ID
from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.http_server import serving
from tests.notifications.receivers import Receiver, http_receiver
from tests.security.support import FLAGS, Azure, approved, configuration, rows, runs
from tests.web.support import site, snapshot

ROUTES = tuple(WebApp(site(snapshot())).routes)
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
RELOADED = re.compile(
    r"^azure_scheduled_events_config_last_reload_success_timestamp_seconds .*$", re.MULTILINE
)
COUNTED = re.compile(
    r"^azure_scheduled_events_(?:transitions|notifications|approvals|hooks)_total\{.*$", re.MULTILINE
)


@dataclass
class Running:
    """A running exporter that has nothing left to do, and all that it could touch."""

    folder: Path
    azure: Azure
    receiver: Receiver
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def settled(self) -> bool:
        """Return whether all is done: three messages, one approval, one hook."""
        delivered = 'notifications_total{outcome="delivered",target="oncall"} 3.0'
        return (
            approved(self.url)
            and delivered in get(f"{self.url}/metrics")
            and runs(self.folder) == [FREEZE_ID]
        )

    def state(self) -> dict[str, Any]:
        """Return all that may not change, once IMDS was polled two more times."""
        polls = self.azure.polls
        eventually(lambda: self.azure.polls >= polls + 2)
        return {
            "rows": rows(self.folder / "state"),
            "events": get(f"{self.url}/api/v1/events"),
            "counted": COUNTED.findall(get(f"{self.url}/metrics")),
            "hooks": runs(self.folder),
            "messages": len(self.receiver.requests),
            "approvals": tuple(self.azure.approvals),
        }

    def reloaded(self) -> list[str]:
        """Return the metric with the time at which the configuration was last read."""
        return RELOADED.findall(get(f"{self.url}/metrics"))

    def ask(self, method: str, path: str) -> int:
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=200)
        ) as connection:
            connection.request(
                method, path, APPROVAL, {"Metadata": "true", "Content-Type": "application/json"}
            )
            return connection.getresponse().status


@contextlib.contextmanager
def running_in(folder: Path, *flags: str) -> Iterator[Running]:
    """Run an exporter with everything on until it has nothing to do."""
    azure, port = Azure(), free_port()
    given = ("--config.file", str(configuration(folder)), *FLAGS, *flags)
    with serving(azure.respond) as imds, http_receiver() as receiver:
        environ = {"ONCALL_URL": f"json://{receiver.authority}"}
        with exporter(imds.url, folder / "state", port, *given, environ=environ):
            found = Running(folder, azure, receiver, port)
            eventually(found.settled)
            yield found


def test_no_request_changes_anything(tmp_path: Path) -> None:
    """Every method on every route, and on paths that others have for such things, leaves all as it was."""
    with running_in(tmp_path) as running:
        before, reloaded = running.state(), running.reloaded()
        assert [json.loads(approval)["StartRequests"][0]["EventId"] for approval in before["approvals"]] == [
            FREEZE_ID
        ]
        statuses = {
            (method, path): running.ask(method, path)
            for method, path in itertools.product(METHODS, (*ROUTES, *GUESSES))
        }
        assert running.state() == before
        assert running.reloaded() == reloaded
    answered = {(method, path) for (method, path), status in statuses.items() if status < 400}
    assert {method for method, _ in answered} == {"GET", "HEAD"}
    # The Reboot has this VM out of service.
    assert {path for _, path in answered} == {*ROUTES, GUESSES[9]} - {"/-/reload", "/-/in-service"}
    assert all(statuses["POST", path] == 403 for path in ("/-/reload", "/%2d/reload"))


def test_a_reload_by_post_is_all_that_can_be_allowed(tmp_path: Path) -> None:
    """With the flag POST reads the configuration again, no other method does, and nothing else changes."""
    with running_in(tmp_path, "--web.enable-lifecycle") as running:
        before, reloaded = running.state(), running.reloaded()
        for method, path in itertools.product(METHODS, ROUTES):
            if (method, path) != ("POST", "/-/reload"):
                running.ask(method, path)
        assert running.reloaded() == reloaded
        assert running.ask("POST", "/-/reload") == 200
        assert running.reloaded() != reloaded
        assert running.state() == before
