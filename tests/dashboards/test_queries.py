"""Every query of every panel, asked of a real Prometheus that has watched several VMs live through events."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from exporter.simulator import EventPlan
from tests.dashboards.reading import NAMES, Asked, asked, interpolate, load, panels, queries, spans
from tests.dashboards.scene import Scene, scene
from tests.end_to_end.program import eventually, query

P = "azure_scheduled_events_"
IDLE = {"Critical": 0, "Scheduled": 0, "Started": 0, "Watched": 4, "Not watched": 0}
"""What the fleet's numbers are before anything has happened: zeros, not holes."""
PLAYED = IDLE | {"Scheduled": 2, "Started": 1}
"""What they are after `played`."""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Play one event for all VMs to its end, one for two that is cancelled, and two that are not over.

    The first of those is approved as soon as it is seen, and the VM stands still in its midst.

    All in one fixture and few tests, so that several processes of pytest do not each play it.
    """
    with scene(tmp_path_factory.mktemp("scene"), scrape=0.5) as stage:
        eventually(lambda: {title: _stat(stage, title) for title in IDLE} == IDLE)
        every, pair = ("demo_0", "demo_1", "demo_2", "demo_3"), ("demo_2", "demo_3")
        stage.play(
            EventPlan(type="Reboot", vms=every, notice=2, impact=4, duration_in_seconds=60),
            EventPlan(type="Redeploy", vms=pair, notice=60, impact=1, cancelled_after=4),
        )
        stage.until(f'sum({P}transitions_total{{transition="completed"}}) == 4')
        stage.until(f'sum({P}transitions_total{{transition="cancelled"}}) == 2')
        stage.play(
            EventPlan(type="Freeze", vms=("demo_0",), notice=600, impact=600, duration_in_seconds=5),
            EventPlan(type="Reboot", vms=("demo_0", "demo_1"), notice=600, impact=60, duration_in_seconds=60),
        )
        stage.until(f'{P}event_info{{event_type="Freeze", event_status="Started"}}')
        stage.stand_still("demo_0", 2.0)
        stage.until(f"count({P}event_info) == 3")
        stage.until(f'sum({P}notifications_total{{outcome="delivered"}}) > 15')
        stage.until(f'sum({P}hooks_total{{outcome="failed"}}) == 2')
        stage.until(f'sum({P}spans_total{{outcome="exported"}}) > 30')
        stage.until(f"sum({P}notifications_pending) == 0")
        stage.until("count(azure_scheduled_events:event) == 3")
        yield stage


def test_every_query_gives_data(played: Scene) -> None:
    """Only queries about VMs that are not watched are empty, and every metric that they name is there."""
    empty = {
        (name, asks.panel, asks.expression)
        for name in NAMES
        for asks in queries(load(name))
        if not _values(played, name, asks)
    }
    assert {(name, panel) for name, panel, _ in empty} == {("fleet", "VMs not watched")}, empty
    played.exporters["demo_3"].stop()
    played.until('up{instance="demo_3"} == 0')
    assert not [one for one in empty if not any(_values(played, "fleet", asks) for asks in _asks(one[2]))]
    assert _rows(played, "VMs not watched", "instance")["demo_3"][0] == -1
    played.exporters["demo_3"].start()
    played.until(f"count({P}up == 1) == 4")
    names = {series["__name__"] for series in played.api("series", **{"match[]": '{job=~".+"}'})}
    wanted = {metric for name in NAMES for asks in queries(load(name)) for metric in asks.metrics}
    assert wanted <= names


def test_an_event_counts_once(played: Scene) -> None:
    """However many VMs see an event, the fleet's numbers count it once, the first of its kind included."""
    # A scrape may fail on a busy machine, for a moment: "Not watched" would rightly say so.
    eventually(lambda: {title: _stat(played, title) for title in PLAYED} == PLAYED)
    eventually(lambda: _tables_agree(played))
    _exemplars(played)


def _tables_agree(played: Scene) -> bool:
    rows = _rows(played, "Impact by event type", "event_type")
    assert _rows(played, "Current events", "event_type").keys() == {"Freeze", "Reboot"}
    # Events, VMs hit, the shortest and the mean notice, the expected pause.
    assert rows["Reboot"][:2] == [2, 4]
    assert 0 <= rows["Reboot"][2] <= rows["Reboot"][3] < 600
    assert rows["Reboot"][4] == 60
    assert rows["Freeze"][:2] == [1, 1]
    assert "Terminate" not in rows
    return True


def _exemplars(played: Scene) -> None:
    """See that the queries that ask for exemplars get some, and that they name a trace."""
    every = [target for name in NAMES for panel in panels(load(name)) for target in panel["targets"]]
    asking = [target["expr"] for target in every if target.get("exemplar")]
    assert asking
    for expression in asking:
        instance = "demo_0" if '="$instance"' in expression else ".*"
        asked_for = interpolate(expression, spans(60, interval=1, scrape=1, instance=instance))
        traces = eventually(partial(_traces, played, asked_for))
        assert all(len(trace) == 32 for trace in traces)


def _traces(played: Scene, expression: str) -> set[str]:
    period = {"start": f"{played.began:.0f}", "end": f"{played.began + 600:.0f}"}
    found = played.api("query_exemplars", query=expression, **period)
    return {one["labels"]["trace_id"] for series in found for one in series["exemplars"]}


def _values(played: Scene, name: str, asks: Asked) -> list[str]:
    instance = "demo_0" if name == "instance" else ".*"
    found = played.ask(asks, instance=instance)
    return [value for series in found for _, value in series["values"] if value != "NaN"]


def _asks(expression: str) -> list[Asked]:
    return [asks for asks in queries(load("fleet")) if asks.expression == expression]


def _panel(title: str, kind: str) -> dict[str, Any]:
    return next(p for p in panels(load("fleet")) if (p["title"], p["type"]) == (title, kind))


def _stat(played: Scene, title: str) -> float:
    panel = _panel(title, "stat")
    found = played.ask(asked(panel, panel["targets"][0]))
    assert len(found) == 1, title
    return float(found[0]["values"][0][1])


def _rows(played: Scene, title: str, label: str) -> dict[str, list[float]]:
    """Return a table's rows by a label: the values of the queries that have any."""
    panel = _panel(title, "table")
    rows: dict[str, list[float]] = {}
    known = query(played.server, f"last_over_time({P}event_info[10m])")
    events = {series["metric"]["event_id"]: series["metric"][label] for series in known}
    for target in panel["targets"]:
        for series in played.ask(asked(panel, target)):
            metric = series["metric"]
            key = metric.get(label) or events[metric["event_id"]]
            rows.setdefault(key, []).append(float(series["values"][0][1]))
    return rows
