"""The alerting rules as data: checks for `scripts.checks`, and a copy for Azure Monitor.

``python -m scripts.alerts`` writes `alerts/azure-monitor.rule-groups.json`.
"""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from exporter.cli import main as program
from scripts.project import ROOT

Json = dict[str, Any]
ALERTS = ROOT / "alerts"
RULE_FILES = (ALERTS / "events.rules.yml", ALERTS / "exporter.rules.yml")
RULE_GROUPS = ALERTS / "azure-monitor.rule-groups.json"
PROMTOOL_TESTS = sorted((ALERTS / "tests").glob("*.yml"))
RUNBOOKS = {file.stem: file.read_text() for file in sorted((ALERTS / "runbooks").iterdir())}
# Silences and routes of users go by these names.
NAMES = [
    *("ScheduledEventPending", "ScheduledEventImminent", "ScheduledEventStarted", "ScheduledEventsMany"),
    *("ScheduledEventOverrun", "ScheduledEventsConcurrent"),
    *("ScheduledEventsBlind", "ScheduledEventsPollStale", "ScheduledEventsExporterDown"),
    *("ScheduledEventsNoExporter", "ScheduledEventsDegraded", "ScheduledEventsReloadFailed"),
    *("ScheduledEventsClockSkew", "ScheduledEventNotificationsFailing", "ScheduledEventMessagesLost"),
    *("ScheduledEventApprovalsFailing", "ScheduledEventHookFailed", "ScheduledEventUnannouncedPause"),
]
# What a reader puts in the place of a word in capitals, and the label that it is the value of.
PLACES = {
    "VM": "instance",
    "ID": "event_id",
    "JOB": "job",
    "TARGET": "target",
    "HOOK": "hook",
    "REASON": "reason",
}
_JOB = "azure-scheduled-events-exporter"
_ADDRESS = f"https://github.com/{_JOB}/{_JOB}/blob/main/alerts/runbooks/"
_HEADINGS = ("## What to check\n", "## What to do\n", "## How to silence\n")
_UNITS = {"h": 3600, "m": 60, "s": 1}
# An engineer is to read both files in ten minutes.
_MOST_LINES, _MOST_LINES_OF_AN_EXPRESSION = 350, 12


def groups(*files: Path) -> list[Json]:
    """Return the groups of rule files, by default of all that are shipped."""
    return [group for file in files or RULE_FILES for group in yaml.safe_load(file.read_text())["groups"]]


def rules(*files: Path) -> list[Json]:
    """Return the rules of rule files, by default of all that are shipped."""
    return [rule for group in groups(*files) for rule in group["rules"]]


def alerts(*files: Path) -> dict[str, Json]:
    """Return the alerting rules by name."""
    return {rule["alert"]: rule for rule in rules(*files) if "alert" in rule}


def commands(text: str, program: str) -> list[list[str]]:
    """Return the commands of a text that run a program: lines of their own, and words in backquotes."""
    found = re.findall(rf"(?:^ {{4,}}|`)({re.escape(program)} [^`\n]+)", text, re.MULTILINE)
    return [shlex.split(command) for command in found]


def problems() -> Iterator[str]:
    """Yield what is wrong with rules, runbooks and promtool tests."""
    if list(alerts()) != NAMES:
        yield "alerts: they are not those that users know, in that order"
    listed = re.findall(r"^\| `(Scheduled\w+)` \|", (ALERTS / "README.md").read_text(), re.MULTILINE)
    if listed != NAMES:
        yield "alerts/README.md: the table does not have the alerts in their order"
    yield from _size()
    known = alerts()
    for name in RUNBOOKS.keys() ^ known.keys():
        yield f"{name}: there is no such alert, or no runbook for it"
    cases = list(_cases())
    for name in RUNBOOKS.keys() & known.keys():
        found = (*_alert(name, known[name], cases), *_runbook(name), *_silence(name, cases))
        yield from (f"{name}: {problem}" for problem in found)
    if RULE_GROUPS.read_text() != rule_groups():
        yield f"{RULE_GROUPS.name}: run make alerts"


def _size() -> Iterator[str]:
    texts = [file.read_text() for file in RULE_FILES]
    if sum(text.count("\n") for text in texts) > _MOST_LINES:
        yield f"alerts: the rules have more than {_MOST_LINES} lines"
    if [rule["record"] for rule in rules() if "record" in rule] != ["azure_scheduled_events:event"]:
        yield "alerts: there is more, or less, than one recording rule"
    if "".join(texts).count(f'"{_JOB}"') != 1:
        yield "alerts: the job is not named in one place"
    for rule in rules():
        name = rule.get("alert", rule.get("record"))
        if rule["expr"].strip().count("\n") >= _MOST_LINES_OF_AN_EXPRESSION:
            yield f"{name}: the expression has more than {_MOST_LINES_OF_AN_EXPRESSION} lines"
        if "label_replace" in rule["expr"] or re.search(r"\[\w+:", rule["expr"]):
            yield f"{name}: the expression makes a label, or has a subquery"
        if "query" in str(rule.get("annotations")):
            yield f"{name}: a template runs a query"


def _cases() -> Iterator[tuple[str, Json]]:
    """Yield the expectations of the promtool tests, each with the name of its test."""
    for file in PROMTOOL_TESTS:
        for test in yaml.safe_load(file.read_text())["tests"]:
            yield from ((f"{file.name}: {test['name']}", case) for case in test.get("alert_rule_test", []))


