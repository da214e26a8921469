"""The rules and hooks of the soak's configuration, with an independent model of what they allow."""

import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.faults.truth import VM, Event

MAX_PER_HOUR = 8
DELAY = 1.0
FAILOVER = 1.0
APPROVAL = {"mode": "on", "max_per_hour": MAX_PER_HOUR, "failover_after": f"{FAILOVER:g}s"}
_HOOK = str(Path(__file__).with_name("hook.py"))
_USER = {"name": "user", "match": {"event_sources": ["User"]}, "action": "approve"}
_DRAINED = {
    "name": "drained",
    "match": {"event_types": ["Reboot", "Redeploy"]},
    "action": "approve",
    "require_hooks": ["drain"],
}
_FREEZE = {
    "name": "short",
    "match": {"event_types": ["Freeze"], "max_duration": "9s"},
    "action": "approve",
    "delay": f"{DELAY:g}s",
}
_TELL = ("scheduled", "started", "completed")
_NEVER = {"name": "never", "match": {"event_types": ["Terminate"]}, "action": "hold"}
RULES: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "some": [_NEVER, _DRAINED, _FREEZE],
    "all": [_NEVER, _DRAINED, _FREEZE, _USER],
}


def hooks(port: int) -> list[dict[str, Any]]:
    """Return the hooks' part of the configuration: one that ends at once, and one that takes its time."""
    command = [sys.executable, "-I", "-S", "-B", _HOOK]
    return [
        {
            "name": "tell",
            "match": {"transitions": list(_TELL)},
            "command": [*command, "tell", str(port), "0"],
        },
        {
            "name": "drain",
            "match": {"event_types": ["Reboot", "Redeploy"], "transitions": ["scheduled"]},
            "command": [*command, "drain", str(port), "1.2"],
        },
    ]


def hooks_for(event_type: str, transition: str) -> list[str]:
    """Return the names of the hooks that run for what happened to an event of this VM."""
    found = ["tell"] if transition in _TELL else []
    if event_type in ("Reboot", "Redeploy") and transition == "scheduled":
        found.append("drain")
    return found


class Leave(msgspec.Struct, frozen=True):
    """That an event may be approved: so many seconds after its life began, and after that hook."""

    wait: float = 0.0
    hook: str = ""


def leave(rules: str, event: Event) -> Leave | None:
    """Return this VM's permission by the rules to approve an event; None if there is none."""
    if event.state != "scheduled" or VM not in event.names or event.type == "Terminate" or rules == "none":
        return None
    turn = event.names.index(VM) * FAILOVER
    if event.type in ("Reboot", "Redeploy"):
        return Leave(turn, "drain")
    if event.type == "Freeze" and event.duration is not None and event.duration <= 9:
        return Leave(turn + DELAY)
    return Leave(turn) if event.source == "User" and rules == "all" else None
