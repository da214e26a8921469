import json
import re

import click
import pytest
from click.shell_completion import ShellComplete

from exporter.cli import main
from tests.http_server import answer, serving


def completed(*words: str) -> list[str]:
    *before, last = words
    found = ShellComplete(main, {}, "azure-scheduled-events-exporter", "_X").get_completions(
        list(before), last
    )
    return [item.value for item in found]


def test_event_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Event ids are those that the running exporter lists; without one there are none."""
    nothing = dict.fromkeys(("not_before", "duration_seconds", "first_seen", "started", "ended", "outcome"))
    texts = dict.fromkeys(("type", "source", "status", "description"), "")
    event = (
        {"id": "C7061BAC", "target": "self", "ids": [], "resources": [], "transitions": []} | nothing | texts
    )
    body = json.dumps({"instance": "vm", "current": [event], "past": [], "page": 1, "pages": 1}).encode()
    with serving(answer(body)) as exporter:
        monkeypatch.setenv("SCHEDULED_EVENTS_EXPORTER_URL", exporter.url)
        assert completed("approve", "c70") == ["C7061BAC"]
        assert completed("approve", "C7061BAC", "") == []
    assert completed("approve", "") == []


@pytest.mark.parametrize("name", main.commands)
def test_help_lines_are_sentences(name: str) -> None:
    """Each explanation of a flag begins with a capital letter and ends with a full stop or a default."""
    command = main.commands[name]
    for option in command.params:
        if isinstance(option, click.Option):
            assert re.fullmatch(r"[A-Z].*(\.|\.  \[default: .*\])", option.help or "", re.DOTALL), option.name