def _firing(name: str, cases: list[tuple[str, Json]]) -> list[dict[str, str]]:
    """Return the labels of an alert, each time that it fires in a promtool test."""
    mine = (case for _, case in cases if case["alertname"] == name)
    return [{"alertname": name, **alert["exp_labels"]} for case in mine for alert in case["exp_alerts"]]


def _alert(name: str, alert: Json, cases: list[tuple[str, Json]]) -> Iterator[str]:
    if not all(labels["severity"] for labels in _firing(name, cases)):
        yield "no severity"
    texts = alert["annotations"]
    if not texts["summary"] or not texts["description"] or texts["runbook_url"] != f"{_ADDRESS}{name}.md":
        yield "no summary, description or address of its runbook"
    stories: dict[str, list[tuple[int, str]]] = {}
    for test, case in cases:
        if case["alertname"] == name:
            told = "F" if case["exp_alerts"] else "q"
            stories.setdefault(test, []).append((_seconds(case["eval_time"]), told))
    if not any(re.search("q.*F.*q", "".join(one for _, one in sorted(story))) for story in stories.values()):
        yield "no promtool test in which it is quiet, fires and resolves"


def _runbook(name: str) -> Iterator[str]:
    text = RUNBOOKS[name]
    if not text.startswith(f"# {name}\n") or not all(heading in text for heading in _HEADINGS):
        yield "the runbook has other headings"
    for _, subcommand, *rest in commands(text, _JOB):
        known = {option for parameter in program.commands[subcommand].params for option in parameter.opts}
        unknown = {word for word in rest if word.startswith("--")} - known
        yield from (f"the runbook has the unknown flag {flag}" for flag in unknown)


def _silence(name: str, cases: list[tuple[str, Json]]) -> Iterator[str]:
    """Yield silences by labels that the alert does not have, which would match nothing."""
    (command,) = (one for one in commands(RUNBOOKS[name], "amtool") if one[1:3] == ["silence", "add"])
    matchers = dict(word.split("=") for word in command[3:] if not word.startswith("-"))
    for labels in _firing(name, cases):
        meant = {label: labels.get(label) if value in PLACES else value for label, value in matchers.items()}
        if not meant.items() <= labels.items():
            yield f"the silence does not match {labels}"
    if not all(PLACES.get(value, label) == label for label, value in matchers.items()):
        yield "the silence has a word in the place of another"


# Azure Monitor's severities, from 0 to 4; 1 where the series have the label `severity`.
_SEVERITIES = {"critical": 0, "": 1, "warning": 2, "info": 3}
_PARAMETERS: Json = {
    "workspaceId": {
        "type": "string",
        "metadata": {"description": "Resource id of the Azure Monitor workspace."},
    },
    "actionGroupId": {
        "type": "string",
        "defaultValue": "",
        "metadata": {"description": "Resource id of the action group to notify; none if empty."},
    },
    "location": {
        "type": "string",
        "defaultValue": "[resourceGroup().location]",
        "metadata": {"description": "Location of the rule groups: that of the workspace."},
    },
}
_ACTIONS = (
    "[if(empty(parameters('actionGroupId')), createArray(),"
    " createArray(createObject('actionGroupId', parameters('actionGroupId'))))]"
)


def rule_groups() -> str:
    """Return the rules as a template for Azure Resource Manager.

    Source: the REST reference of `Microsoft.AlertsManagement/prometheusRuleGroups`, version 2023-03-01: at
    most 20 rules a group, evaluated every one to fifteen minutes.
    """
    found = {
        "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
        "contentVersion": "1.0.0.0",
        "parameters": _PARAMETERS,
        "variables": {"actions": _ACTIONS},
        "resources": [_group(group) for group in groups()],
    }
    return json.dumps(found, indent=2) + "\n"


def _group(group: Json) -> Json:
    return {
        "type": "Microsoft.AlertsManagement/prometheusRuleGroups",
        "apiVersion": "2023-03-01",
        "name": group["name"],
        "location": "[parameters('location')]",
        "properties": {
            "scopes": ["[parameters('workspaceId')]"],
            "enabled": True,
            "interval": "PT1M",
            "rules": [_convert(rule) for rule in group["rules"]],
        },
    }


def _convert(rule: Json) -> Json:
    expression = " ".join(rule["expr"].split())
    if "record" in rule:
        return {"record": rule["record"], "enabled": True, "expression": expression}
    labels, minutes = rule.get("labels", {}), -(-_seconds(rule.get("for", "0s")) // 60)
    return {
        "alert": rule["alert"],
        "enabled": True,
        "expression": expression,
        **({"for": f"PT{minutes}M"} if minutes else {}),
        "severity": _SEVERITIES[labels.get("severity", "")],
        "labels": labels,
        "annotations": rule["annotations"],
        "resolveConfiguration": {"autoResolved": True, "timeToResolve": "PT1M"},
        "actions": "[variables('actions')]",
    }


def _seconds(duration: str) -> int:
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([hms])", duration))


def main() -> None:
    """Write the rules for Azure Monitor."""
    RULE_GROUPS.write_text(rule_groups(), encoding="utf-8")


if __name__ == "__main__":
    main()
