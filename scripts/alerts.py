"""The alerting rules as data, and checks of rules, runbooks and promtool tests for `scripts.checks`."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from exporter.cli import main
from exporter.health import DegradedReason
from exporter.model.events import EVENT_TYPES
from scripts.project import ROOT

Json = dict[str, Any]
ALERTS = ROOT / "alerts"
RULE_FILES = (ALERTS / "scheduled-events.rules.yml", ALERTS / "inhibition.rules.yml")
PROMTOOL_TESTS = sorted((ALERTS / "tests").glob("*.yml"))
RUNBOOKS = {file.stem: file.read_text() for file in sorted((ALERTS / "runbooks").iterdir())}
# It only tells Alertmanager what to inhibit.
INHIBITOR = "ScheduledEventInhibitor"
# Silences and routes of users go by these names.
NAMES = [
    *("ScheduledEventPending", "ScheduledEventImminent", "ScheduledEventRescheduled"),
    *("ScheduledEventStarted", "ScheduledEventOverrun", "ScheduledEventsConcurrent", "ScheduledEventsMany"),
    *("ScheduledEventHookFailed", "ScheduledEventUnannouncedPause"),
    *("ScheduledEventsBlind", "ScheduledEventsPollStale", "ScheduledEventsClockSkew"),
    *("ScheduledEventsExporterDown", "ScheduledEventNotificationsFailing", "ScheduledEventMessagesLost"),
    *("ScheduledEventApprovalsFailing", "ScheduledEventsReloadFailed", "ScheduledEventsDegraded"),
    "ScheduledEventsNoExporter",
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


def rules(*files: Path) -> list[Json]:
    """Return the rules of rule files, by default of all that are shipped."""
    read = [yaml.safe_load(file.read_text()) for file in files or RULE_FILES]
    return [rule for file in read for group in file["groups"] for rule in group["rules"]]


def alerts(*files: Path) -> dict[str, Json]:
    """Return the alerting rules by name."""
    return {rule["alert"]: rule for rule in rules(*files) if "alert" in rule}


def commands(text: str, program: str) -> list[list[str]]:
    """Return the commands of a text that run a program: lines of their own, and words in backquotes."""
    found = re.findall(rf"(?:^ {{4,}}|`)({re.escape(program)} [^`\n]+)", text, re.MULTILINE)
    return [shlex.split(command) for command in found]


def problems() -> Iterator[str]:
    """Yield what is wrong with rules, runbooks and promtool tests."""
    if list(alerts(RULE_FILES[0])) != NAMES or list(alerts(RULE_FILES[1])) != [INHIBITOR]:
        yield "alerts: they are not those that users know, in that order"
    listed = re.findall(r"^\| `(Scheduled\w+)` \|", (ALERTS / "README.md").read_text(), re.MULTILINE)
    if listed != NAMES:
        yield "alerts/README.md: the table does not have the alerts in their order"
    if rules()[0] != {"record": "azure_scheduled_events:job", "expr": "vector(1)", "labels": {"job": _JOB}}:
        yield "alerts: the job is not recorded by the first rule"
    if _JOB in json.dumps([rule["expr"] for rule in rules()]):
        yield "alerts: the job is named in more than one place"
    known = alerts()
    for name in RUNBOOKS.keys() ^ known.keys():
        yield f"{name}: there is no such alert, or no runbook for it"
    cases = list(_cases())
    for name in RUNBOOKS.keys() & known.keys():
        found = (*_alert(name, known[name], cases), *_runbook(name), *_silence(name, cases))
        yield from (f"{name}: {problem}" for problem in found)
    yield from _words()
    yield from _rule_groups(known)


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
            parts = re.findall(r"(\d+)([hms])", case["eval_time"])
            at = sum(int(number) * _UNITS[unit] for number, unit in parts)
            stories.setdefault(test, []).append((at, "F" if case["exp_alerts"] else "q"))
    if not any(re.search("q.*F.*q", "".join(one for _, one in sorted(story))) for story in stories.values()):
        yield "no promtool test in which it is quiet, fires and resolves"


def _runbook(name: str) -> Iterator[str]:
    text = RUNBOOKS[name]
    if not text.startswith(f"# {name}\n") or not all(heading in text for heading in _HEADINGS):
        yield "the runbook has other headings"
    for _, subcommand, *rest in commands(text, _JOB):
        known = {option for parameter in main.commands[subcommand].params for option in parameter.opts}
        unknown = {word for word in rest if word.startswith("--")} - known
        yield from (f"the runbook has the unknown flag {flag}" for flag in unknown)


def _silence(name: str, cases: list[tuple[str, Json]]) -> Iterator[str]:
    """Yield silences by labels that the alert does not have, which would match nothing."""
    if name == INHIBITOR:
        return
    (command,) = (one for one in commands(RUNBOOKS[name], "amtool") if one[1:3] == ["silence", "add"])
    matchers = dict(word.split("=") for word in command[3:] if not word.startswith("-"))
    for labels in _firing(name, cases):
        meant = {label: labels.get(label) if value in PLACES else value for label, value in matchers.items()}
        if not meant.items() <= labels.items():
            yield f"the silence does not match {labels}"
    if not all(PLACES.get(value, label) == label for label, value in matchers.items()):
        yield "the silence has a word in the place of another"


def _words() -> Iterator[str]:
    reasons = re.findall(r"^\| `(\w+)` \|", RUNBOOKS["ScheduledEventsDegraded"], re.MULTILINE)
    if reasons != [reason.value for reason in DegradedReason]:
        yield "ScheduledEventsDegraded: the runbook has other reasons"
    types = re.findall(r"^\| (\w+) \|", RUNBOOKS["ScheduledEventPending"], re.MULTILINE)
    if set(types) != {"type", *EVENT_TYPES}:
        yield "ScheduledEventPending: the runbook has other types of events"


def _rule_groups(known: Json) -> Iterator[str]:
    """Compare the rule groups for Azure Monitor with its limits.

    Source: the REST reference of `Microsoft.AlertsManagement/prometheusRuleGroups`, version 2023-03-01.
    """
    file = ALERTS / "azure-monitor.rule-groups.json"
    for group in json.loads(file.read_text())["resources"]:
        interval, found = group["properties"]["interval"], group["properties"]["rules"]
        is_one = group["type"] == "Microsoft.AlertsManagement/prometheusRuleGroups"
        if not is_one or len(found) > 20 or not re.fullmatch("PT([1-9]|1[0-5])M", interval):
            yield f"{file.name}: group {group['name']}: type, number of rules or interval is not allowed"
        if re.search(r"[:@/#{}%&+*<>?]", group["name"]):
            yield f"{file.name}: group {group['name']}: the name is not allowed"
        for rule in found:
            is_valid = rule["severity"] in range(5) and re.fullmatch(r"PT\d+M", rule.get("for", "PT1M"))
            # Texts are filled in from labels; Azure Monitor does not evaluate queries in them.
            plain = "query" not in "".join(rule["annotations"].values())
            if not is_valid or not plain or rule["actions"] != "[variables('actions')]":
                yield f"{file.name}: {rule['alert']} is not valid"
            if rule["alert"] not in known:
                yield f"{file.name}: {rule['alert']} has no runbook"
