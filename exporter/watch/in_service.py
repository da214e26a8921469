"""Whether a load balancer should send this VM new work."""

from datetime import datetime

from exporter.config.match import Match
from exporter.model.views import Snapshot


def out_of_service(snapshot: Snapshot, match: Match, now: datetime) -> str:
    """Return the reason why this VM should get no new work; "" while it may.

    There is none before the first valid document of this process, nor while the VM's name is unknown. A
    recommendation is one only if the match names its type.
    """
    if not snapshot.ready or snapshot.instance is None:
        return ""
    for life in snapshot.current:
        event = life.event
        counts = not event.is_advice or match.event_types is not None
        if counts and match.holds(event, target=life.target, now=now):
            return f"{event.event_type} {event.event_id} is {event.event_status}"
    return ""
