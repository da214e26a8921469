import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from exporter.config import loading, yamlfile
from exporter.config.match import Match, Scope, Window
from exporter.model.events import Affected, ScheduledEvent
from exporter.model.lifecycle import Transition
from tests.builders import scheduled, started
from tests.clocks import NOW

FREEZE = scheduled()  # 5 s, in 15 minutes, WestNO_0 and WestNO_1
UNKNOWN = scheduled(duration_seconds=None)


def holds(event: ScheduledEvent, instance: str | None = "WestNO_0", **keys: Any) -> bool:
    """Return whether a match with these keys alone holds for the event, scheduled, now."""
    return Match(**keys).holds(event, target=event.target(instance), now=NOW, transition=Transition.SCHEDULED)


@pytest.mark.parametrize(
    ("event", "keys", "expected"),
    [
        (FREEZE, {}, True),
        (started(), {"statuses": ("Started",)}, True),
        (FREEZE, {"resources": ("westno_*",)}, True),
        (FREEZE, {"resources": ("_WestNO_1",)}, True),
        (scheduled(resources=()), {"resources": ("*",)}, False),
        (FREEZE, {"min_duration": 5}, True),
        (FREEZE, {"max_duration": 5}, True),
        (UNKNOWN, {"min_duration": 0}, False),
        (UNKNOWN, {"max_duration": 9999}, False),
        (scheduled(duration_seconds=0), {"max_duration": 8}, True),
        (FREEZE, {"min_notice": 900}, True),
        (FREEZE, {"min_notice": 901}, False),
        (FREEZE, {"max_notice": 900}, True),
        (FREEZE, {"max_notice": 899}, False),
        (started(), {"max_notice": 0}, True),
        (started(), {"min_notice": 1}, False),
        (scheduled(not_before=NOW - timedelta(hours=1)), {"min_notice": 0, "max_notice": 0}, True),
        (FREEZE, {"event_types": ("Freeze",), "max_duration": 4}, False),
    ],
)
def test_each_key(event: ScheduledEvent, keys: dict[str, Any], expected: bool) -> None:
    """A key that is given must hold; one that is not given always does; all must."""
    assert holds(event, **keys) is expected


@pytest.mark.parametrize(
    ("instance", "resources", "expected"),
    [
        ("WestNO_0", ("WestNO_0",), {"self": True, "other": False, "any": True}),
        ("westno_0", ("_WestNO_0",), {"self": True, "other": False, "any": True}),
        ("WestNO_9", ("WestNO_0",), {"self": False, "other": True, "any": True}),
        ("WestNO_9", (), {"self": True, "other": False, "any": True}),
        (None, ("WestNO_0",), {"self": True, "other": False, "any": True}),
    ],
)
def test_target(instance: str | None, resources: tuple[str, ...], expected: dict[str, bool]) -> None:
    """Whom an event hits; without a name, or without resources, it is this VM."""
    event = scheduled(resources=resources)
    assert {whom.value: holds(event, instance, target=whom) for whom in Scope} == expected
    assert holds(event, instance) is expected["self"]


def window(**keys: Any) -> Window:
    return loading.convert(yamlfile.parse(json.dumps(keys), Path("some.yml")), Window)


NIGHT = {"days": ["mon"], "from": "22:00", "to": "06:00"}


@pytest.mark.parametrize(
    ("keys", "now", "expected"),
    [
        ({}, "2026-03-04T12:00", True),
        ({"days": ["wed"]}, "2026-03-05T00:00", False),
        ({"from": "09:00", "to": "17:00"}, "2026-03-04T16:59", True),
        ({"from": "09:00", "to": "17:00"}, "2026-03-04T17:00", False),
        ({"to": "24:00"}, "2026-03-04T23:59", True),
        (NIGHT, "2026-03-02T22:00", True),
        (NIGHT, "2026-03-03T05:59", True),
        (NIGHT, "2026-03-03T06:00", False),
        (NIGHT, "2026-03-02T05:00", False),
        (NIGHT, "2026-03-03T22:00", False),
        # The clocks go forward on Sunday 29 March 2026 at 01:00 UTC: 02:30 never comes, 03:00 comes at once.
        ({"from": "03:00", "to": "04:00", "timezone": "Europe/Berlin"}, "2026-03-29T01:00", True),
        # They go back on Sunday 25 October 2026 at 01:00 UTC: 02:30 comes twice, and a night is longer.
        ({"from": "02:00", "to": "03:00", "timezone": "Europe/Berlin"}, "2026-10-25T01:30", True),
        (NIGHT | {"days": ["sat"], "timezone": "Europe/Berlin"}, "2026-10-25T04:59", True),
        (NIGHT | {"days": ["sat"], "timezone": "Europe/Berlin"}, "2026-10-25T05:00", False),
        (NIGHT | {"to": "00:00"}, "2026-03-02T23:59", True),
        (NIGHT | {"to": "00:00"}, "2026-03-03T00:00", False),
    ],
)
def test_windows(keys: dict[str, Any], now: str, expected: bool) -> None:
    """A window holds on its days between its times, in its zone; past midnight it is the day before's."""
    at = datetime.fromisoformat(now).replace(tzinfo=UTC)
    assert window(**keys).holds(at) is expected


def test_one_window_of_several_is_enough() -> None:
    """Windows are alternatives."""
    now = NOW.replace(hour=12)
    match = Match(windows=(window(**{"from": "13:00"}), window(to="13:00")))
    assert match.holds(FREEZE, target=Affected.SELF, now=now)
    assert not Match(windows=(window(**{"from": "13:00"}),)).holds(FREEZE, target=Affected.SELF, now=now)
