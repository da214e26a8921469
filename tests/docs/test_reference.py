"""The reference lists what there is: metrics, commands, flags, configuration keys."""

import re

import click
import msgspec
import pytest
from apprise import Apprise

from exporter.cli import main
from exporter.config import Config
from exporter.config.match import Match, Window
from exporter.health import DegradedReason, Health
from exporter.metrics import EventCollector, SnapshotCollector
from exporter.model.lifecycle import Transition
from exporter.model.views import Snapshot
from exporter.notifications.templates import FILTERS, NAMES, Vm
from tests.alerts.test_rules import exposed
from tests.clocks import HandClock
from tests.docs.pages import DOCS, README, ROOT

PREFIX = "azure_scheduled_events_"
SERVICES = re.findall(
    r"^\| (.+?) \|.*\| `(\w+://[^`]+)` \|$", (DOCS / "services.md").read_text(), re.MULTILINE
)


def cells(page: str) -> list[str]:
    return re.findall(r"^\| (`.+?) \|", (DOCS / page).read_text(), re.MULTILINE)


def names(page: str) -> set[str]:
    """Return what stands as code in the first cells."""
    return {name for cell in cells(page) for name in re.findall("`([^`]+)`", cell)}


def test_recipes_name_what_exists() -> None:
    """Each file and directory in the recipes of CONTRIBUTING.md is there, and each target of make."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("\n## Recipes\n")[2].partition("\n## ")[0]
    paths = [path for path in re.findall(r"`([\w./-]+)`", text) if "/" in path or path.endswith(".py")]
    assert len(paths) > 20
    missing = [path for path in paths if not any((ROOT / top / path).exists() for top in ("", "exporter"))]
    assert missing == ["alerts/runbooks/NAME.md"]
    targets = re.findall("`make ([a-z-]+)`", text)
    assert set(targets) <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_metric_with_its_labels() -> None:
    """The page about metrics has each metric that is exposed, with its labels, and no other."""
    rows = re.findall(r"^\| `(\w+)` \| \w+ \|(.*?)\|", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    shown = {PREFIX + name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    clock = HandClock()
    possible = [
        *SnapshotCollector(Snapshot, Health(clock), clock).describe(),
        *EventCollector(Snapshot).describe(),
    ]
    real: dict[str, set[str]] = {}
    for sample, used in exposed().items():
        name = re.sub("_(bucket|sum|count)$", "", sample)
        if name.startswith(PREFIX) and not name.endswith("_created"):
            real.setdefault(name, set()).update(used - {"le"})
    assert shown.keys() == real.keys() | {family.name for family in possible}
    assert {name: shown[name] for name in real} == real


def test_every_command() -> None:
    """The page about commands lists them all."""
    listed = {cell.split()[0].strip("`") for cell in cells("commands.md")}
    assert listed >= main.commands.keys()


def test_every_flag_of_run() -> None:
    """The page about the configuration lists every flag."""
    flags = {param.opts[0] for param in main.commands["run"].params if isinstance(param, click.Option)}
    assert flags == {name for name in names("configuration.md") if name.startswith("--")}


def test_every_section_and_key() -> None:
    """The sample with all sections has each section, and each key stands on some page."""
    text = "".join(page.read_text() for page in [README, *DOCS.glob("*.md")])
    sample = re.search(
        r"^```yaml\n(imds:.*?)^```", (DOCS / "configuration.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert sample
    assert set(re.findall(r"^(\w+):", sample[1], re.MULTILINE)) == set(Config.__struct_fields__)
    for section in Config.__struct_fields__:
        default = getattr(Config(), section)
        for key in getattr(default, "__struct_fields__", ()):
            assert re.search(rf"[`.]{key}`|\b{key}:", text), f"{section}.{key}"


def test_every_key_of_match() -> None:
    """The page about match lists its keys, and those of a window."""
    shown = names("match.md")
    fields = (msgspec.structs.fields(kind) for kind in (Match, Window))
    assert shown == {field.encode_name for group in fields for field in group}


def test_every_transition_and_problem() -> None:
    """The tables of transitions and of the reasons for being degraded are complete."""
    assert names("events.md") >= {transition.value for transition in Transition}
    assert names("troubleshooting.md") >= {trouble.value for trouble in DegradedReason}


def test_every_template_variable_and_filter() -> None:
    """The page about notifications lists what a template may use."""
    own = {f"vm.{name}" for name in Vm.__struct_fields__}
    assert names("notifications.md") >= ({*NAMES, *FILTERS} - {"vm"}) | own


def test_the_sample_of_a_message_is_one() -> None:
    """The page about notifications shows a message as the program writes it."""
    page = (DOCS / "notifications.md").read_text()
    shown = page[page.index("## Messages") :].split("```")[1].strip()
    golden = DOCS.parent / "tests" / "notifications" / "golden" / "messages.txt"
    assert f"======== Reboot scheduled\n{shown}\n" in golden.read_text()


def test_every_test_that_is_named_exists() -> None:
    """A claim whose test was renamed or dropped is found."""
    text = (DOCS / "reliability.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 30
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).exists() or (name and f"def {name}(" not in (ROOT / path).read_text())
    ]
    assert missing == []


@pytest.mark.parametrize(("service", "url"), SERVICES)
def test_apprise_takes_the_url(service: str, url: str) -> None:
    """Apprise accepts each URL; the login of a mail server is the part before its colon."""
    plugin = Apprise.instantiate(url)
    assert plugin is not None
    if "login" in service and "without" not in service:
        assert plugin.user == "user@example.com"


def test_there_are_at_least_ten() -> None:
    """The table is read as it is written."""
    assert len(SERVICES) >= 10
