import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.builders import FREEZE_ID, REBOOT_ID, body, raw_event
from tests.end_to_end.program import get
from tests.http_server import Connection, Request, answer

NAME = "WestNO_0"
CANARY = "canary-4711"
FLAGS = ("--instance.name", NAME, "--poll.interval", "200ms")


@dataclass
class Azure:
    """IMDS with a Freeze and a Reboot, which it keeps whatever is approved; ``approvals`` are bodies."""

    document: bytes = body(
        raw_event(Resources=[NAME]), raw_event(EventId=REBOOT_ID, EventType="Reboot", Resources=[NAME])
    )
    approvals: list[bytes] = field(default_factory=list)

    def respond(self, connection: Connection, request: Request) -> None:
        if request.method == "GET":
            connection.send(answer(self.document))
        else:
            self.approvals.append(request.body)
            connection.send(answer())


def configuration(folder: Path, **sections: Any) -> Path:
    """Write a configuration with a target, by ``${ONCALL_URL}``, a hook for the Freeze and an approval of it.

    The Reboot is held. Each time that the hook runs it writes a line to the file "ran", and prints its
    variables.
    """
    hook = {
        "name": "note",
        "match": {"event_types": ["Freeze"], "transitions": ["scheduled"]},
        "command": ["/bin/sh", "-c", f"env; echo $EVENT_ID >> {folder}/ran"],
    }
    rule = {"name": "freezes", "match": {"event_types": ["Freeze"]}, "action": "approve"}
    whole: dict[str, Any] = {
        "notifications": {"targets": [{"name": "oncall", "url": "${ONCALL_URL}"}]},
        "hooks": [hook],
        "approval": {"mode": "on", "rules": [rule | {"require_hooks": ["note"]}]},
    }
    path = folder / "exporter.yml"
    path.write_text(json.dumps(whole | sections))
    path.chmod(0o644)
    return path


def runs(folder: Path) -> list[str]:
    path = folder / "ran"
    return path.read_text().split() if path.exists() else []


def approved(url: str) -> bool:
    events = json.loads(get(f"{url}/api/v1/events"))["current"]
    return [event["approval"]["state"] for event in events if event["id"] == FREEZE_ID] == ["approved"]
