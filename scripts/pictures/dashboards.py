"""Pictures of the dashboards: `python -m scripts.pictures.dashboards [FOLDER]`.

Plays several scenarios at sixty times the speed to real exporters and a real Prometheus, asks it every query
of every panel, and draws what it answers.
"""

import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from PIL import Image

from exporter.config import PROGRAM
from exporter.simulator import Fault, load_scenarios
from scripts.pictures import drawing, tabular
from scripts.pictures.drawing import BACK, FAINT, GROUND, INK, LINE, Canvas, Series
from tests.dashboards.reading import NAMES, Asked, asked, load
from tests.dashboards.scene import Scene, scene

FOLDER = Path(__file__).parents[2] / "docs" / "images"

_WIDTH, _UNIT, _GAP, _HEAD = 1500.0, 38.0, 8.0, 44.0
_DPI = 100
_INSTANCE = "demo_0"


def play(stage: Scene) -> None:
    """Play an hour or two of simulated time with events of all kinds."""
    _start(stage, "live-migration")
    time.sleep(6)
    stage.stand_still(_INSTANCE, 3.2)
    _start(stage, "cancelled-maintenance", "spot-eviction")
    time.sleep(14)
    _start(stage, "shared-event")
    time.sleep(10)
    stage.receiver.mood = 503
    time.sleep(5)
    for name in ("demo_1", "demo_2"):
        stage.exporters[name].stop()
    time.sleep(6)
    for name in ("demo_1", "demo_2"):
        stage.exporters[name].start()
    stage.receiver.mood = 200
    time.sleep(12)
    _start(stage, "two-fault-domains")
    time.sleep(10)
    stage.simulator.set_fault(Fault(mode="error", status=500))
    time.sleep(7)
    stage.simulator.set_fault(None)
    stage.until('azure_scheduled_events_event_info{instance="demo_2", event_status="Started"}')
    stage.stand_still("demo_2", 2.0)
    time.sleep(9)
    _start(stage, "user-redeploy")
    time.sleep(8)
    stage.stand_still(_INSTANCE, 1.5, "unannounced_pauses_total")
    _start(stage, "hardware-failure", "platform-redeploy")
    time.sleep(4)
    _start(stage, "host-maintenance", "two-fault-domains")
    time.sleep(5)
    stage.exporters["demo_1"].stop()
    stage.until('up{instance="demo_1"} == 0')


def _start(stage: Scene, *names: str) -> None:
    for scenario in load_scenarios(names):
        stage.simulator.start_scenario(scenario)


def draw(stage: Scene, name: str, file: Path) -> None:
    """Draw a dashboard, with the answers to its queries of this moment, to a PNG."""
    board = load(name)
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    height = rows * _UNIT + _HEAD + _GAP
    figure = Figure(figsize=(_WIDTH / _DPI, height / _DPI), dpi=_DPI, facecolor=BACK)
    figure.text(16 / _WIDTH, 1 - 22 / height, board["title"], color=INK, size=13, weight="bold", va="center")
    figure.text(
        1 - 16 / _WIDTH, 1 - 22 / height, _chosen(board), color=FAINT, size=9, ha="right", va="center"
    )
    end = time.time()
    marks = _marks(stage, board)
    for panel in board["panels"]:
        place = _place(panel["gridPos"], height)
        if panel["type"] == "row":
            figure.text(
                place[0] / _WIDTH,
                1 - (place[1] + 16) / height,
                panel["title"],
                color=INK,
                size=11,
                weight="bold",
            )
            continue
        canvas = _canvas(figure, place, height, (stage.began, end), marks)
        _panel(stage, canvas, panel)
    figure.savefig(file)
    # A palette takes a third of the space; these settings keep the ground's colour and the rare ones.
    palette = Image.open(file).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=8)
    palette.save(file, optimize=True)


def _chosen(board: Mapping[str, Any]) -> str:
    values = {
        "job": PROGRAM,
        "instance": _INSTANCE if board["uid"] == "azse-instance" else "All",
        "event_type": "All",
    }
    variables = [it for it in board["templating"]["list"] if it["name"] in values]
    return "      ".join(f"{it['label']}  {values[it['name']]}" for it in variables)


