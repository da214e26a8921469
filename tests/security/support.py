import json
from pathlib import Path

from tests.builders import FREEZE_ID, REBOOT_ID, body, raw_event
from tests.faults.running import Running

CANARY = "canary-4711"
_FREEZE = raw_event(Resources=["WestNO_0"])
# IMDS keeps both events, whatever is approved.
DOCUMENT = body(_FREEZE, _FREEZE | {"EventId": REBOOT_ID, "EventType": "Reboot"}, incarnation=2)


def configuration(folder: Path) -> str:
    """Return a configuration with a target, by ``${ONCALL_URL}``, a hook for the Freeze and its approval.

    The Reboot is held. Each time that the hook runs it writes a line to the file "ran", and prints its
    variables.
    """
    hook = {
        "name": "note",
        "match": {"event_types": ["Freeze"], "transitions": ["scheduled"]},
        "command": ["/bin/sh", "-c", f"env; echo $EVENT_ID >> {folder}/ran"],
    }
    rule = {"name": "freezes", "match": {"event_types": ["Freeze"]}, "action": "approve"}
    whole = {
        "imds": {"poll_interval": "200ms"},
        "notifications": {"targets": [{"name": "oncall", "url": "${ONCALL_URL}"}]},
        "hooks": [hook],
        "approval": {"mode": "on", "rules": [rule | {"require_hooks": ["note"]}]},
    }
    return json.dumps(whole)


def runs(folder: Path) -> list[str]:
    path = folder / "ran"
    return path.read_text().split() if path.exists() else []


def approvals(program: Running) -> int:
    """Return how many approvals IMDS got."""
    return sum(request.method == "POST" for request in program.imds.requests)


def approved(program: Running) -> bool:
    events = json.loads(program.get("/api/v1/events"))["current"]
    return [event["approval"]["state"] for event in events if event["id"] == FREEZE_ID] == ["approved"]
