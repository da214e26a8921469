"""The metrics, messages and addresses in the documentation; `scripts.reference` checks names."""

import re
from pathlib import Path

import pytest
import yaml
from apprise import Apprise

from exporter.config import Config, Overrides, loading
from tests.alerts.test_rules import exposed
from tests.bench import Build
from tests.docs.pages import DOCS, blocks

PREFIX = "azure_scheduled_events_"
SERVICES = re.findall(
    r"^\| (.+?) \|.*\| `(\w+://[^`]+)` \|$", (DOCS / "services.md").read_text(), re.MULTILINE
)


def test_every_metric_with_its_labels(build: Build) -> None:
    """The page about metrics has each metric that is exposed, with its labels, and no other."""
    rows = re.findall(r"^\| `(\w+)` \| \w+ \|(.*?)\|", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    shown = {PREFIX + name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    real: dict[str, set[str]] = {}
    for sample, used in exposed(build).items():
        name = re.sub("_(bucket|sum|count)$", "", sample)
        if name.startswith(PREFIX) and not name.endswith("_created"):
            real.setdefault(name, set()).update(used - {"le"})
    # The text of its row has the label that is there in Kubernetes alone.
    real[f"{PREFIX}instance_info"].remove("node")
    assert shown == real


def test_the_defaults(tmp_path: Path) -> None:
    """The sample of all sections has the default of each key; only targets and routes have none."""
    (sample,) = (
        yaml.safe_load(block.text)
        for block in blocks("yaml")
        if block.page.name == "configuration.md" and block.text.startswith("imds:")
    )
    del sample["notifications"]["targets"], sample["notifications"]["routes"]
    file = tmp_path / "c.yml"
    file.write_text(yaml.safe_dump(sample))
    assert loading.load(file, Overrides()) == Config()


def test_the_sample_of_a_message_is_one() -> None:
    """The page about messages shows one as the program writes it."""
    page = (DOCS / "messages.md").read_text()
    shown = page.split("```")[1].removeprefix("text").strip()
    golden = DOCS.parent / "tests" / "outputs" / "notifications" / "golden" / "messages.txt"
    assert f"======== Reboot scheduled\n{shown}\n" in golden.read_text()


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
