"""Helpers for the tests of the alerts: running a tool, and quick rules."""

import re
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

from scripts.alerts import ALERTS, RULE_FILES
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


_QUICK = {"interval: 15s": "interval: 1s", "interval: 5s": "interval: 1s", "offset 15s": "offset 1s"}
_QUICK |= {"interval: 1m": "interval: 2s", "offset 1m": "offset 2s"}
_QUICK |= {"[1m]": "[2s]"}
# A busy machine can hold up an exporter for several seconds.
_QUICK |= {"[4m]": "[40s]", "[8m]": "[80s]"}


def write_rules(folder: Path) -> None:
    """Write the shipped rules for evaluation every second or two, with the windows that follow from it."""
    for file in RULE_FILES:
        text = file.read_text()
        for slow, quick in _QUICK.items():
            text = re.sub(rf"{re.escape(slow)}(?!\w)", quick, text)
        assert re.findall(r"interval: (\w+)", text).count("1s") >= text.count("- name: ") - 1
        (folder / file.name).write_text(text)
