from pathlib import Path

import pytest

from exporter.config import Overrides, loading
from exporter.config.advice import advice
from exporter.errors import Mistakes

TARGETS = "targets: [{name: a, url: 'json://localhost'}]"
ROUTES = f"notifications: {{{TARGETS}, routes: [{{targets: [a]}}, {{targets: [a], %s}}]}}\n"
RULE = "approval: {mode: 'on', rules: [{name: r, action: approve, require_hooks: [drain], match: {%s}}]}\n"
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


DRAINED = "kubernetes: {drain: {enabled: true, match: {%s}}}\n"
AFTER_DRAIN = RULE.replace("[drain]", "[kubernetes.drain]")


def warnings(folder: Path, text: str) -> list[str]:
    file = folder / "exporter.yml"
    file.write_text(text)
    settings, parsed = loading.load_parsed(file, Overrides(), Mistakes())
    return [str(parsed.error(keys, problem)) for keys, problem in advice(settings)]


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
        *(
            (
                RULE % rule + DRAIN % hook,
                "approval.rules[0].require_hooks[0]",
                f"the hook never runs for what the rule matches: {reason}",
            )
            for rule, hook, reason in (
                ("event_types: [Freeze]", "event_types: [Reboot]", "they have no event_types in common"),
                (
                    "event_sources: [User]",
                    "event_sources: [Platform]",
                    "they have no event_sources in common",
                ),
                ("", "transitions: [completed]", "it runs for none of the transitions before the approval"),
                ("", "target: other", "its target is other"),
                ("", "statuses: [Started]", "it runs for no Scheduled event"),
                ("max_duration: 8s", "min_duration: 9s", "they have no duration in common"),
                ("min_duration: 5s", "max_duration: 4s", "they have no duration in common"),
            )
        ),
    ],
)
def test_what_cannot_act(tmp_path: Path, text: str, key: str, problem: str) -> None:
    """A setting without effect is one warning, which names the key and the reason."""
    (warning,) = warnings(tmp_path, text)
    assert warning.endswith(f": {key}: {problem}")


PAIR = """\
hooks:
  - {name: out, command: [/bin/sh, -e, PROGRAM, out], match: {%s}}
  - {name: back, command: [/bin/ls, back], match: {%s}}
"""
STAYS = "what it begins may stay where"
BACK = "hooks[1] may not run then; if it is to undo it, widen its match"
ALL_ENDS = "transitions: [completed, cancelled, vanished]"


@pytest.mark.parametrize(
    ("begins", "undoes", "where"),
    [
        ("transitions: [scheduled]", "transitions: [completed]", "an event is cancelled or vanished"),
        ("transitions: [started]", "transitions: [cancelled]", "an event is completed"),
        (
            *(
                "transitions: [scheduled], event_types: [Reboot, Freeze]",
                f"{ALL_ENDS}, event_types: [Reboot]",
            ),
            "an event of type Freeze is completed or cancelled or vanished",
        ),
        (
            *("transitions: [imminent]", f"{ALL_ENDS}, statuses: [Started]"),
            "an event is cancelled or vanished",
        ),
        *(
            (
                "transitions: [scheduled, started]",
                f"{ALL_ENDS}, {key}",
                "an event is completed or cancelled or vanished",
            )
            for key in (
                "windows: [{days: [sun]}]",
                "max_notice: 1h",
                "min_duration: 9s",
                "event_sources: [User]",
            )
        ),
        ("transitions: [scheduled], target: any", ALL_ENDS, "an event is completed or cancelled or vanished"),
    ],
)
def test_what_a_hook_begins_and_none_undoes(tmp_path: Path, begins: str, undoes: str, where: str) -> None:
    """A hook that runs at fewer ends than another had beginnings is a warning, whatever its program."""
    for program in ("/bin/ls", "/bin/cat"):
        text = PAIR.replace("PROGRAM", program) % (begins, undoes)
        found = [one for one in warnings(tmp_path, text) if STAYS in one]
        assert [one.partition(":2: ")[2] for one in found] == [f"hooks[0]: {STAYS} {where}: {BACK}"]


