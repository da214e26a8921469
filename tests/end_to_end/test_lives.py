"""The running exporter, with events that this VM joins and leaves, that return, and that were not watched."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.hooking import NAME, Bench, bench, event, hook
from tests.end_to_end.program import eventually, get
from tests.end_to_end.test_notifications import metric, told
from tests.end_to_end.test_traces import environment
from tests.notifications.receivers import Receiver, http_receiver
from tests.tracing.receiver import spans

NOTE = 'echo "$1 $EVENT_TRANSITION" >>"$HERE/notes"'
DRAIN = hook("drain", NOTE, "scheduled", "started")
UNCORDON = hook("uncordon", NOTE, "completed", "cancelled", "vanished")


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Bench]:
    """Return a bench."""
    with bench(tmp_path) as made:
        yield made


def events(setting: Bench) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the current and the past events of the API."""
    found = json.loads(get(f"{setting.url}/api/v1/events"))
    return found["current"], found["past"]


def transitions(chat: Receiver) -> list[str]:
    """Return the transitions in the messages, in order."""
    return [transition for request in tuple(chat.requests) for _, transition in told(request.json)]


def test_joining_leaving_and_returning(setting: Bench) -> None:
    """Hooks, messages and traces follow this VM, not the event: each life has a beginning and an end."""
    setting.configure(DRAIN, UNCORDON)
    with http_receiver() as chat, http_receiver() as traces:
        notify = ("--notify", f"json://{chat.authority}/")
        with setting.running(*notify, **environment(traces)):
            setting.tell(event(Resources=["demo_1"]))
            assert (setting.notes(), transitions(chat)) == ([], [])
            setting.tell(event(Resources=["demo_1", NAME]))
            eventually(lambda: setting.notes() == ["drain scheduled"])
            setting.tell(event(Resources=["demo_1"]))
            eventually(lambda: setting.notes()[1:] == ["uncordon cancelled"])
            setting.tell(event(Resources=["demo_1", NAME]))
            eventually(lambda: setting.notes()[2:] == ["drain scheduled"])
            setting.tell(event(status="Started", Resources=["demo_1", NAME], NotBefore=""))
            setting.tell()
            eventually(lambda: setting.notes()[-1:] == ["uncordon completed"])
            setting.tell(event(Resources=[NAME]))
            eventually(lambda: setting.notes()[-1:] == ["drain scheduled"])
            eventually(lambda: len(transitions(chat)) == 6)
            roots = eventually(
                lambda: (
                    found
                    if len(
                        found := [span for span in spans(traces) if span.name.startswith("scheduled_event")]
                    )
                    == 2
                    else []
                )
            )
            current, past = events(setting)
    assert transitions(chat) == ["scheduled", "cancelled", "scheduled", "started", "completed", "scheduled"]
    assert [one["outcome"] for one in past if one["target"] == "self"] == ["completed", "cancelled"]
    assert [one["transitions"][0]["transition"] for one in current] == ["scheduled"]
    assert len({span.trace_id for span in roots}) == 1
    assert len({span.span_id for span in roots}) == 2


def test_an_event_that_was_already_under_way(setting: Bench) -> None:
    """Unobserved times are null in the API, and in no histogram and no message."""
    setting.configure()
    with http_receiver() as chat:
        setting.say(event(status="Started", NotBefore=""))
        with setting.running("--notify", f"json://{chat.authority}/"):
            eventually(lambda: transitions(chat) == ["started"])
            ((current,), _) = events(setting)
            assert current["started"] is None
            setting.tell()
            eventually(lambda: transitions(chat) == ["started", "completed"])
            assert metric(setting.url, "impact_seconds_count", event_type="Reboot") == 0
            (_, (past,)) = events(setting)
    bodies = [request.json["message"] for request in tuple(chat.requests)]
    assert "already under way at " in bodies[0]
    assert "already under way at " in bodies[1]
    assert "after it started" not in bodies[1]
    assert (past["started"], past["impact_seconds"], past["outcome"]) == (None, None, "completed")


def test_an_incarnation_that_cannot_be_read(setting: Bench) -> None:
    """The document counts, nothing is cancelled, and the exporter is degraded."""
    setting.configure()
    with setting.running():
        setting.tell(event())
        document = json.loads(setting.imds.simulator.document("2020-07-01"))
        del document["DocumentIncarnation"]
        setting.imds.simulator.set_document(document | {"Events": []})
        eventually(lambda: events(setting)[1])
        assert metric(setting.url, "up") == 1
        assert metric(setting.url, "degraded", reason="invalid_event") == 1
        assert events(setting)[1][0]["outcome"] == "vanished"
