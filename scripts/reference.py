"""Checks for `scripts.checks` that the documentation lists what there is: commands, flags and keys."""

import re
from collections.abc import Iterator

import click
import msgspec
import yaml

from exporter.cli import main
from exporter.config import PROGRAM, Config
from exporter.config.match import Match, Window
from exporter.health import DegradedReason
from exporter.model.events import EVENT_TYPES
from exporter.model.lifecycle import Transition
from exporter.outputs.notifications.templates import FILTERS, NAMES, Vm
from scripts.project import ROOT

DOCS = ROOT / "docs"


def problems() -> Iterator[str]:
    """Yield what is missing, and what is listed and does not exist."""
    for page, needed in _tables():
        yield from (f"docs/{page}: {name} is not listed" for name in sorted(needed - _names(page)))
    for page, known in (("match.md", _match()), ("configuration.md", _flags())):
        listed = {name for name in _names(page) if page == "match.md" or name.startswith("--")}
        yield from (f"docs/{page}: {name} does not exist" for name in sorted(listed - known))
    yield from _keys()
    yield from _recipes()
    yield from _monitoring()


def _names(page: str) -> set[str]:
    """Return the code in the first cells of a page's tables; of a command, its first word."""
    cells = re.findall(r"^\| (`.+?) \|", (DOCS / page).read_text(), re.MULTILINE)
    return {name.split()[0] for cell in cells for name in re.findall("`([^`]+)`", cell)}


def _flags() -> set[str]:
    return {one.opts[0] for one in main.commands["run"].params if isinstance(one, click.Option)}


def _match() -> set[str]:
    return {field.encode_name for kind in (Match, Window) for field in msgspec.structs.fields(kind)}


def _tables() -> Iterator[tuple[str, set[str]]]:
    variables = {*NAMES, *FILTERS, *(f"vm.{name}" for name in Vm.__struct_fields__)} - {"vm"}
    yield "commands.md", set(main.commands)
    yield "configuration.md", _flags()
    yield "match.md", _match()
    yield "events.md", {*EVENT_TYPES, *(transition.value for transition in Transition)}
    yield "troubleshooting.md", {reason.value for reason in DegradedReason}
    yield "messages.md", variables


def _keys() -> Iterator[str]:
    """Yield sections that the sample of all sections lacks, and keys that are on no page."""
    text = "".join(page.read_text() for page in [ROOT / "README.md", *DOCS.glob("*.md")])
    _, _, sample = (DOCS / "configuration.md").read_text().partition("\n```yaml\nimds:")
    sections = {"imds", *re.findall(r"(?m)^(\w+):", sample.partition("\n```\n")[0])}
    for name in sections ^ set(Config.__struct_fields__):
        yield f"docs/configuration.md: section {name} is missing in the sample, or does not exist"
    for section in Config.__struct_fields__:
        for key in getattr(getattr(Config(), section), "__struct_fields__", ()):
            if not re.search(rf"[`.]{key}`|\b{key}:", text):
                yield f"docs: the key {section}.{key} is on no page"


def _recipes() -> Iterator[str]:
    """Yield the paths in the recipes of CONTRIBUTING.md that do not exist."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("\n## Recipes\n")[2].partition("\n## ")[0]
    for path in set(re.findall(r"`([\w./-]+)`", text)) - {"alerts/runbooks/NAME.md", "outputs/NAME/"}:
        places = (ROOT / path, ROOT / "exporter" / path)
        if ("/" in path or path.endswith(".py")) and not any(place.exists() for place in places):
            yield f"CONTRIBUTING.md: {path} does not exist"


def _monitoring() -> Iterator[str]:
    """Look whether the samples for Prometheus and Grafana agree with the rules and with each other."""
    blocks = [yaml.safe_load(text) for text in _blocks("prometheus.md")]
    jobs = [block["scrape_configs"][0]["job_name"] for block in blocks if "scrape_configs" in block]
    if jobs != [PROGRAM] * 3:
        yield f"docs/prometheus.md: not all three ways to scrape have the job {PROGRAM}"
    (remote,) = (block["remote_write"][0]["azuread"] for block in blocks if "remote_write" in block)
    if remote.keys() != {"cloud", "managed_identity"} or len(remote["managed_identity"]["client_id"]) != 36:
        yield "docs/prometheus.md: remote_write needs a cloud and the client id of an identity"
    *_, shown = (yaml.safe_load(text) for text in _blocks("grafana.md"))
    prometheus, traces = shown["datasources"]
    (link,) = prometheus["jsonData"]["exemplarTraceIdDestinations"]
    if (link["name"], link["datasourceUid"]) != ("trace_id", traces["uid"]):
        yield "docs/grafana.md: exemplars do not lead to the traces"


def _blocks(page: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
