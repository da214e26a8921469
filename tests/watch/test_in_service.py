"""Tests of `exporter.watch.out_of_service`: when a load balancer is to leave this VM out."""

from typing import Any

import pytest

from exporter.config import InService
from exporter.watch import out_of_service
from tests.builders import REBOOT_ID, body, raw_event, scheduled
from tests.clocks import NOW
from tests.lives import Life
from tests.watch_fixture import TIMEOUT, WatchFixture

IN_5_MINUTES = "Wed, 04 Mar 2026 22:05:00 GMT"
IN_6_MINUTES = "Wed, 04 Mar 2026 22:06:00 GMT"
REBOOT = {"EventType": "Reboot", "EventId": REBOOT_ID}


def reason(fixture: WatchFixture) -> str:
    """Ask with the default match."""
    return out_of_service(fixture.watch.snapshot, InService().match, fixture.clock.now())


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"NotBefore": IN_5_MINUTES}, ""),
        (REBOOT | {"NotBefore": IN_5_MINUTES}, f"Reboot {REBOOT_ID} is Scheduled"),
        (REBOOT | {"NotBefore": IN_6_MINUTES}, ""),
        (REBOOT | {"NotBefore": "", "EventStatus": "Started"}, f"Reboot {REBOOT_ID} is Started"),
        (REBOOT | {"NotBefore": IN_5_MINUTES, "Resources": ["WestNO_9"]}, ""),
        ({"EventType": "Levitate", "NotBefore": IN_5_MINUTES}, ""),
    ],
)
def test_by_default(fields: dict[str, Any], expected: str) -> None:
    """What ends what the VM does takes it out 5 minutes before; a freeze, and others' events, do not."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event(**fields)))
    assert reason(fixture) == expected


def test_back_in_service() -> None:
    """It goes out as the time comes near, and is back as soon as the event is gone."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event(**REBOOT, NotBefore=IN_6_MINUTES)))
    fixture.clock.pass_seconds(60)
    assert reason(fixture)
    fixture.poll(body(incarnation=2))
    assert reason(fixture) == ""


def test_what_was_known_before_the_start_takes_nothing_out() -> None:
    """In service until the first document of this process, also while IMDS fails."""
    life = Life()
    life.feed(scheduled(event_type="Reboot", not_before=NOW))
    fixture = WatchFixture(life.known)
    fixture.poll(TIMEOUT)
    assert reason(fixture) == ""


def test_a_failing_imds_changes_nothing() -> None:
    """The last known events hold while IMDS does not answer."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event(**REBOOT, NotBefore=IN_5_MINUTES)))
    fixture.poll(TIMEOUT)
    assert reason(fixture)


def test_without_a_name_it_stays() -> None:
    """A VM without a known name is not taken out of service for a neighbour's event."""
    fixture = WatchFixture()
    fixture.imds.facts = TIMEOUT
    fixture.poll(body(raw_event(**REBOOT, NotBefore=IN_5_MINUTES)))
    assert reason(fixture) == ""
