"""A real Prometheus scrapes the running program through an event's whole life."""

import json
import urllib.parse
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

from exporter.simulator import Simulator, SimulatorServer
from tests.builders import raw_event
from tests.end_to_end.program import eventually, exporter, free_port, get, prometheus, query

EVENT = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
TRACE = EVENT.replace("-", "").lower()
PENDING = 'azure_scheduled_events_pending{event_type="Freeze",target="self",event_status="%s"} == 1'
LEFT = "azure_scheduled_events_event_seconds_to_not_before"
FIRST_SEEN = "azure_scheduled_events_event_first_seen_timestamp_seconds"
TRANSITIONS = "azure_scheduled_events_transitions_total"


def document(number: int, status: str | None = None, left: timedelta | None = None) -> dict[str, object]:
    """Return a document with a freeze in a status, ``left`` before it is due; empty without a status."""
    not_before = format_datetime(datetime.now(UTC) + left, usegmt=True) if left else ""
    freeze = raw_event(EventId=EVENT, EventType="Freeze", EventStatus=status, NotBefore=not_before)
    return {"DocumentIncarnation": number, "Events": [] if status is None else [freeze]}


def exemplars(server: str, metric: str) -> list[tuple[str, dict[str, str]]]:
    """Ask Prometheus; return the transition and the labels of each exemplar."""
    query = urllib.parse.urlencode({"query": metric, "start": "0", "end": "9999999999"})
    series = json.loads(get(f"{server}/api/v1/query_exemplars?{query}"))["data"]
    return [
        (one["seriesLabels"]["transition"], each["labels"]) for one in series for each in one["exemplars"]
    ]


def test_a_live_migration_reaches_prometheus_across_a_kill(tmp_path: Path) -> None:
    """Prometheus stores the truth of a live migration, though the exporter is killed in its middle.

    A transition's exemplar and its log line lead to the event's trace.
    """
    port, log, state = free_port(), tmp_path / "log", tmp_path / "state"
    flags = ("--poll.interval", "200ms")
    simulator = Simulator(vm_name="WestNO_0", requests_per_second=0)
    with (
        SimulatorServer(simulator) as imds,
        prometheus(port, tmp_path, "--enable-feature=exemplar-storage") as server,
    ):
        with exporter(imds.url, state, port, *flags, log=log) as first:
            eventually(lambda: query(server, "azure_scheduled_events_up == 1"))
            simulator.set_document(document(1, "Scheduled", timedelta(minutes=15)))
            eventually(lambda: query(server, PENDING % "Scheduled"))
            left = eventually(lambda: query(server, LEFT))
            assert 800 < float(left[0]["value"][1]) <= 900
            seen = eventually(lambda: query(server, FIRST_SEEN))
            assert eventually(lambda: exemplars(server, TRANSITIONS)) == [("scheduled", {"trace_id": TRACE})]
            (line,) = eventually(
                lambda: [line for line in log.read_text().splitlines() if "msg=transition" in line]
            )
            assert f"trace_id={TRACE}" in line
            first.kill()
            first.wait()
        with exporter(imds.url, state, port, *flags):
            simulator.set_document(document(2, "Started"))
            eventually(lambda: query(server, PENDING % "Started"))
            again = eventually(lambda: query(server, FIRST_SEEN))
            assert again[0]["value"][1] == seen[0]["value"][1]
            simulator.set_document(document(3))
            done = f'{TRANSITIONS}{{transition="completed",event_type="Freeze"}} == 1'
            eventually(lambda: query(server, done))
            eventually(lambda: not query(server, "azure_scheduled_events_event_info"))
            scheduled = f'{TRANSITIONS}{{transition="scheduled",event_type="Freeze"}}'
            # A scrape may fail on a busy machine, for a moment.
            eventually(lambda: [sample["value"][1] for sample in query(server, scheduled)] == ["0"])
            assert not query(server, PENDING % "Started")
