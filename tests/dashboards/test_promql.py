"""The building blocks of the queries, on series whose true answer is known, by Prometheus' own tool."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dashboards.source.promql import (
    EVENT,
    PREFIX,
    STARTED,
    Scope,
    announced,
    graded,
    number,
    placed,
    rises,
    status,
    vms,
    watch,
    watched,
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


def _event(values: str, **labels: str) -> dict[str, str]:
    found = _series("", values, **labels)
    return found | {"series": found["series"].replace(PREFIX, EVENT, 1)}


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


def test_a_counter_that_rose_keeps_its_zeros(tmp_path: Path) -> None:
    """What ran earlier in the period is 0 now, not absent; what did not run at all is."""
    hooks = rises(ALL.metric("hooks_total"), "hook, outcome")
    ran = _series("hooks_total", "0x3 1x7", hook="drain", outcome="succeeded")
    idle = _series("hooks_total", "1x10", hook="drain", outcome="failed")
    _check(tmp_path, hooks, [ran, idle], {'{hook="drain", outcome="succeeded"}': 0})


def test_announced_is_a_mean_over_hits(tmp_path: Path) -> None:
    """An event of two VMs and one of a single VM count three times, also when they are gone."""
    hits = (("a", "one", "9x3 _x9"), ("b", "one", "9x3 _x9"), ("b", "two", "_x5 3x9"))
    series = [
        _series("event_duration_seconds", values, instance=vm, event_id=event, event_type="Freeze")
        for vm, event, values in hits
    ]
    _check(tmp_path, announced(ALL), series, {'{event_type="Freeze"}': 7})


def test_severities_are_told_apart(tmp_path: Path) -> None:
    """The highest one of a VM and type is shown, and two clusters may use one name."""
    given = {"event_type": "Reboot", "event_id": "A"}
    series = [
        _event("900x10", cluster="x", phase="scheduled", severity="warning", **given),
        _event("60x10", cluster="y", phase="started", severity="critical", **given),
        _event("900x10", cluster="y", phase="scheduled", severity="warning", **given | {"event_id": "B"}),
        _event("0x10", cluster="z", phase="started", severity="info", **given | {"event_type": "Freeze"}),
    ]
    wanted = {'{cluster="x"}': 2, '{cluster="y"}': 3, '{cluster="z"}': 1}
    _check(tmp_path, f"max by (cluster) {graded(ALL)}", series, wanted)


def test_a_vm_that_is_down_keeps_its_event_and_its_place(tmp_path: Path) -> None:
    """What is still recorded of it is shown, and that nobody watches it; so is a VM that has no event."""
    event = {"event_id": "E", "event_type": "Reboot"}
    series = []
    for vm, up, azure in (("a", "0x10", "1x4 stale"), ("b", "1x10", "1x10"), ("c", "1x10", "0x10")):
        place = {"scale_set": "web", "zone": "1", "resource_group": "prod"}
        series.append(_series("up", azure, instance=vm))
        series.append(_series("instance_info", azure.replace("0x", "1x"), instance=vm, **place))
        up_of_target = _series("", up, instance=vm)
        series.append(up_of_target | {"series": up_of_target["series"].replace(PREFIX, "up", 1)})
    series.append(_event("60x10", phase="started", severity="critical", **event))
    series.append(_event("900x10", phase="scheduled", severity="warning", instance="b", **event))
    seen = {'{instance="a"}': -1, '{instance="b"}': 1, '{instance="c"}': 0}
    _check(tmp_path, f"max by (instance) {watch(ALL)}", series, seen)
    of_events = {'{instance="a", event_id="E"}': -1, '{instance="b", event_id="E"}': 1}
    _check(tmp_path, f"max by (instance, event_id) {watched(ALL)}", series, of_events)
    _check(tmp_path, f"max by (instance) {status(ALL)}", series, {'{instance="a"}': 2, '{instance="b"}': 1})
    _check(tmp_path, number(vms(ALL.event(STARTED)), ALL.other("up")), series, {"{}": 1})
    _check(tmp_path, placed(ALL, by="scale_set"), series, {'{scale_set="web"}': 3})
    _check(tmp_path, placed(ALL, ALL.event(STARTED), "scale_set"), series, {'{scale_set="web"}': 1})
    _check(tmp_path, placed(ALL, "none", "scale_set"), series, {'{scale_set="web"}': 0})


def test_every_transition_has_a_colour() -> None:
    """A series that is named for a transition is not drawn in one that Grafana happens to choose."""
    assert {transition.value for transition in Transition} <= OUTCOMES.keys()


def test_no_exporter_is_not_zero_events(tmp_path: Path) -> None:
    """If nothing is scraped a count is absent, so that the panel shows that."""
    count = number(ALL.metric("event_info"), ALL.metric("up"))
    _check(tmp_path, count, [_series("up", "1x10")], {"{}": 0})
    _check(tmp_path, count, [_series("up", "1x2 stale")], {})
