"""Writes the rule files from the mixin: `python -m scripts.mixin`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import _jsonnet
import yaml

ALERTS = Path(__file__).parent.parent / "alerts"
MIXIN = ALERTS / "mixin"

_RULES = """\
# Alerts on Azure Scheduled Events, and the recording rules that alerts and dashboards share, for Prometheus
# 2.42 or newer. README.md in this directory describes how to install it.
#
# Made from mixin/ by `make alerts`: comments on the rules, and everything that can be configured, are there.
# If only the job has another name, change it here, in the labels of the first rule; all others select by
# metric name.

"""
_INHIBITION = """\
# For use with alertmanager.example.yml and scheduled-events.rules.yml. Do not load it without them: its
# alert, one per VM, only inhibits others and should not be sent to anyone. Made from mixin/ by `make alerts`.

"""


def evaluate(expression: str) -> Any:
    """Evaluate an expression of jsonnet, in which `mixin` is the mixin."""
    found = _jsonnet.evaluate_snippet(
        str(MIXIN / "-"), f"local mixin = import 'mixin.libsonnet'; {expression}"
    )
    return json.loads(found)


def build() -> Mapping[str, str]:
    """Return the text of each rule file, by its name."""
    rules = evaluate("{ groups: mixin.prometheusAlerts.groups + mixin.prometheusRules.groups }")
    return {
        "scheduled-events.rules.yml": _RULES + _encode(rules),
        "inhibition.rules.yml": _INHIBITION + _encode(evaluate("mixin.inhibitionAlerts")),
    }


class _Dumper(yaml.SafeDumper):
    """Writes expressions of several lines as they are."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Dumper.add_representer(str, _Dumper.represent_str)


# jsonnet sorts keys.
_ORDER = ("name", "interval", "record", "alert", "expr", "for", "labels", "annotations", "rules")


def _in_order(found: dict[str, Any]) -> dict[str, Any]:
    return {key: found[key] for key in _ORDER if key in found}


def _encode(file: Mapping[str, Any]) -> str:
    groups = [
        _in_order(group | {"rules": [_in_order(rule) for rule in group["rules"]]}) for group in file["groups"]
    ]
    return yaml.dump({"groups": groups}, Dumper=_Dumper, sort_keys=False, width=116)


def main() -> None:
    """Write the files."""
    for name, text in build().items():
        (ALERTS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
