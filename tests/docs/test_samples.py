"""The samples in README.md and docs/: queries, answers, and all configurations but the exporter's own."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import yaml

from exporter.config import Config
from exporter.simulator import Scenario, load_scenarios
from exporter.web import webfile
from exporter.web.api import Events, Status
from scripts.alerts import RULE_FILES
from tests.alerts.support import tool
from tests.configs import checked
from tests.docs.pages import ROOT, Block, blocks
from tests.web.certificates import Pki

pytestmark = pytest.mark.usefixtures("checks_in_process")
(VALUES,) = (ROOT / "deploy" / "helm").glob("*/values.yaml")
ANSWERS: dict[str, type[msgspec.Struct]] = {"current": Events, "version": Status}


def web(block: Block, folder: Path) -> None:
    """Read a web configuration; its certificate and key are there."""
    pki = Pki.make(folder)
    names = yaml.safe_load(block.text)["tls_server_config"]
    (pki.folder / "cert.pem").rename(folder / names["cert_file"])
    (pki.folder / "key.pem").rename(folder / names["key_file"])
    file = folder / "web.yml"
    file.write_text(block.text)
    webfile.load(file)


def prometheus(block: Block, folder: Path) -> None:
    """Check a configuration of Prometheus with promtool; every file that it names is there."""
    (folder / "rules").mkdir()
    for file in RULE_FILES:
        (folder / "rules" / file.name).write_text(file.read_text())
    for name in re.findall(r"(?:ca|password|cert|key|credentials)_file: ?([\w-]+[\w.-]*)", block.text):
        (folder / name).touch()
    configuration = yaml.safe_load(block.text)
    for target in configuration.get("remote_write", []):
        # Needs Prometheus 2.45; Debian 12 has 2.42.
        target.pop("azuread", None)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    assert "SUCCESS" in tool("promtool", "check", "config", "prometheus.yml", cwd=folder)


def alertmanager(block: Block, folder: Path) -> None:
    """Check a configuration of Alertmanager with amtool; receivers alone are for the shipped example."""
    example = (ROOT / "alerts" / "alertmanager.example.yml").read_text().partition("\nreceivers:\n")[0]
    text = f"{example}\n{block.text}" if block.text.startswith("receivers:") else block.text
    (folder / "alertmanager.yml").write_text(text)
    assert "SUCCESS" in tool("amtool", "check-config", "alertmanager.yml", cwd=folder)


def resource(block: Block, _: Path) -> None:
    """Look at a resource of Kubernetes, or at a file of Grafana's, which has a version and no kind."""
    for document in yaml.safe_load_all(block.text):
        assert document["apiVersion"] == 1 or {"kind", "metadata"} <= document.keys()


def story(block: Block, folder: Path) -> None:
    file = folder / "scenario.yml"
    file.write_text(block.text)
    load_scenarios([str(file)])


def values(block: Block, folder: Path) -> None:
    """Read values of the Helm chart; the configuration in them is valid."""
    settings = yaml.safe_load(block.text).get("config", {})
    file = folder / "exporter.yml"
    named = yaml.safe_dump(settings)
    for path in re.findall(r"url_file: (\S+)", named):
        (folder / "secret").write_text("json://127.0.0.1\n")
        named = named.replace(path, str(folder / "secret"))
    file.write_text(named)
    checked(file)


def collector(block: Block, _: Path) -> None:
    """Look whether the pipelines of an OpenTelemetry Collector name what it has."""
    configuration = yaml.safe_load(block.text)
    for pipeline in configuration["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            assert set(names) <= configuration[kind].keys()


def foreign(block: Block, _: Path) -> None:
    """Read a file of a program that the tests do not have: Datadog's agent, or a data source of Grafana."""
    (items,) = yaml.safe_load(block.text).values()
    assert items


CHECKS: dict[Callable[[Block, Path], None], set[str]] = {
    values: set(yaml.safe_load(VALUES.read_text())),
    story: set(Scenario.__struct_fields__),
    web: {"tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"},
    prometheus: {"global", "scrape_configs", "rule_files", "alerting", "remote_write"},
    alertmanager: {"global", "route", "receivers", "inhibit_rules", "templates"},
    collector: {"receivers", "processors", "exporters", "service"},
    foreign: {"instances", "jsonData"},
}


def keys(block: Block) -> set[str]:
    return set(next(yaml.safe_load_all(block.text)))


OTHERS = [block for block in blocks("yaml") if not keys(block) <= set(Config.__struct_fields__)]


@pytest.mark.parametrize("block", OTHERS, ids=str)
def test_a_configuration(block: Block, tmp_path: Path) -> None:
    """Each is valid as it stands, for the program that reads it; the bench runs those of the exporter."""
    check = next((check for check, known in CHECKS.items() if keys(block) <= known), resource)
    check(block, tmp_path)


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_an_answer(block: Block) -> None:
    """Each has exactly the fields of the API's responses."""
    shown = json.loads(block.text)
    kind = next(kind for key, kind in ANSWERS.items() if key in shown)
    answer = msgspec.convert(shown, kind)
    assert json.loads(msgspec.json.encode(answer)) == shown


@pytest.mark.parametrize("block", blocks("promql"), ids=str)
def test_a_query(block: Block, tmp_path: Path) -> None:
    """Prometheus can read each."""
    rule = {"record": "sample", "expr": block.text}
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "samples", "rules": [rule]}]}))
    assert "SUCCESS" in tool("promtool", "check", "rules", file)


def test_there_are_samples_of_each_kind() -> None:
    """The blocks are found."""
    assert min(len(blocks(language)) for language in ("yaml", "json", "promql")) > 1
