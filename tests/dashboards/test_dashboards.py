"""The committed dashboards are current, well-formed and described."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.build import build, encode
from dashboards.source.frame import JOB
from tests.dashboards.reading import FOLDER, NAMES, load, panels, queries

GRID = 24


@pytest.fixture(params=NAMES)
def dashboard(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return each of the dashboards."""
    return load(request.param)


def test_the_committed_files_are_what_the_program_writes() -> None:
    """Nobody edits the JSON by hand, or forgets `make dashboards`."""
    written = {name: json.loads(text) for name, text in build().items()}
    assert written == {f"{name}.json": load(name) for name in NAMES}


def test_the_sdk_knows_every_field(dashboard: dict[str, Any]) -> None:
    """A misspelt field would be lost on the way through the SDK's own types and back."""
    assert json.loads(encode(Dashboard.from_json(dashboard))) == dashboard


def test_no_datasource_is_named(dashboard: dict[str, Any]) -> None:
    """Whatever asks a datasource asks the one that the user chose."""
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    asking = [*panels(dashboard), *dashboard["annotations"]["list"]]
    asking += [target for panel in panels(dashboard) for target in panel["targets"]]
    asking += [annotation["target"] for annotation in dashboard["annotations"]["list"]]
    asking += [it for it in dashboard["templating"]["list"] if it["type"] in ("query", "adhoc")]
    assert all(it["datasource"] == chosen for it in asking)
    assert json.dumps(dashboard).count('"datasource": ') == len(asking)


def test_every_panel_explains_itself(dashboard: dict[str, Any]) -> None:
    """A panel has a title, a description, a unit, and words for having no data."""
    for panel in panels(dashboard):
        defaults = panel["fieldConfig"]["defaults"]
        for what in (panel["title"], panel["description"], defaults["unit"], defaults["noValue"]):
            assert what.strip(), panel["title"]
        assert panel["description"].endswith(".")


def test_the_axis_of_a_count_has_no_fractions(dashboard: dict[str, Any]) -> None:
    """Panels over time whose unit is a plain number show counts."""
    for panel in panels(dashboard):
        defaults = panel["fieldConfig"]["defaults"]
        if panel["type"] == "timeseries" and defaults["unit"] == "short":
            assert defaults.get("decimals") == 0, panel["title"]


def test_ids_are_distinct(dashboard: dict[str, Any]) -> None:
    """No two panels share an id, and no two queries of a panel."""
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels(dashboard):
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == sorted(set(letters)), panel["title"]


def test_panels_lie_side_by_side(dashboard: dict[str, Any]) -> None:
    """No panel covers another, or reaches beyond the grid."""
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= GRID
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not taken & cells, panel["title"]
        taken |= cells


def test_the_variables_are_there(dashboard: dict[str, Any]) -> None:
    """Every variable that a query uses is defined, and the job is the one of the documentation."""
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert {"datasource", "job", "instance"} <= set(variables)
    assert variables["job"]["current"]["value"] == [JOB] == ["azure-scheduled-events-exporter"]
    used = {name for asked in queries(dashboard) for name in re.findall(r"\$([a-z_]\w*)", asked.expression)}
    assert {name for name in used if not name.startswith("__")} <= set(variables)


def test_the_dashboards_lead_to_one_another() -> None:
    """Each links to the two others, by uids that exist."""
    uids = {load(name)["uid"] for name in NAMES}
    assert len(uids) == len(NAMES)
    for name in NAMES:
        board = load(name)
        linked = {re.match(r"/d/([\w-]+)", link["url"])[1] for link in board["links"]}  # type: ignore[index] # fails
        assert linked == uids - {board["uid"]}
        assert set(re.findall(r'"/d/([\w-]+)', json.dumps(board))) <= uids


def test_a_table_names_its_columns(dashboard: dict[str, Any]) -> None:
    """Every value of a table is renamed or left out, and every override is of a column that exists."""
    for panel in panels(dashboard):
        if panel["type"] != "table":
            continue
        options = next(it["options"] for it in panel["transformations"] if it["id"] == "organize")
        several = len(panel["targets"]) > 1
        values = {f"Value #{target['refId']}" if several else "Value" for target in panel["targets"]}
        assert values <= set(options["renameByName"])
        titles = set(options["renameByName"].values())
        overridden = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
        assert overridden <= titles | {"/.*/"}
        assert panel["options"]["sortBy"][0]["displayName"] in titles


def test_the_choice_of_places_survives_the_links() -> None:
    """Scale set, zone and resource group go along to the other dashboards and back, also by way of a VM."""
    places = {"resource_group", "scale_set", "zone"}
    for name in NAMES:
        board = load(name)
        assert places <= {variable["name"] for variable in board["templating"]["list"]}
        rows = re.findall(r'"url": "(/d/[^"]+)"', json.dumps(board))
        assert len(rows) >= len(board["links"])
        for url in rows:
            assert places <= set(re.findall(r"\$\{(\w+):queryparam\}", url)), url


def test_the_instructions_are_yaml() -> None:
    """What a reader copies to Grafana is well-formed, and names the label that exemplars have."""
    text = (FOLDER.parent / "docs" / "grafana.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    assert [sorted(block) for block in blocks] == [
        ["apiVersion", "providers"],
        ["apiVersion", "datasources"],
        ["apiVersion", "datasources"],
    ]
    (destination,) = blocks[-1]["datasources"][0]["jsonData"]["exemplarTraceIdDestinations"]
    assert destination["name"] == "trace_id"
    assert destination["datasourceUid"] == blocks[-1]["datasources"][1]["uid"]


def test_the_commands_of_the_instructions_do_what_they_say(tmp_path: Path) -> None:
    """Files and pages that they name exist, and another job's name gets to where the variable looks."""
    text = (FOLDER.parent / "docs" / "grafana.md").read_text(encoding="utf-8")
    files = re.findall(r"--from-file=(\S+)", text)
    assert {Path(file).name for file in files} == {f"{name}.json" for name in NAMES}
    named = [*files, *(f"docs/{link}" for link in re.findall(r"\]\((?!https?:)([^)#]+)", text))]
    assert all((FOLDER.parent / file).exists() for file in named)
    (program,) = re.findall(r"sed -i '([^']+)'", text)
    for name in NAMES:
        file = tmp_path / f"{name}.json"
        shutil.copy(FOLDER / file.name, file)
        subprocess.run(["sed", "-i", program, file], check=True)
        renamed = json.loads(file.read_text(encoding="utf-8"))["templating"]["list"]
        assert {"selected": True, "text": ["my-job"], "value": ["my-job"]} in [
            v.get("current") for v in renamed
        ]