@pytest.mark.parametrize(
    ("begins", "undoes"),
    [
        ("transitions: [scheduled], event_types: [Reboot], min_duration: 9s", ALL_ENDS),
        ("transitions: [started], windows: [{days: [sun]}]", "transitions: [completed]"),
        ("transitions: [scheduled]", ""),
        ("", "transitions: [completed]"),
        ("transitions: [updated]", "transitions: [completed]"),
        ("transitions: [scheduled]", "transitions: [started]"),
    ],
)
def test_what_a_hook_begins_and_another_undoes(tmp_path: Path, begins: str, undoes: str) -> None:
    """There is no warning, nor where nothing is undone at all."""
    for program in ("/bin/ls", "/bin/cat"):
        text = PAIR.replace("PROGRAM", program) % (begins, undoes)
        assert not [one for one in warnings(tmp_path, text) if STAYS in one]


def test_what_is_undone_for_another_hook(tmp_path: Path) -> None:
    """A hook that undoes all of what one begins has nothing to do with what others do."""
    pair = PAIR.replace("PROGRAM", "/bin/cat") % (
        ("event_types: [Reboot], transitions: [scheduled]"),
        (f"event_types: [Reboot], {ALL_ENDS}"),
    )
    others = "- {name: log, command: [/bin/true], match: {transitions: [scheduled, imminent]}}\n"
    thaw = "- {name: thaw, command: [/bin/df], match: {event_types: [Freeze], transitions: [completed]}}"
    assert not [one for one in warnings(tmp_path, f"{pair}  {others}") if STAYS in one]
    drain = "- {name: drain, command: [/bin/cat], match: {event_types: [Reboot], transitions: [scheduled]}}\n"
    assert not [one for one in warnings(tmp_path, f"hooks:\n{drain}{thaw}") if STAYS in one]


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
        RULE % "event_types: [Freeze]" + DRAIN % "event_types: [Freeze, Reboot], transitions: [scheduled]",
        RULE % "max_duration: 8s" + DRAIN % "min_duration: 8s",
        RULE % "min_duration: 4s" + DRAIN % "max_duration: 4s",
        ROUTES % "match: {transitions: [hook_failed], target: other}" + DRAIN % "target: any",
        RULE % "max_duration: 500ms" + DRAIN % "",
        RULE % "" + DRAIN % "max_duration: 500ms",
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
        ("max_duration: 8s", "max_duration: 8s", True),
        ("max_duration: 4s", "max_duration: 8s", False),
        ("max_duration: 8s", "min_duration: 4s", False),
        ("min_duration: 4s", "min_duration: 8s", True),
        ("min_duration: 8s", "min_duration: 4s", False),
        ("event_types: [Freeze, Reboot]", "event_types: [Freeze]", True),
        ("event_types: [Freeze]", "event_types: [Freeze, Reboot]", False),
        ("event_types: [Freeze]", "", False),
        ("min_duration: 0s", "max_duration: 8s", True),
        ("min_duration: 500ms", "max_duration: 8s", False),
        ("min_duration: 8s", "min_duration: 8s", True),
        ("min_duration: 0s", "", False),
        ("event_types: [Freeze]", "event_types: [Freeze]", True),
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


@pytest.mark.parametrize(
    ("drain", "rule", "problem"),
    [
        ("event_types: [Reboot]", "event_types: [Reboot]", ""),
        ("event_types: [reboot]", "event_types: [Reboot]", ""),
        ("", "event_types: [Freeze]", ""),
        ("event_types: [Reboot]", "event_types: [Reboot, Freeze, Redeploy]", "Freeze, Redeploy"),
        ("event_types: [Reboot, Redeploy, Preempt, Terminate]", "event_sources: [User]", "Freeze"),
        ("event_types: [Reboot]", "event_types: [Freeze]", "event_types in common"),
        ("event_sources: [Platform]", "event_sources: [User]", "event_sources in common"),
    ],
)
def test_a_drain_that_is_required_but_never_begins(
    tmp_path: Path, drain: str, rule: str, problem: str
) -> None:
    """A rule that waits for a drain of the Node for a type that is never drained waits forever."""
    found = warnings(tmp_path, DRAINED % drain + AFTER_DRAIN % rule)
    assert len(found) == (1 if problem else 0)
    assert all("approval.rules[0].require_hooks[0]: " in one and problem in one for one in found)
