from pathlib import Path

import pytest

from exporter.config import Overrides, loading
from exporter.config.advice import advice
from exporter.errors import Mistakes

FIRST = "routes: [{targets: [a], leader: first, match: {target: %s}}]"
TARGETS = "targets: [{name: a, url: 'json://localhost'}]"
RULE = "approval: {mode: 'on', rules: [{name: r, action: approve, require_hooks: [drain], match: {%s}}]}\n"
DRAIN = "hooks: [{name: drain, command: [/bin/sh], match: {%s}}]"
LATE = "is compared only when a transition happens"
REQUIRED = "approval.rules[0].require_hooks[0]"
APART = "the hook 'drain' never runs for what the rule matches"
FAILURES = "routes: [{targets: [a], match: {transitions: [hook_failed]}}]"


def warnings(folder: Path, text: str) -> list[str]:
    file = folder / "exporter.yml"
    file.write_text(text)
    settings, parsed = loading.load_parsed(file, Overrides(), Mistakes())
    return [str(parsed.error(keys, problem)) for keys, problem in advice(settings)]


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        (
            f"notifications: {{{TARGETS}, watch: {{after: 1s}}}}\nimds: {{poll_interval: 1m}}",
            "notifications.watch.after",
            "1s is less than imds.poll_interval, 1m: a failed poll makes it blind",
        ),
        (
            f"notifications: {{{TARGETS}, {FIRST % 'other'}}}",
            "notifications.routes[0].leader",
            "never delivers with target: other",
        ),
        (
            f"notifications: {{{TARGETS}, routes: [{{targets: [a], match: {{max_notice: 15s}}}}]}}",
            "notifications.routes[0].match.max_notice",
            LATE,
        ),
        (DRAIN % "max_notice: 15m, transitions: [scheduled]", "hooks[0].match.max_notice", LATE),
        (DRAIN % "max_notice: 15s", "hooks[0].match.max_notice", LATE),
        (
            DRAIN % "transitions: [imminent]" + "\nevents: {imminent: []}",
            "hooks[0].match",
            "nothing matches: no event becomes imminent while events.imminent is empty",
        ),
        (RULE % "event_types: [Freeze]" + DRAIN % "event_types: [Reboot]", REQUIRED, APART),
        (RULE % "" + DRAIN % "transitions: [completed]", REQUIRED, APART),
        (RULE % "" + DRAIN % "target: other", REQUIRED, APART),
        (RULE % "" + DRAIN % "statuses: [Started]", REQUIRED, APART),
        (RULE % "max_duration: 8s" + DRAIN % "min_duration: 9s", REQUIRED, APART),
        (RULE % "min_duration: 5s" + DRAIN % "max_duration: 4s", REQUIRED, APART),
    ],
)
def test_what_cannot_act(tmp_path: Path, text: str, key: str, problem: str) -> None:
    """The warning names the key and the reason."""
    (warning,) = warnings(tmp_path, text)
    assert f": {key}: {problem}" in warning


@pytest.mark.parametrize(
    "text",
    [
        DRAIN % "max_notice: 15m",
        DRAIN % "max_notice: 15s, transitions: [imminent]",
        RULE % "event_types: [Freeze]" + DRAIN % "event_types: [Freeze, Reboot], transitions: [scheduled]",
        RULE % "max_duration: 8s" + DRAIN % "min_duration: 8s",
        RULE % "min_duration: 4s" + DRAIN % "max_duration: 4s",
        f"notifications: {{{TARGETS}, {FIRST % 'any'}}}",
        f"kubernetes: {{drain: {{enabled: true}}}}\nnotifications: {{{TARGETS}, {FAILURES}}}",
    ],
)
def test_what_can_act(tmp_path: Path, text: str) -> None:
    """There is no warning about what may act."""
    assert warnings(tmp_path, text) == []
