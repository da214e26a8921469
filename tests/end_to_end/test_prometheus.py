"""A real Prometheus scrapes the running program through an event's whole life."""

from pathlib import Path

from exporter.simulator import Simulator, SimulatorServer, load_scenarios
from tests.end_to_end.program import eventually, exporter, free_port, prometheus, query

PENDING = 'azure_scheduled_events_pending{event_type="Freeze",target="self",event_status="%s"} == 1'
LEFT = "azure_scheduled_events_event_seconds_to_not_before"
FIRST_SEEN = "azure_scheduled_events_event_first_seen_timestamp_seconds"


def test_a_live_migration_reaches_prometheus_across_a_kill(tmp_path: Path) -> None:
    """Prometheus stores the truth of a live migration, though the exporter is killed in its middle."""
    port = free_port()
    simulator = Simulator(speed=120.0)
    with SimulatorServer(simulator) as imds, prometheus(port, tmp_path) as server:
        state = tmp_path / "state"
        with exporter(imds.url, state, port) as first:
            eventually(lambda: query(server, "azure_scheduled_events_up == 1"))
            simulator.start_scenario(load_scenarios(["live-migration"])[0])
            eventually(lambda: query(server, PENDING % "Scheduled"))
            left = eventually(lambda: query(server, LEFT))
            assert 0 < float(left[0]["value"][1]) <= 8
            seen = eventually(lambda: query(server, FIRST_SEEN))
            first.kill()
            first.wait()
        with exporter(imds.url, state, port):
            eventually(lambda: query(server, PENDING % "Started"))
            again = eventually(lambda: query(server, FIRST_SEEN))
            assert again[0]["value"][1] == seen[0]["value"][1]
            done = 'azure_scheduled_events_transitions_total{transition="completed",event_type="Freeze"} == 1'
            eventually(lambda: query(server, done))
            eventually(lambda: not query(server, "azure_scheduled_events_event_info"))
            scheduled = 'azure_scheduled_events_transitions_total{transition="scheduled",event_type="Freeze"}'
            assert [sample["value"][1] for sample in query(server, scheduled)] == ["0"]
            assert not query(server, PENDING % "Started")
