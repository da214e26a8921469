from pathlib import Path

import pytest

from exporter.app import OUTPUTS
from exporter.config import Overrides, loading
from exporter.errors import Mistakes

TARGETS = "targets: [{name: a, url: 'json://localhost'}]"
ROUTES = f"notifications: {{{TARGETS}, routes: [{{targets: [a]}}, {{targets: [a], %s}}]}}\n"
APPROVING = "approval: {mode: 'on', rules: [{name: r, action: approve}]}\n"
DRAIN = "hooks: [{name: drain, command: [/bin/sh], match: {%s}}]"
PROGRAM = "hooks: [{name: h, command: [%s]}]"
LATE = (
    "is compared only when a transition happens; for the time shortly before the start, add the same "
    "duration to events.imminent and use transitions: [imminent]"
)
UNUSED = "notifications: {targets: [{name: a, url: x}, {name: b, url: x}], routes: [{targets: [a]}]}"
WATCH = f"notifications: {{{TARGETS}, watch: {{after: 1s}}}}\nimds: {{poll_interval: %s}}"
LEADER = ROUTES % "leader: first, match: {target: other}"
BLIND = "is less than imds.poll_interval, so a single failed poll makes it blind"
NEVER = "never delivers with target: other; the leader is affected by the event"
TOO_LATE = "no notice is left once an event has started; remove min_notice"
OTHERS = "for events of other VMs nothing is approved, and no hook runs without target: other or any"
NO_EVENT = "no event has one of these statuses at one of these transitions"
NO_THRESHOLD = "no event becomes imminent while events.imminent is empty"
ROUTE = "notifications.routes[1].match"


def warnings(folder: Path, text: str) -> list[str]:
    file = folder / "exporter.yml"
    file.write_text(text)
    settings, parsed = loading.load_parsed(file, Overrides(), Mistakes())
    advice = [line for output in OUTPUTS for line in output.section.advice(settings)]
    return [str(parsed.error(keys, problem)) for keys, problem in advice]


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ("alertmanager: {labels: {a: b}}", "alertmanager", "no URL is set, so no alert is posted"),
        (
            "alertmanager: {urls: ['http://a.test'], match: {statuses: [Started], min_notice: 1m}}",
            "alertmanager.match",
            f"nothing matches: {TOO_LATE}",
        ),
        (UNUSED, "notifications.targets[1]", "no route names this target, so it gets no message"),
        (WATCH % "1m", "notifications.watch.after", BLIND),
        (LEADER, "notifications.routes[1].leader", NEVER),
        (ROUTES % "match: {max_notice: 15s}", f"{ROUTE}.max_notice", LATE),
        (DRAIN % "max_notice: 15m, transitions: [scheduled]", "hooks[0].match.max_notice", LATE),
        (DRAIN % "max_notice: 15s", "hooks[0].match.max_notice", LATE),
        (
            "approval: {rules: [{name: a, action: approve}]}",
            *("approval.rules", "no rule acts while approval.mode is off; set it to dry_run or on"),
        ),
        (
            "approval: {mode: 'on', rules: [{name: r, action: hold}]}",
            *("approval.mode", "nothing is approved without a rule whose action is approve"),
        ),
        (
            "approval: {mode: dry_run, rules: [{name: all, action: approve}, {name: some, action: hold}]}",
            *("approval.rules[1]", "never decides: approval.rules[0] above matches all that it matches"),
        ),
        (PROGRAM % "/nowhere/x", "hooks[0].command", "the program does not exist"),
        (PROGRAM % "/etc/passwd, sh", "hooks[0].command", "the program is not executable"),
        (PROGRAM % "no-such-program", "hooks[0].command", "the program is not found in PATH"),
        (DRAIN % "statuses: [Started], min_notice: 1s", "hooks[0].match", f"nothing matches: {TOO_LATE}"),
        *(
            (before + ROUTES % f"match: {{{match}}}", ROUTE, f"nothing matches: {reason}")
            for before, match, reason in (
                ("", "transitions: [scheduled], statuses: [Started]", NO_EVENT),
                ("", "transitions: [started], min_notice: 1m", TOO_LATE),
                ("", "transitions: [approved]", "nothing is approved unless approval.mode is on"),
                (APPROVING, "transitions: [approved, hook_failed], target: other", OTHERS),
                (APPROVING, "transitions: [hook_failed]", "there are no hooks that could fail"),
                ("events: {imminent: []}\n", "transitions: [imminent]", NO_THRESHOLD),
            )
        ),
    ],
)
def test_what_cannot_act(tmp_path: Path, text: str, key: str, problem: str) -> None:
    """A setting without effect is one warning, which names the key and the reason."""
    (warning,) = warnings(tmp_path, text)
    assert warning.endswith(f": {key}: {problem}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        PROGRAM % "sh",
        PROGRAM % "/bin/sh, -c, 'true'",
        ROUTES % "match: {transitions: [completed], statuses: [Started]}",
        ROUTES % "match: {transitions: [scheduled, started], min_notice: 1m}",
        ROUTES % "leader: first, match: {target: any}",
        APPROVING.replace("}]", ", match: {statuses: [Scheduled, Started], min_notice: 1s}}]"),
        DRAIN % "max_notice: 15m",
        DRAIN % "max_notice: 15s, transitions: [imminent]",
        ROUTES % "match: {transitions: [hook_failed], target: other}" + DRAIN % "target: any",
        WATCH % "1s",
        ROUTES % "match: {transitions: [hook_failed]}" + "kubernetes: {drain: {enabled: true}}",
    ],
)
def test_what_can_act(tmp_path: Path, text: str) -> None:
    """There is no warning about what may act."""
    assert warnings(tmp_path, text) == []


@pytest.mark.parametrize(
    ("first", "second", "never"),
    [
        ("", "max_duration: 8s", True),
        ("max_duration: 8s", "", False),
        ("max_duration: 4s", "max_duration: 8s", False),
        ("max_duration: 8s", "min_duration: 4s", False),
        ("event_types: [Freeze, Reboot]", "event_types: [Freeze]", True),
        ("event_types: [Freeze]", "event_types: [Freeze, Reboot]", False),
        ("min_duration: 0s", "max_duration: 8s", True),
        ("min_duration: 500ms", "max_duration: 8s", False),
        ("min_duration: 8s", "min_duration: 8s", True),
        ("min_duration: 0s", "", False),
        ("target: any", "", True),
        ("", "target: any", False),
        ("windows: [{days: [mon]}]", "", False),
    ],
)
def test_a_rule_that_never_decides(tmp_path: Path, first: str, second: str, never: bool) -> None:
    """There is a warning where a rule above matches all that a rule matches, and only there."""
    rules = "".join(
        f"{{name: {name}, action: hold, match: {{{text}}}}}, " for name, text in (("a", first), ("b", second))
    )
    found = warnings(tmp_path, f"approval: {{mode: dry_run, rules: [{rules}]}}")
    assert any("never decides" in warning for warning in found) is never
