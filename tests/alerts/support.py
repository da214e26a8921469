"""Running Prometheus with the shipped rules, Alertmanager and their tools."""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.alerts import ALERTS, RULE_FILES, groups
from tests.end_to_end.program import free_port, running

EXAMPLE = ALERTS / "alertmanager.example.yml"


def alertmanager(storage: Path, file: Path = EXAMPLE) -> contextlib.AbstractContextManager[str]:
    """Run an Alertmanager until the end of the block, by default with the example; yield its URL."""
    flags = f"--config.file={file}", f"--storage.path={storage}", "--cluster.listen-address="
    return running("prometheus-alertmanager", free_port(), *flags)


@contextlib.contextmanager
def prometheus(
    folder: Path,
    targets: Mapping[str, int],
    *flags: str,
    every: str = "1s",
    alertmanager: str = "",
    jobs: Sequence[Mapping[str, Any]] = (),
) -> Iterator[str]:
    """Scrape VMs' exporters at these ports, and evaluate the shipped rules every second; yield the URL."""
    for file in RULE_FILES:
        quick = [{**group, "interval": "1s"} for group in groups(file)]
        (folder / file.name).write_text(json.dumps({"groups": quick}))
    found = [{"targets": [f"127.0.0.1:{port}"], "labels": {"instance": vm}} for vm, port in targets.items()]
    receivers = [{"static_configs": [{"targets": [alertmanager.removeprefix("http://")]}]}]
    configuration = {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "rule_files": ["*.rules.yml"],
        "scrape_configs": [{"job_name": "azure-scheduled-events-exporter", "static_configs": found}, *jobs],
        "alerting": {"alertmanagers": receivers if alertmanager else []},
    }
    (folder / "prometheus.yml").write_text(json.dumps(configuration))
    flags = (f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}", *flags)
    with running("prometheus", free_port(), *flags) as url:
        yield url


def tool(*words: str | Path, cwd: Path | None = None, timeout: float = 240) -> str:
    """Run a tool that has to succeed; return its output."""
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
