import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec import inspect

from exporter.commands.schema import schema
from exporter.config import Config, Overrides, loading, yamlfile
from exporter.config.match import Match
from scripts.project import ROOT
from scripts.schema import is_current
from tests.bench.test_keys import keys
from tests.bench.test_samples import SAMPLES
from tests.config.test_config import bad_configs
from tests.docs.pages import sample

VALIDATOR = jsonschema.Draft7Validator(schema())


def parsed(text: str) -> Any:
    return yamlfile.parse(text, Path("c.yml")).data


def test_the_sample_has_all_keys_with_their_defaults(tmp_path: Path) -> None:
    """As installed it sets nothing, nor do all keys in effect, except for the examples in lists."""
    installed = ROOT / "deploy" / "exporter.yml"
    assert loading.load(installed, Overrides()) == Config()
    named = (*keys(inspect.type_info(Config)), *keys(inspect.type_info(Match), "match"))
    assert set(re.findall(r"\w+", " ".join(named))) <= set(re.findall(r"(\w+):", installed.read_text()))
    data = parsed(sample())
    for section, entries in (
        ("notifications", "targets"),
        ("notifications", "routes"),
        ("approval", "rules"),
    ):
        assert data[section].pop(entries)
    assert data.pop("hooks")
    file = tmp_path / "c.yml"
    file.write_text(json.dumps(data))
    assert loading.load(file, Overrides()) == Config()


@pytest.mark.parametrize("text", SAMPLES.values(), ids=SAMPLES)
def test_samples_are_accepted(text: str) -> None:
    """What the documentation shows keeps to the schema."""
    assert [error.message for error in VALIDATOR.iter_errors(parsed(text))] == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "imds:\nnotifications:\n  targets:\n",
        "imds: {timeout: 1m30s, poll_interval: 500ms}\nnotifications: {retry_for: 0}",
        "tracing: {enabled: 'on'}\notlp: {metrics: off, logs: auto}\napproval: {mode: off}",
        "hooks: [{name: a, command: [b], match: {target: any, windows: [{days: [mon], from: '22:00'}]}}]",
        "notifications: {targets: [{name: a, webhook: '${URL}', headers: {X: 'b ${T}'}}]}",
        "kubernetes: {drain: {pod_grace_period: '', skip_node_labels: {a: b}}}",
    ],
)
def test_what_is_accepted(text: str) -> None:
    """Durations, matches, variables and sections without content are written as everywhere."""
    assert [error.message for error in VALIDATOR.iter_errors(parsed(text))] == []


@pytest.mark.parametrize(
    "text",
    [
        "imds: {port: 1}",
        "imds: {timeout: soon}",
        "imds: {timeout: 10}",
        "tracing: {enabled: of}",
        "approval: {mode: dry}",
        "approval: {rules: [{name: a}]}",
        "hooks: [{name: a, command: [b], match: {event_type: [Reboot]}}]",
        "in_service: {match: {windows: [{from: '9'}]}}",
        *(text for text, message in bad_configs() if "unknown key" in message or "must be" in message[:60]),
    ],
)
def test_what_is_refused(text: str) -> None:
    """Unknown keys and values of the wrong form are refused, as the exporter does."""
    assert not VALIDATOR.is_valid(parsed(text))


def test_keys_have_descriptions() -> None:
    """They are the comments of the sample configuration."""
    definitions = schema()["definitions"]
    described = {
        (kind, key): value["description"]
        for kind, definition in definitions.items()
        for key, value in definition.get("properties", {}).items()
        if "description" in value
    }
    assert described["Imds", "timeout"].startswith("of one request; the first may take 150s")
    assert described["Target", "tag"] == "the entries with this tag in apprise_config"
    assert described["Match", "transitions"].endswith("vanished, approved and hook_failed")
    assert described["Config", "web"].startswith("Where people reach this exporter's page")


def test_the_charts_copy_is_current() -> None:
    """`helm install` refuses what the exporter would; `python -m scripts.schema` writes the copy."""
    assert is_current()


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """It writes the schema as JSON, and needs no file."""
    from exporter.cli import main

    main(["check-config", "--schema"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == schema()
