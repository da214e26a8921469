"""The building blocks of the queries, on series whose true answer is known, by Prometheus' own tool."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dashboards.source.promql import (
    PREFIX,
    RECORDED,
    Scope,
    announced,
    gone,
    grew,
    hit,
    number,
    rises,
    since_last,
    states,
    status,
    watch,
)
from dashboards.source.style import OUTCOMES
from exporter.model.lifecycle import Transition
from tests.dashboards.reading import interpolate, spans

JOB = "azure-scheduled-events-exporter"
ALL = Scope()


def _series(name: str, values: str, **labels: str) -> dict[str, str]:
    labels = {"job": JOB, "instance": "a"} | labels
    given = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"{PREFIX}{name}{{{given}}}", "values": values}


def _recorded(name: str, values: str, **labels: str) -> dict[str, str]:
    found = _series(name, values, **labels)
    return found | {"series": found["series"].replace(PREFIX, RECORDED, 1)}


def _check(
    tmp_path: Path, expression: str, series: Sequence[Mapping[str, str]], samples: Mapping[str, float]
) -> None:
    """See what Prometheus makes of an expression after ten minutes, with a sample each minute."""
    promtool = shutil.which("promtool")
    assert promtool, "promtool is not installed; make test installs it"
    query = interpolate(expression, spans(600, interval=60, scrape=60))
    wanted = [{"labels": labels, "value": value} for labels, value in samples.items()]
    test: dict[str, Any] = {
        "interval": "1m",
        "input_series": list(series),
        "promql_expr_test": [{"expr": query, "eval_time": "10m", "exp_samples": wanted}],
    }
    file = tmp_path / "test.yml"
    file.write_text(json.dumps({"rule_files": [], "tests": [test]}))
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("values", "growth"),
    [("_x4 1x10", 1), ("7x20", 0), ("4x4 _x3 0 0 1 1", 1)],
    ids=["it appears with its first event", "it does not change", "it begins again at 0"],
)
def test_what_a_counter_has_grown_by(tmp_path: Path, values: str, growth: int) -> None:
    """The first event of a kind counts, unlike with `increase`, and a restart takes nothing back."""
    counter = _series("transitions_total", values, event_type="Freeze", transition="started")
    _check(tmp_path, f"sum({grew(ALL.metric('transitions_total'))})", [counter], {"{}": growth})


def test_a_counter_that_rose_keeps_its_zeros(tmp_path: Path) -> None:
    """What ran earlier in the period is 0 now, not absent; what did not run at all is."""
    hooks = rises(ALL.metric("hooks_total"), "hook, outcome")
    ran = _series("hooks_total", "0x3 1x7", hook="drain", outcome="succeeded")
    idle = _series("hooks_total", "1x10", hook="drain", outcome="failed")
    _check(tmp_path, hooks, [ran, idle], {'{hook="drain", outcome="succeeded"}': 0})


def test_a_pause_that_costs_scrapes_is_counted_once(tmp_path: Path) -> None:
    """A counter that rises in a gap between scrapes rises at one point, and not at its first scrape."""
    histories = {"gap": "0x2 _x5 1x9", "old": "7x20", "restarted": "4x3 _x1 0x1 2x9", "new": "_x4 1 2x9"}
    series = [_series("unannounced_pauses_total", rise, instance=name) for name, rise in histories.items()]
    points = f"sum_over_time(({since_last(ALL.metric('unannounced_pauses_total'), 'instance')})[11m:1m])"
    counted = {"gap": 1, "old": 0, "restarted": 2, "new": 1}
    _check(tmp_path, points, series, {f'{{instance="{name}"}}': count for name, count in counted.items()})


def test_announced_is_a_mean_over_hits(tmp_path: Path) -> None:
    """An event of two VMs and one of a single VM count three times, also when they are gone."""
    hits = (("a", "one", "9x3 _x9"), ("b", "one", "9x3 _x9"), ("b", "two", "_x5 3x9"))
    series = [
        _series("event_duration_seconds", values, instance=vm, event_id=event, event_type="Freeze")
        for vm, event, values in hits
    ]
    series += [
        _recorded("vm_event_state", "1x10", instance=vm, event=event, event_id=event, event_type="Freeze")
        for vm, event, _ in hits
    ]
    _check(tmp_path, announced(ALL), series, {'{event_type="Freeze"}': 7})


def test_states_are_told_apart(tmp_path: Path) -> None:
    """Started outranks Scheduled, a blind exporter is unknown, and two clusters may use one name."""
    series = []
    for cluster, there, up in (("x", "Scheduled", "1"), ("y", "Started", "1"), ("z", "Started", "0")):
        series.append(_series("up", f"{up}x10", cluster=cluster))
        for each in ("Scheduled", "Started"):
            labels = {"cluster": cluster, "event_type": "Reboot", "event_status": each, "target": "self"}
            series.append(_series("pending", f"{int(each == there)}x10", **labels))
    series.append(
        _series("pending", "3x10", cluster="x", event_type="Reboot", event_status="Started", target="other")
    )
    given = 'event_type="Reboot", instance="a", job="azure-scheduled-events-exporter"'
    wanted = {f'{{cluster="{name}", {given}}}': value for name, value in (("x", 1), ("y", 2), ("z", -1))}
    _check(tmp_path, states(ALL), series, wanted)


def test_a_cancelled_event_counts_once(tmp_path: Path) -> None:
    """One event for two VMs is one; one that started first, and one that is still there, are none."""
    series = [_recorded("vm", "1x10")]
    for vm in ("a", "b"):
        for event, state, ended in (
            ("cancelled", "1x3 _x20", "_x5 180"),
            ("completed", "1x2 2x2 _x20", ""),
            ("left", "1x2 2x2 _x20", "_x5 180"),
            ("pending", "1x10", "_x5 180"),
        ):
            labels = {"event": event, "event_id": event, "event_type": "Reboot", "instance": vm}
            series.append(_recorded("vm_event_state", state, **labels))
            if ended:
                series.append(_recorded("vm_event_ended", ended, transition="cancelled", **labels))
            if event == "pending":
                series.append(_recorded("vm_event", state, event_status="Scheduled", **labels))
    _check(tmp_path, number(gone(ALL, "cancelled"), ALL.recorded("vm")), series, {"{}": 1})
    _check(tmp_path, number(gone(ALL, "vanished"), ALL.recorded("vm")), series, {"{}": 0})


def test_a_vm_that_is_down_keeps_its_event_and_comes_first(tmp_path: Path) -> None:
    """What the rules still know of it is shown, and that nobody watches it; so is one that has no event."""
    place = {"scale_set": "web", "zone": "1", "resource_group": "prod"}
    event = {"event": "e", "event_id": "E", "event_type": "Reboot"}
    series = [
        _recorded("vm", "-1x10", **place),
        _recorded("vm", "1x10", instance="b", **place),
        _recorded("vm", "0x10", instance="c"),
        _recorded("vm", "1x10", instance="d"),
        _recorded("vm_event", "60x10", event_status="Started", **event, **place),
        _recorded("vm_event_started", "60x10", event_status="Started", **event, **place),
        _recorded("vm_event", "60x10", event_status="Scheduled", instance="b", **event, **place),
    ]
    seen = {'{instance="a", event_id="E"}': -1, '{instance="b", event_id="E"}': 1, '{instance="c"}': 0}
    _check(tmp_path, f"max by (instance, event_id) {watch(ALL)}", series, seen)
    shown = {'{instance="a"}': 2, '{instance="b"}': 1}
    _check(tmp_path, f"max by (instance) {status(ALL)}", series, shown)
    _check(tmp_path, f"count by (scale_set) ({hit(ALL, True)})", series, {'{scale_set="web"}': 1})
    _check(tmp_path, f"count by (scale_set) ({hit(ALL, False)})", series, {'{scale_set="web"}': 1})


def test_an_announced_event_keeps_its_time_while_its_vm_is_down(tmp_path: Path) -> None:
    """Its last NotBefore counts; that of an event that has started does not."""
    series = []
    for event in ("announced", "started"):
        labels = {"event_id": event, "event_type": "Reboot"}
        series.append(_series("event_not_before_timestamp_seconds", "900x5 stale", **labels))
        series.append(_recorded("vm_event", "300x10", event=event, event_status="Scheduled", **labels))
    series.append(_recorded("vm_event_started", "300x10", event="started", **labels))
    seen = {'{event_id="announced"}': 900}
    _check(tmp_path, f"max by (event_id) ({ALL.not_before()})", series, seen)


def test_every_transition_has_a_colour() -> None:
    """A series that is named for a transition is not drawn in one that Grafana happens to choose."""
    assert {transition.value for transition in Transition} <= OUTCOMES.keys()


def test_no_exporter_is_not_zero_events(tmp_path: Path) -> None:
    """If nothing is scraped a count is absent, so that the panel shows that."""
    count = number(ALL.metric("event_info"), ALL.metric("up"))
    _check(tmp_path, count, [_series("up", "1x10")], {"{}": 0})
    _check(tmp_path, count, [_series("up", "1x2 stale")], {})
