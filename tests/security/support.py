"""A Freeze for which a hook runs, which is told and then approved, and a Reboot, which is told and held."""

from tests.builders import REBOOT_ID
from tests.end_to_end.vm import Vm, event, hook

EVENTS = (event(EventType="Freeze"), event(REBOOT_ID))


def configure(vm: Vm) -> None:
    """Configure a target, by ``${ONCALL_URL}``, and a hook that notes the event and prints its variables."""
    match = {"event_types": ["Freeze"], "transitions": ["scheduled"]}
    rule = {"name": "freezes", "match": {"event_types": ["Freeze"]}, "action": "approve"}
    vm.configure(
        hook("note", "env; echo $EVENT_ID >> $HERE/notes", match=match),
        notifications={"targets": [{"name": "oncall", "url": "${ONCALL_URL}"}]},
        approval={"mode": "on", "rules": [rule | {"require_hooks": ["note"]}]},
    )
