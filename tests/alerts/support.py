"""What the tests of the alerts share: where things are, the rules, the promtool tests, running a tool."""

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


def tool(*words: str | Path, cwd: Path | None = None) -> str:
    """Run a tool that has to succeed; return all that it says."""
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def rules(*files: Path) -> list[dict[str, Any]]:
    """Return the rules of rule files, by default of all that are shipped."""
    read = [yaml.safe_load(file.read_text()) for file in files or RULE_FILES]
    return [rule for file in read for group in file["groups"] for rule in group["rules"]]


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
