"""Prometheus with the shipped rules, and Alertmanager with the shipped example."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from scripts.alerts import ALERTS, RULE_FILES
from tests.end_to_end.program import free_port, running
from tests.receivers import Receiver

Target = dict[str, list[str] | dict[str, str]]


def example(receiver: Receiver) -> dict[str, Any]:
    """Return the example's configuration, with a path of one receiver for each of its receivers."""
    configuration: dict[str, Any] = yaml.safe_load((ALERTS / "alertmanager.example.yml").read_text())
    configuration["receivers"] = [
        {"name": name, "webhook_configs": [{"url": f"http://{receiver.authority}/{name}"}]}
        for name in (one["name"] for one in configuration["receivers"])
    ]
    # Paths are relative to the file.
    return configuration | {"templates": [str(ALERTS / "templates" / "*.tmpl")]}


@contextlib.contextmanager
def monitoring(
    folder: Path, alertmanager: dict[str, Any], scrape: str, targets: Sequence[Target]
) -> Iterator[str]:
    """Run both until the end of the block; return the URL of Prometheus."""
    port = free_port()
    job = {"job_name": "azure-scheduled-events-exporter", "static_configs": targets}
    prometheus = {
        "global": {"scrape_interval": scrape, "scrape_timeout": scrape},
        "rule_files": [str(file) for file in RULE_FILES],
        "scrape_configs": [job],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]},
    }
    am, prom = folder / "alertmanager.yml", folder / "prometheus.yml"
    am.write_text(json.dumps(alertmanager))
    prom.write_text(json.dumps(prometheus))
    storage = f"--storage.path={folder / 'am'}", "--cluster.listen-address="
    with (
        running("prometheus-alertmanager", port, f"--config.file={am}", *storage),
        running(
            "prometheus", free_port(), f"--config.file={prom}", f"--storage.tsdb.path={folder / 'tsdb'}"
        ) as url,
    ):
        yield url
