"""The hooks of `examples/silence`, with a real Alertmanager and a stand-in of PagerDuty."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from scripts.project import ROOT
from tests.alerts.support import alertmanager
from tests.end_to_end.program import get
from tests.http_server import Connection, Request, answer, serving

SILENCE = ROOT / "examples" / "silence"
EVENT = {"EVENT_ID": "C7061BAC", "EVENT_TYPE": "Reboot", "INSTANCE_NAME": "web-1"}


def run(hook: str, transition: str, *words: str, **environ: str) -> None:
    """Run a hook for a transition; it must succeed."""
    told = EVENT | {"EVENT_TRANSITION": transition}
    subprocess.run([SILENCE / hook, *words], env=os.environ | told | environ, timeout=240, check=True)


def test_alertmanager_is_silent_while_the_event_lasts(tmp_path: Path) -> None:
    """There is one silence, for the VM alone, which a second transition extends and the end expires."""
    with alertmanager(tmp_path) as url:
        for transition, hours in (("imminent", "1"), ("started", "3")):
            run("alertmanager", transition, url, "vm", SILENCE_HOURS=hours)
        run("alertmanager", "started", url, "vm", INSTANCE_NAME="web-2")
        run("alertmanager", "completed", url, "vm")
        silences = json.loads(get(f"{url}/api/v2/silences"))
    states: dict[str, list[str]] = {}
    for one in silences:
        (matcher,) = one["matchers"]
        assert matcher["name"] == "vm"
        states.setdefault(matcher["value"], []).append(one["status"]["state"])
    assert set(states.pop("web-1")) == {"expired"}
    assert states == {"web-2": ["active"]}


@pytest.mark.parametrize("ending", ["completed", "cancelled", "vanished"])
def test_pagerduty_has_a_window_while_the_event_lasts(tmp_path: Path, ending: str) -> None:
    """One window is opened, and deleted at the end."""
    windows: dict[str, dict[str, object]] = {}

    def pagerduty(connection: Connection, request: Request) -> None:
        assert request.headers["authorization"] == "Token token=secret"
        assert request.headers["from"] == "me@example.com"
        if request.method == "POST":
            windows["P1"] = json.loads(request.body)["maintenance_window"] | {"id": "P1"}
        if request.method == "DELETE":
            windows.pop(request.path.rpartition("/")[2])
        connection.send(answer(json.dumps({"maintenance_windows": list(windows.values())}).encode()))

    (tmp_path / "token").write_text("secret\n")
    with serving(pagerduty) as server:
        words = (str(tmp_path / "token"), "me@example.com", "PSERVICE")
        for transition in ("imminent", "started"):
            run("pagerduty", transition, *words, PAGERDUTY_URL=server.url)
            assert [window["services"] for window in windows.values()] == [
                [{"id": "PSERVICE", "type": "service_reference"}]
            ]
        run("pagerduty", ending, *words, PAGERDUTY_URL=server.url)
    assert not windows
