"""Pictures for the README: `python -m scripts.pictures.page [FOLDER]`.

A real exporter polls a simulated Azure. The pictures show its page in Chromium, and the mail that it sent.
"""

import base64
import html
import io
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver

from exporter.simulator import Simulator, SimulatorServer
from tests.browser import chromium
from tests.docs.pages import DOCS
from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.notifications.receivers import mail_receiver

_VM, _NEIGHBOUR = "web_0", "web_1"
_EXPECTED = "Reboot scheduled: web_0 in 15 min"
# The second is for the poll, and for NotBefore, which has whole seconds.
_NOTICE = timedelta(minutes=15, seconds=1)
_CONFIGURATION = """
notifications:
  targets: [{{name: oncall, url: "{mail}"}}]
  routes: [{{match: {{event_types: [Reboot], transitions: [scheduled]}}, targets: [oncall]}}]
approval:
  mode: on
  rules:
    - {{name: short-freeze, match: {{event_types: [Freeze], max_duration: 8s}}, action: approve, delay: 1h}}
    - {{name: drained-reboot, match: {{event_types: [Reboot]}}, action: approve, require_hooks: [drain]}}
hooks:
  - {{name: drain, match: {{event_types: [Reboot], transitions: [scheduled]}}, command: [sleep, "60"]}}
"""
_MAIL = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 20px 24px; font: 15px/1.5 "DejaVu Sans", sans-serif; color: #1f2328;
background: #fff; overflow-wrap: anywhere }}
h1 {{ font-size: 18px; margin: 0 0 4px }} header {{ border-bottom: 1px solid #d0d7de; padding-bottom: 12px;
margin-bottom: 16px; color: #59636e; font-size: 13px }} header h1 {{ color: #1f2328 }}
</style><header><h1>{subject}</h1>{sender} to {recipient}</header>{body}"""


def main() -> None:
    """Play, and take both pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "images"
    with (
        tempfile.TemporaryDirectory() as work,
        chromium(Path(work) / "profile", "hide-scrollbars") as browser,
    ):
        simulator = Simulator(vm_name=_VM)
        simulator.set_document(_document(1))
        with SimulatorServer(simulator) as imds, mail_receiver() as mailbox:
            file = Path(work) / "exporter.yml"
            address = f"mailto://127.0.0.1:{mailbox.port}/?from=azure@example.com&to=oncall@example.com"
            file.write_text(_CONFIGURATION.format(mail=address))
            port = free_port()
            flags = ("--config.file", str(file), "--poll.interval", "200ms")
            with exporter(imds.url, Path(work) / "state", port, *flags):
                _play(simulator, f"http://127.0.0.1:{port}")
                mail = eventually(
                    lambda: [one for one in mailbox.mails if one["Subject"].endswith(_EXPECTED)]
                )[0]
                browser.get(f"http://127.0.0.1:{port}/")
                _save(browser, folder / "page.png", width=900)
        page = Path(work) / "mail.html"
        page.write_text(_shown(mail))
        browser.get(page.as_uri())
        _save(browser, folder / "message.png", width=760)


def _play(simulator: Simulator, url: str) -> None:
    """Complete a freeze and cancel a reboot, then announce a reboot and a neighbour's freeze."""
    freeze = _event("Freeze", 1, [_VM, _NEIGHBOUR], duration=5)
    _serve(simulator, url, 2, freeze)
    _serve(simulator, url, 3, freeze | {"EventStatus": "Started", "NotBefore": ""})
    time.sleep(6)
    _serve(simulator, url, 4, _event("Reboot", 2, [_VM], duration=60, notice=timedelta(minutes=10)))
    _serve(simulator, url, 5)
    time.sleep((0.7 - time.time()) % 1)
    reboot = _event("Reboot", 3, [_VM], duration=90)
    _serve(simulator, url, 6, reboot, _event("Freeze", 4, [_NEIGHBOUR], duration=5))


def _serve(simulator: Simulator, url: str, incarnation: int, *events: Mapping[str, Any]) -> None:
    simulator.set_document(_document(incarnation, *events))
    status = f"{url}/api/v1/status"
    eventually(lambda: json.loads(get(status))["document_incarnation"] == incarnation)


def _document(incarnation: int, *events: Mapping[str, Any]) -> dict[str, Any]:
    return {"DocumentIncarnation": incarnation, "Events": list(events)}


def _event(
    event_type: str, number: int, names: list[str], *, duration: int, notice: timedelta = _NOTICE
) -> dict[str, Any]:
    what = {
        "Freeze": "Virtual machine is being paused because of a memory-preserving Live Migration operation.",
        "Reboot": "Virtual machine is going to be restarted because of maintenance of its host.",
    }
    return {
        "EventId": f"C7061BAC-AFDC-4513-B24B-AA5F13A1612{number}",
        "EventStatus": "Scheduled",
        "EventType": event_type,
        "ResourceType": "VirtualMachine",
        "Resources": names,
        "NotBefore": format_datetime(datetime.now(UTC) + notice, usegmt=True),
        "Description": what[event_type],
        "EventSource": "Platform",
        "DurationInSeconds": duration,
    }


def _shown(mail: EmailMessage) -> str:
    """Return a page that shows a mail as programs for mail do: its subject, people, and HTML body."""
    body = mail.get_body(("html",))
    if body is None:
        raise ValueError("the mail has no HTML")
    fields = {"subject": mail["Subject"], "sender": mail["From"], "recipient": mail["To"]}
    return _MAIL.format(body=body.get_content(), **{name: html.escape(text) for name, text in fields.items()})


def _save(browser: webdriver.Chrome, file: Path, *, width: int) -> None:
    """Write a picture of the whole page, two pixels for each."""
    size = {"width": width, "height": 200, "deviceScaleFactor": 2, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
    picture = Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")
    # A palette takes a third of the space.
    picture.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=8).save(file, optimize=True)


if __name__ == "__main__":
    main()
