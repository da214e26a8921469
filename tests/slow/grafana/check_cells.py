"""The tables of the dashboards as Grafana's own library shows them: `make test-grafana`."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from exporter.simulator import EventPlan
from tests.dashboards.reading import NAMES, Asked, asked, load, panels
from tests.dashboards.scene import Scene, scene

SCRIPT = Path(__file__).parent / "cells.mjs"
MODULES = Path(os.environ["GRAFANA_MODULES"])
TABLES = {panel["title"]: panel for name in NAMES for panel in panels(load(name)) if panel["type"] == "table"}

Row = dict[str, str]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Start a Reboot of two VMs, announce a Redeploy, and take one of the rebooting VMs down."""
    with scene(tmp_path_factory.mktemp("scene")) as stage:
        pair = ("demo_0", "demo_1")
        stage.play(
            EventPlan(type="Reboot", vms=pair, notice=0, impact=600),
            EventPlan(type="Redeploy", vms=("demo_2",), notice=600, impact=60),
        )
        stage.until("count(azure_scheduled_events:event) == 3")
        stage.until('count(azure_scheduled_events:event{phase="started"}) == 2')
        stage.exporters["demo_0"].stop()
        stage.until('up{instance="demo_0"} == 0')
        yield stage


def cells(stage: Scene, title: str) -> list[Row]:
    """Ask the queries of a table, and return its rows as Grafana writes them."""
    panel = TABLES[title]
    answers = {target["refId"]: _answer(stage, asked(panel, target)) for target in panel["targets"]}
    frames = [_frame(ref, answer, panel) for ref, answer in answers.items() if answer]
    work = MODULES / SCRIPT.name
    work.write_text(SCRIPT.read_text())
    done = subprocess.run(
        ["node", work],
        input=json.dumps({"panel": panel, "frames": frames}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows: list[Row] = json.loads(done.stdout.splitlines()[-1])
    return rows


def _answer(stage: Scene, asks: Asked) -> list[dict[str, Any]]:
    return stage.ask(asks, instance="demo_0" if '="$instance"' in asks.expression else ".*")


def _frame(ref: str, answer: list[dict[str, Any]], panel: Mapping[str, Any]) -> dict[str, Any]:
    """Return a frame as the Prometheus data source makes it: a column for each label, one of values."""
    labels = sorted({label for series in answer for label in series["metric"]})
    value = f"Value #{ref}" if len(panel["targets"]) > 1 else "Value"
    numbers = [float(series["values"][-1][1]) for series in answer]
    fields = [
        {"name": label, "type": "string", "values": [series["metric"].get(label, "") for series in answer]}
        for label in labels
    ]
    return {"refId": ref, "fields": [*fields, {"name": value, "type": "number", "values": numbers}]}


@pytest.mark.parametrize("title", TABLES)
def test_empty_cells_are_empty(played: Scene, title: str) -> None:
    """No cell has the words that the panel has for no data at all."""
    rows = cells(played, title)
    assert rows, title
    words = TABLES[title]["fieldConfig"]["defaults"]["noValue"]
    assert all(words != text for row in rows for text in row.values())


def test_a_vm_that_is_down_keeps_its_event(played: Scene) -> None:
    """It comes with its state, and its event is in progress; it is the one that is not watched."""
    rows = cells(played, "Current events")
    shown = {row["VM"]: (row["Watch"], row["Type"], row["Phase"]) for row in rows}
    assert shown == {
        "demo_0": ("down", "Reboot", "started"),
        "demo_1": ("watched", "Reboot", "started"),
        "demo_2": ("watched", "Redeploy", "scheduled"),
    }
    assert [(row["VM"], row["Watch"]) for row in cells(played, "VMs not watched")] == [("demo_0", "down")]


def test_a_started_event_has_no_time_left(played: Scene) -> None:
    """Facts missing from Azure are blank, the others are readable."""
    rows = {row["VM"]: row for row in cells(played, "Current events")}
    assert rows["demo_1"]["Time left"] == rows["demo_2"]["In progress for"] == ""
    assert rows["demo_1"]["NotBefore, or start"].startswith("20")
    assert rows["demo_2"]["Time left"].endswith("mins")
