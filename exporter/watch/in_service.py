"""Whether this VM may take work: what a load balancer's health probe asks."""

from datetime import datetime

from exporter.config.match import Match
from exporter.model.views import Snapshot


def out_of_service(snapshot: Snapshot, match: Match, now: datetime) -> str:
    """Return the reason why this VM should get no new work; "" while it may.

    Without a valid document of this process, and until the VM knows its name, nothing takes it out.
    """
    if not snapshot.ready or snapshot.instance is None:
        return ""
    for tracked in snapshot.current:
        event = tracked.event
        if match.holds(event, target=tracked.target, now=now):
            return f"{event.event_type} {event.event_id} is {event.event_status}"
    return ""
