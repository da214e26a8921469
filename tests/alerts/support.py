"""Helpers for the tests of the alerts: running a tool, and quick rules."""

import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import yaml

from scripts.alerts import ALERTS, RULE_FILES, groups
from tests.end_to_end.program import free_port, running

EXAMPLE = ALERTS / "alertmanager.example.yml"


def alertmanager(storage: Path) -> AbstractContextManager[str]:
    """Run an Alertmanager with the example's configuration until the end of the block; yield its URL."""
    flags = f"--config.file={EXAMPLE}", f"--storage.path={storage}", "--cluster.listen-address="
    return running("prometheus-alertmanager", free_port(), *flags)


def tool(*words: str | Path, cwd: Path | None = None, timeout: float = 240) -> str:
    """Run a tool that has to succeed; return its output."""
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def write_rules(folder: Path) -> None:
    """Write the shipped rules for evaluation every second."""
    for file in RULE_FILES:
        quick = [{**group, "interval": "1s"} for group in groups(file)]
        (folder / file.name).write_text(yaml.safe_dump({"groups": quick}))
