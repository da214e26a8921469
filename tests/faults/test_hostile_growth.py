"""What must not grow, though what Azure sends has no end: series, memory, the rows of the state."""

import re

from prometheus_client import generate_latest

from exporter import config
from exporter.errors import ImdsError, PollOutcome
from tests.builders import body, raw_event
from tests.house import House

NAMELESS = ImdsError(PollOutcome.HTTP_ERROR, "no")


def test_counters_keep_few_unknown_types() -> None:
    """The first twenty have series of their own for good; the rest share one, and nothing is uncounted."""
    house = House(metrics=config.Metrics(events="all"))
    house.poll()
    for turn in range(3):
        found = [raw_event(EventId=f"{turn}-{n}", EventType=f"Type{turn}-{n}") for n in range(200)]
        house.poll(body(*found, incarnation=turn + 1))
    house.poll(body(incarnation=10))
    assert house.counted("scheduled", "Type0-0") == 1
    assert house.counted("scheduled", "Type2-0") is None
    assert house.counted("scheduled", "other") == 580
    types = set(re.findall(rb'event_type="(Type[^"]*)"', generate_latest(house.registry)))
    assert len(types) == 20


def test_what_happened_before_the_name_was_known_is_kept_for_listed_events_alone() -> None:
    """Where IMDS never tells this VM's name, the events that went meanwhile are not kept for it."""
    house = House()
    house.imds.facts = NAMELESS
    for number in range(50):
        house.poll(body(raw_event(EventId=str(number)), incarnation=number))
    assert list(house.watch._unnamed) == ["49"]
