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
def house(tmp_path: Path) -> Iterator[Bench]:
    """Return a bench."""
    with bench(tmp_path) as made:
        yield made


def events(house: Bench) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the current and the past events of the API."""
    found = json.loads(get(f"{house.url}/api/v1/events"))
    return found["current"], found["past"]


def transitions(chat: Receiver) -> list[str]:
    """Return what the messages tell, in their order."""
    return [transition for request in tuple(chat.requests) for _, transition in told(request.json)]


def test_joining_leaving_and_returning(house: Bench) -> None:
    """Hooks, messages and traces follow this VM, not the event: each life has a beginning and an end."""
    house.configure(DRAIN, UNCORDON)
    with http_receiver() as chat, http_receiver() as traces:
        notify = ("--notify", f"json://{chat.authority}/")
        with house.running(*notify, **environment(traces)):
            house.tell(event(Resources=["demo_1"]))
            assert (house.notes(), transitions(chat)) == ([], [])
            house.tell(event(Resources=["demo_1", NAME]))
            eventually(lambda: house.notes() == ["drain scheduled"])
            house.tell(event(Resources=["demo_1"]))
            eventually(lambda: house.notes()[1:] == ["uncordon cancelled"])
            house.tell(event(Resources=["demo_1", NAME]))
            eventually(lambda: house.notes()[2:] == ["drain scheduled"])
            house.tell(event(status="Started", Resources=["demo_1", NAME], NotBefore=""))
            house.tell()
            eventually(lambda: house.notes()[-1:] == ["uncordon completed"])
            house.tell(event(Resources=[NAME]))
            eventually(lambda: house.notes()[-1:] == ["drain scheduled"])
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
            current, past = events(house)
    assert transitions(chat) == ["scheduled", "cancelled", "scheduled", "started", "completed", "scheduled"]
    assert [one["outcome"] for one in past if one["target"] == "self"] == ["completed", "cancelled"]
    assert [one["transitions"][0]["transition"] for one in current] == ["scheduled"]
    assert len({span.trace_id for span in roots}) == 1
    assert len({span.span_id for span in roots}) == 2


def test_an_event_that_was_already_under_way(house: Bench) -> None:
    """What nobody watched is null in the API, in no histogram, and claimed by no message."""
    house.configure()
    with http_receiver() as chat:
        house.say(event(status="Started", NotBefore=""))
        with house.running("--notify", f"json://{chat.authority}/"):
            eventually(lambda: transitions(chat) == ["started"])
            ((current,), _) = events(house)
            assert current["started"] is None
            house.tell()
            eventually(lambda: transitions(chat) == ["started", "completed"])
            assert metric(house.url, "impact_seconds_count", event_type="Reboot") == 0
            (_, (past,)) = events(house)
    bodies = [request.json["message"] for request in tuple(chat.requests)]
    assert "already under way at " in bodies[0]
    assert "Took: unknown; its start or its end was not observed" in bodies[1]
    assert (past["started"], past["impact_seconds"], past["outcome"]) == (None, None, "completed")


def test_an_incarnation_that_cannot_be_read(house: Bench) -> None:
    """The document counts, nothing is cancelled, and the exporter says that it is degraded."""
    house.configure()
    with house.running():
        house.tell(event())
        document = json.loads(house.imds.simulator.document("2020-07-01"))
        del document["DocumentIncarnation"]
        house.imds.simulator.set_document(document | {"Events": []})
        eventually(lambda: events(house)[1])
        assert metric(house.url, "up") == 1
        assert metric(house.url, "degraded", reason="invalid_event") == 1
        assert events(house)[1][0]["outcome"] == "vanished"
