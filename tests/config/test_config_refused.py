"""Tests of what people are likely to write in a configuration, and `exporter.config` refuses."""

from pathlib import Path

import pytest

from exporter.config import Overrides, loading
from exporter.errors import ConfigurationError

REFUSED = [
    ("approval: off", "1: approval: must be a mapping, but is true or false"),
    ("approval: {mode: 1}", "1: approval.mode: must be text, but is a whole number; put it in quotes"),
    (
        "approval: {failover_after: 60}",
        "1: approval.failover_after: '60' is not a valid duration; write it like 500ms, 1s, 15m, 1h30m or 7d",
    ),
    (
        "imds: {poll_interval: 1}",
        "1: imds.poll_interval: '1' is not a valid duration; write it like 500ms, 1s, 15m, 1h30m or 7d",
    ),
    ("instance: vm", "1: instance: must be a mapping, but is text"),
    ("approval: {rules: [{name: a}]}", "1: approval.rules[0]: action is missing; add it"),
    ("approval: {rules: [{name: ' ', action: hold}]}", "1: approval.rules[0].name: is empty; give it a name"),
    (
        "hooks: [{name: c, command: [d]}]\napproval: {rules: [{name: a, action: hold, require_hooks: [b]}]}",
        "2: approval.rules[0].require_hooks[0]: 'b' is not a hook; there are: 'c'",
    ),
    (
        "approval: {rules: [{name: a, action: hold, match: {transitions: [started]}}]}",
        "1: approval.rules[0].match.transitions: has no meaning here: use statuses",
    ),
    (
        "approval: {rules: [{name: a, action: hold, match: {min_notice: 2h, max_notice: 1m}}]}",
        "1: approval.rules[0].match.min_notice: 2h is more than max_notice, 1m; nothing can match",
    ),
    (
        "hooks:\n- {name: a, command: [b]}\n- {name: a, command: [c]}",
        "3: hooks[1].name: 'a' is there twice; names tell them apart",
    ),
    ("hooks: [{name: a, command: b c}]", "1: hooks[0].command: must be a list, but is text"),
    (
        "hooks: [{name: a, command: [sleep, 5]}]",
        "1: hooks[0].command[1]: must be text, but is a whole number; put it in quotes",
    ),
    (
        "hooks: [{name: a, command: [' ']}]",
        '1: hooks[0].command: names no program; write it like ["/usr/local/bin/drain"]',
    ),
    (
        "hooks: [{name: a, command: [b], match: {min_duration: 2s, max_duration: 1s}}]",
        "1: hooks[0].match.min_duration: 2s is more than max_duration, 1s; nothing can match",
    ),
    (
        "in_service: {match: {event_types: Reboot}}",
        "1: in_service.match.event_types: must be a list, but is text",
    ),
    (
        "in_service: {match: {windows: {from: 22:00}}}",
        "1: in_service.match.windows: must be a list, but is a mapping",
    ),
    (
        "in_service: {match: {windows: [{days: [monday]}]}}",
        "1: in_service.match.windows[0].days[0]: 'monday' is not possible; did you mean mon?",
    ),
    (
        "in_service: {match: {windows: [{to: 6:00}]}}",
        "1: in_service.match.windows[0].to: '6:00' is not a valid time of day; write it like \"22:00\"",
    ),
    (
        "notifications: {targets: [{name: '', url: x}]}",
        "1: notifications.targets[0].name: is empty; give it a name",
    ),
    (
        "notifications: {targets: [{name: no, url: x}]}",
        "1: notifications.targets[0].name: must be text, but is true or false; put it in quotes",
    ),
    (
        "notifications: {targets: [{name: a, url: x}, {name: a, url: y}]}",
        "1: notifications.targets[1].name: 'a' is there twice; names tell them apart",
    ),
    (
        "notifications: {targets: [{name: a, url: x, url_file: b}]}",
        "1: notifications.targets[0].url_file: url and url_file are given; keep one",
    ),
    (
        "notifications: {routes: [{targets: [a]}]}",
        "1: notifications.routes[0].targets[0]: 'a' is not a target; there are none",
    ),
    (
        "notifications: {targets: [{name: a, url: x}], routes: [{targets: [notify-1]}]}",
        "1: notifications.routes[0].targets[0]: 'notify-1' is not a target; there are: 'a'",
    ),
    (
        "notifications: {targets: [{name: a, url: x}], routes: [{targets: a}]}",
        "1: notifications.routes[0].targets: must be a list, but is text",
    ),
    (
        (
            "notifications:\n  targets: [{name: a, url: x}]\n"
            "  routes: [{targets: [a], match: {min_duration: 2s, max_duration: 1s}}]"
        ),
        "3: notifications.routes[0].match.min_duration: 2s is more than max_duration, 1s; nothing can match",
    ),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """What makes no sense is refused with file, line, key and what is wrong."""
    file = tmp_path / "c.yml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        loading.load(file, Overrides())
    assert str(caught.value) == f"{file}:{message}"
