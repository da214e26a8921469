"""Pictures for the README: `python -m scripts.pictures.page [FOLDER]`.

A real exporter polls a simulated Azure. The pictures show its page in Chromium, and the mail that it sent.
"""

import base64
import html
import io
import json
import re
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
from tests.receivers import mail_receiver

_VM = "web_0"
_EXPECTED = re.compile(r"Reboot scheduled: web_0 at .*\(15 min\)")
# The second is for the poll, and for NotBefore, which has whole seconds.
_NOTICE = timedelta(minutes=15, seconds=1)
# Of each picture, as wide as half of the README; text is to be as large there as in a browser.
_WIDTH, _MARGIN = 440, 16
_REBOOT = {
    "EventId": "C7061BAC-AFDC-4513-B24B-AA5F13A16123",
    "EventStatus": "Scheduled",
    "EventType": "Reboot",
    "ResourceType": "VirtualMachine",
    "Resources": [_VM],
    "Description": "Virtual machine is going to be restarted because of maintenance of its host.",
    "EventSource": "Platform",
    "DurationInSeconds": 90,
}
_CONFIGURATION = """
notifications:
  targets: [{{name: oncall, url: "{mail}"}}]
  routes: [{{match: {{event_types: [Reboot], transitions: [scheduled]}}, targets: [oncall]}}]
approval:
  mode: on
  rules:
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
                mail = eventually(lambda: [one for one in mailbox.mails if _EXPECTED.search(one["Subject"])])[
                    0
                ]
                browser.get(f"http://127.0.0.1:{port}/")
                _save(browser, folder / "page.png", end="#own")
        page = Path(work) / "mail.html"
        page.write_text(_shown(mail))
        browser.get(page.as_uri())
        _save(browser, folder / "message.png")


def _play(simulator: Simulator, url: str) -> None:
    """Announce a reboot early in a second, so that the page and the mail say the same."""
    time.sleep((0.7 - time.time()) % 1)
    simulator.set_document(
        _document(2, _REBOOT | {"NotBefore": format_datetime(datetime.now(UTC) + _NOTICE, usegmt=True)})
    )
    status = f"{url}/api/v1/status"
    eventually(lambda: json.loads(get(status))["document_incarnation"] == 2)


def _document(incarnation: int, *events: Mapping[str, Any]) -> dict[str, Any]:
    return {"DocumentIncarnation": incarnation, "Events": list(events)}


def _shown(mail: EmailMessage) -> str:
    """Return a page that shows a mail as programs for mail do: its subject, people, and HTML body."""
    body = mail.get_body(("html",))
    if body is None:
        raise ValueError("the mail has no HTML")
    fields = {"subject": mail["Subject"], "sender": mail["From"], "recipient": mail["To"]}
    return _MAIL.format(body=body.get_content(), **{name: html.escape(text) for name, text in fields.items()})


def _save(browser: webdriver.Chrome, file: Path, *, end: str = "body") -> None:
    """Write a picture of the page from its top to the end of an element, two pixels for each."""
    size = {"width": _WIDTH, "height": 200, "deviceScaleFactor": 2, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    bottom = browser.execute_script(
        "return document.querySelector(arguments[0]).getBoundingClientRect().bottom", end
    )
    clip = {"x": 0, "y": 0, "width": _WIDTH, "height": bottom + _MARGIN, "scale": 1}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    picture = Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")
    # A palette takes a third of the space.
    picture.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=8).save(file, optimize=True)


if __name__ == "__main__":
    main()