def _place(at: Mapping[str, int], height: float) -> tuple[float, float, float, float]:
    """Return left, top, width and height of a panel, pixels from the top left."""
    column = (_WIDTH - 2 * _GAP) / 24
    left, top = _GAP + at["x"] * column, _HEAD + at["y"] * _UNIT
    return left + _GAP / 2, top, at["w"] * column - _GAP, min(at["h"] * _UNIT - _GAP, height)


def _canvas(
    figure: Figure,
    place: tuple[float, float, float, float],
    height: float,
    period: tuple[float, float],
    marks: Sequence[tuple[float, str]],
) -> Canvas:
    left, top, width, tall = place
    axes = figure.add_axes((left / _WIDTH, 1 - (top + tall) / height, width / _WIDTH, tall / height))
    axes.set_xlim(0, width)
    axes.set_ylim(tall, 0)
    axes.axis("off")
    axes.add_patch(
        FancyBboxPatch(
            (1, 1), width - 2, tall - 2, boxstyle="round,pad=0,rounding_size=3", fc=GROUND, ec=LINE, lw=0.8
        )
    )
    return Canvas(axes, width, tall, *period, marks)


def _panel(stage: Scene, canvas: Canvas, panel: Mapping[str, Any]) -> None:
    canvas.axes.text(10, 16, panel["title"], color=INK, size=9, weight="bold", va="center")
    answers = [_ask(stage, asked(panel, target)) for target in panel["targets"]]
    if not any(answers):
        empty = panel["fieldConfig"]["defaults"]["noValue"]
        canvas.axes.text(
            canvas.width / 2, canvas.height / 2, empty, color=FAINT, size=9, ha="center", va="center"
        )
    elif panel["type"] == "table":
        letters = [target["refId"] for target in panel["targets"]]
        names = [f"Value #{letter}" if len(letters) > 1 else "Value" for letter in letters]
        tabular.draw(canvas, panel, tabular.merge(list(zip(names, answers, strict=True))))
    else:
        drawing.KINDS[panel["type"]](canvas, panel, _series(panel, answers))


def _ask(stage: Scene, asks: Asked) -> list[dict[str, Any]]:
    # A VM that all the stories hit; the other dashboards show all VMs.
    one = 'instance="$instance"' in asks.expression
    return stage.ask(asks, instance=_INSTANCE if one else ".*", points=150)


def _series(panel: Mapping[str, Any], answers: Sequence[Sequence[Mapping[str, Any]]]) -> list[Series]:
    found: list[Series] = []
    for target, answer in zip(panel["targets"], answers, strict=True):
        asks = asked(panel, target)
        named = [(_name(asks, one["metric"]), _points(one["values"])) for one in answer]
        found += sorted(named)
    return [(_renamed(panel, name), values) for name, values in found]


def _name(asks: Asked, metric: Mapping[str, str]) -> str:
    name = asks.name
    for label, value in metric.items():
        name = name.replace(f"{{{{{label}}}}}", value)
    return name


def _points(values: Sequence[Sequence[Any]]) -> list[tuple[float, float]]:
    return [(float(at), float(value)) for at, value in values if value != "NaN"]


def _renamed(panel: Mapping[str, Any], name: str) -> str:
    for override in panel["fieldConfig"]["overrides"]:
        better = override["properties"][0]
        if better["id"] == "displayName" and re.search(override["matcher"]["options"].strip("/"), name):
            return str(better["value"])
    return name


def _marks(stage: Scene, board: Mapping[str, Any]) -> list[tuple[float, str]]:
    marks = set()
    for annotation in board["annotations"]["list"]:
        asks = Asked("", annotation["expr"], instant=False)
        for series in _ask(stage, asks):
            for at, value in series["values"]:
                when = float(value) / 1000 if annotation.get("useValueForTime") else float(at)
                marks.add((round(when), annotation["iconColor"]))
    return sorted(marks)


def main() -> None:
    """Play, and draw all dashboards."""
    mpl.rcParams["font.family"] = "DejaVu Sans"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as work,
        scene(Path(work), speed=60.0, scrape=0.5, delay="3s") as stage,
    ):
        play(stage)
        for name in NAMES:
            draw(stage, name, folder / f"{name}.png")


if __name__ == "__main__":
    main()
