"""Helpers for the tests of the alerts: paths, the rules, the promtool tests, running a tool."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent
ALERTS = ROOT / "alerts"
RULE_FILES = (ALERTS / "scheduled-events.rules.yml", ALERTS / "inhibition.rules.yml")
PROMTOOL_TESTS = sorted((ALERTS / "tests").glob("*.yml"))
_UNITS = {"h": 3600, "m": 60, "s": 1}


def tool(*words: str | Path, cwd: Path | None = None, timeout: float = 240) -> str:
    """Run a tool that has to succeed; return its output."""
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def rules(*files: Path) -> list[dict[str, Any]]:
    """Return the rules of rule files, by default of all that are shipped."""
    read = [yaml.safe_load(file.read_text()) for file in files or RULE_FILES]
    return [rule for file in read for group in file["groups"] for rule in group["rules"]]


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


def alerts(*files: Path) -> dict[str, dict[str, Any]]:
    """Return the alerting rules by name."""
    return {rule["alert"]: rule for rule in rules(*files) if "alert" in rule}


def moments() -> Iterator[tuple[str, int, str, bool]]:
    """Return what the promtool tests expect of alerts: test, time in seconds, alert, and whether it fires."""
    for file in PROMTOOL_TESTS:
        for test in yaml.safe_load(file.read_text())["tests"]:
            for case in test.get("alert_rule_test", []):
                parts = re.findall(r"(\d+)([hms])", case["eval_time"])
                at = sum(int(number) * _UNITS[unit] for number, unit in parts)
                yield f"{file.name}: {test['name']}", at, case["alertname"], bool(case["exp_alerts"])


def firing(name: str) -> list[dict[str, str]]:
    """Return the labels of the alert, each time that it fires in the promtool tests."""
    return [
        {"alertname": name, **alert["exp_labels"]}
        for file in PROMTOOL_TESTS
        for test in yaml.safe_load(file.read_text())["tests"]
        for case in test.get("alert_rule_test", [])
        if case["alertname"] == name
        for alert in case["exp_alerts"]
    ]
