"""The runbooks' commands work with the real tools."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator

import pytest

from exporter.cli import main
from exporter.health import DegradedReason
from exporter.model.events import EVENT_TYPES
from tests.alerts.support import ALERTS, alerts, firing, rules
from tests.alerts.test_rules import exposed
from tests.end_to_end.program import free_port, get, running

RUNBOOKS = {file.stem: file.read_text() for file in sorted((ALERTS / "runbooks").iterdir())}
# What a reader puts in the place of a word in capitals, and the label that it is the value of.
PLACES = {
    "VM": "instance",
    "ID": "event_id",
    "JOB": "job",
    "TARGET": "target",
    "HOOK": "hook",
    "REASON": "reason",
}


def commands(text: str, program: str) -> list[list[str]]:
    """Return the commands of a text that run a program: lines of their own, and words in backquotes."""
    found = re.findall(rf"(?:^ {{4,}}|`)({re.escape(program)} [^`\n]+)", text, re.MULTILINE)
    return [shlex.split(command) for command in found]


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run an Alertmanager with the example's configuration."""
    storage = f"--storage.path={tmp_path_factory.mktemp('alertmanager')}"
    file = f"--config.file={ALERTS / 'alertmanager.example.yml'}"
    with running("prometheus-alertmanager", free_port(), file, storage, "--cluster.listen-address=") as url:
        yield url


def test_every_amtool_command_works(alertmanager: str) -> None:
    """Alertmanager takes each, and each alert is silenced by its own runbook's command."""
    for name, text in RUNBOOKS.items():
        for command in commands(text, "amtool"):
            where = [f"--alertmanager.url={alertmanager}", *(["--author=test"] if "add" in command else [])]
            done = subprocess.run([*command, *where], capture_output=True, text=True, check=False)
            assert done.returncode == 0, (name, command, done.stderr)
    made = json.loads(get(f"{alertmanager}/api/v2/silences"))
    silenced = {m["value"] for one in made for m in one["matchers"] if m["name"] == "alertname"}
    assert silenced == alerts().keys() - {"ScheduledEventInhibitor"}


@pytest.mark.parametrize("name", sorted(alerts().keys() - {"ScheduledEventInhibitor"}))
def test_a_silence_is_by_labels_that_the_alert_has(name: str) -> None:
    """A silence for a label that does not exist would match nothing."""
    (command,) = (c for c in commands(RUNBOOKS[name], "amtool") if c[1:3] == ["silence", "add"])
    matchers = dict(word.split("=") for word in command[3:] if not word.startswith("-"))
    for labels in firing(name):
        meant = {label: labels.get(label) if value in PLACES else value for label, value in matchers.items()}
        assert meant.items() <= labels.items(), labels
    assert all(PLACES.get(value, label) == label for label, value in matchers.items())


def test_every_command_of_the_exporter_exists() -> None:
    """Subcommands and flags that runbooks name are those of the program."""
    named = [c for text in RUNBOOKS.values() for c in commands(text, "azure-scheduled-events-exporter")]
    assert len(named) > 5
    for _, subcommand, *rest in named:
        command = main.commands[subcommand]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= known


def test_every_metric_of_the_runbooks_exists() -> None:
    """Metrics that a reader is to look at are exposed or recorded."""
    known = exposed().keys() | {rule["record"] for rule in rules() if "record" in rule}
    for name, text in RUNBOOKS.items():
        for metric in re.findall(r"azure_scheduled_events[\w:]+", text):
            assert metric in known, (name, metric)


def test_reasons_and_types_are_complete() -> None:
    """The tables of the runbooks have every reason to be degraded, and every type of event."""
    listed = re.findall(r"^\| `(\w+)` \|", RUNBOOKS["ScheduledEventsDegraded"], re.MULTILINE)
    assert listed == [trouble.value for trouble in DegradedReason]
    types = re.findall(r"^\| (\w+) \|", RUNBOOKS["ScheduledEventPending"], re.MULTILINE)
    assert set(types) == {"type", *EVENT_TYPES}
