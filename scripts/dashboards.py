"""Checks of the committed dashboards for `scripts.checks`; each yields its problems."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.build import FOLDER, build, encode
from dashboards.source.frame import JOB

Json = dict[str, Any]
COLUMNS = 24
CHOSEN = {"type": "prometheus", "uid": "${datasource}"}
KEPT = {"datasource", "job", "cluster"}


def problems() -> Iterator[str]:
    """Check every dashboard alone, and their links."""
    boards: dict[str, Json] = {}
    for name, text in build().items():
        boards[name] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
        if boards[name] != json.loads(text):
            yield f"{name}: run make dashboards"
    uids = {board["uid"] for board in boards.values()}
    for name, board in boards.items():
        found = [*_fields(board), *_variables(board), *_links(board, uids), *_layout(board)]
        for panel in _panels(board):
            found += [f"panel {panel['title']} {problem}" for problem in (*_panel(panel), *_table(panel))]
        yield from (f"{name}: {problem}" for problem in found)


def _panels(board: Json) -> list[Json]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def _fields(board: Json) -> Iterator[str]:
    # A misspelt field would be lost on the way through the SDK's own types and back.
    if json.loads(encode(Dashboard.from_json(board))) != board:
        yield "has a field that the SDK does not know"
    asking = [*_panels(board), *board["annotations"]["list"]]
    asking += [target for panel in _panels(board) for target in panel["targets"]]
    asking += [annotation["target"] for annotation in board["annotations"]["list"]]
    asking += [one for one in board["templating"]["list"] if one["type"] in {"query", "adhoc"}]
    is_chosen = all(one["datasource"] == CHOSEN for one in asking)
    if not is_chosen or json.dumps(board).count('"datasource": ') != len(asking):
        yield "queries a data source other than the selected one"


def _variables(board: Json) -> Iterator[str]:
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    used = set(
        re.findall(r"\$([a-z_]\w*)", " ".join(re.findall(r'"expr": "(.*?)(?<!\\)"', json.dumps(board))))
    )
    used |= {"instance", *KEPT}
    missing = {name for name in used if not name.startswith("__")} - variables.keys()
    yield from (f"variable {name} is not defined" for name in sorted(missing))
    if variables["job"]["current"]["value"] != [JOB]:
        yield f"the default job is not {JOB}"


def _links(board: Json, uids: set[str]) -> Iterator[str]:
    linked = {re.sub(r"^/d/([\w-]+).*", r"\1", link["url"]) for link in board["links"]}
    if linked != uids - {board["uid"]}:
        yield "does not link to all other dashboards"
    for url in re.findall(r'"url": "(/d/[^"]+)"', json.dumps(board)):
        if KEPT - set(re.findall(r"\$\{(\w+):queryparam\}", url)):
            yield f"the selected job is lost by the link {url}"
    yield from (f"no dashboard {uid}" for uid in set(re.findall(r'"/d/([\w-]+)', json.dumps(board))) - uids)


def _layout(board: Json) -> Iterator[str]:
    taken: Counter[tuple[int, int]] = Counter()
    for panel in board["panels"]:
        at = panel["gridPos"]
        taken.update((at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"]))
    if max(taken.values()) > 1 or max(x for x, _ in taken) >= COLUMNS:
        yield "panels overlap, or are too wide"
    if len({panel["id"] for panel in board["panels"]}) < len(board["panels"]):
        yield "two panels have the same id"


def _panel(panel: Json) -> Iterator[str]:
    defaults = panel["fieldConfig"]["defaults"]
    texts = (panel["title"], panel["description"], defaults["unit"], defaults["noValue"])
    if not all(text.strip() for text in texts) or not panel["description"].endswith("."):
        yield "lacks a description, a unit or a text for no data"
    if panel["type"] == "timeseries" and defaults["unit"] == "short" and defaults.get("decimals") != 0:
        yield "counts in fractions"
    letters = [target["refId"] for target in panel["targets"]]
    if letters != sorted(set(letters)):
        yield "has queries with the same letter"


def _table(panel: Json) -> Iterator[str]:
    if panel["type"] != "table":
        return
    options = next(one["options"] for one in panel["transformations"] if one["id"] == "organize")
    several = len(panel["targets"]) > 1
    values = {f"Value #{target['refId']}" if several else "Value" for target in panel["targets"]}
    titles = set(options["renameByName"].values())
    named = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]} - {"/.*/"}
    named.add(panel["options"]["sortBy"][0]["displayName"])
    if not values <= set(options["renameByName"]) or not named <= titles:
        yield "has a column without a title, or settings for one that does not exist"
