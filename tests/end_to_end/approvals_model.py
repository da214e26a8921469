"""An independent model of the rules, to check the program against.

Works on the configuration as a user writes it and on the events as the simulator plans them.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from exporter.simulator import EventPlan
from tests.end_to_end.approvals_group import plan

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
TYPES = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")


def seconds(text: str) -> float:
    """Read a duration of one number and one unit."""
    return float(text[:-1]) * UNITS[text[-1]]


def same(left: str, right: str) -> bool:
    """Compare two VM names."""
    return re.sub("^_", "", left.lower()) == re.sub("^_", "", right.lower())


def like(name: str, glob: str) -> bool:
    """Compare a VM name with a pattern of * and ?."""
    pattern = re.escape(re.sub("^_", "", glob.lower())).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(pattern, re.sub("^_", "", name.lower())) is not None


def bounded(value: float | None, least: str | None, most: str | None) -> bool:
    """Compare a number with bounds; what is unknown keeps none."""
    if value is None:
        return least is None and most is None
    return seconds(least or "0s") <= value <= seconds(most or "36500d")


def open_now(window: Mapping[str, Any], now: datetime) -> bool:
    """Walk back minute by minute to the window's last opening, and see whether it has closed since."""
    local = now.astimezone(ZoneInfo(window.get("timezone", "UTC"))).replace(tzinfo=None)
    local = local.replace(second=0, microsecond=0)
    opens, closes = window.get("from", "00:00"), window.get("to", "24:00")
    for back in range(24 * 60):
        then = local - timedelta(minutes=back)
        if back and then.strftime("%H:%M") == closes:
            return False
        if closes == "24:00" and back and (then + timedelta(minutes=1)).date() != then.date():
            return False
        if not back and then.strftime("%H:%M") == closes:
            return False
        if then.strftime("%H:%M") == opens:
            return DAYS[then.weekday()] in window.get("days", DAYS)
    return False


def matches(match: Mapping[str, Any], event: EventPlan, now: datetime) -> bool:
    """Return whether a rule means an event that hits the VM which asks; its notice has just begun."""
    unknown = event.duration_in_seconds == -1
    return (
        event.type in match.get("event_types", TYPES)
        and event.source in match.get("event_sources", ("Platform", "User"))
        and "Scheduled" in match.get("statuses", ("Scheduled",))
        and match.get("target", "self") in {"self", "any"}
        and any(like(vm, glob) for vm in event.vms for glob in match.get("resources", ("*",)))
        and bounded(
            None if unknown else event.duration_in_seconds,
            match.get("min_duration"),
            match.get("max_duration"),
        )
        and bounded(float(event.notice), match.get("min_notice"), match.get("max_notice"))
        and any(open_now(window, now) for window in match.get("windows", [{}]))
    )


def deciding(rules: Sequence[Mapping[str, Any]], event: EventPlan, now: datetime) -> Mapping[str, Any] | None:
    """Return the rule that decides on an event, for the VMs that it hits."""
    return next((rule for rule in rules if matches(rule.get("match", {}), event, now)), None)


def due(
    rules: Sequence[Mapping[str, Any]], event: EventPlan, now: datetime, failover: float
) -> dict[str, float]:
    """Give, for each VM that may approve an event, after how many seconds it does; none where nobody may."""
    rule = deciding(rules, event, now)
    if float(event.notice) <= 0 or rule is None or rule["action"] != "approve":
        return {}
    delay = seconds(rule.get("delay", "0s"))
    return {vm: delay + rank * failover for rank, vm in enumerate(event.vms)}


def rules(now: datetime) -> list[dict[str, Any]]:
    """Return rules that use every key of a match, each alone and some together."""
    hour = timedelta(hours=1)
    local = now.astimezone(ZoneInfo("Asia/Kathmandu"))
    around = {"from": _clock(local - hour), "to": _clock(local + hour), "timezone": "Asia/Kathmandu"}
    past = {"from": _clock(now - 3 * hour), "to": _clock(now - hour)}
    other_days = [day for day in DAYS if day not in {_day(now - hour), _day(now), _day(now + hour)}]
    wrong_day = {"days": other_days, "from": _clock(now - hour), "to": _clock(now + hour)}
    return [
        _rule("closed", windows=[past, wrong_day]),
        _rule("freeze", event_types=["Freeze"], max_duration="8s", event_sources=["Platform"]),
        _rule("hold-long", "hold", event_types=["Freeze"], min_duration="30s"),
        _rule("hold-soon", "hold", event_types=["Preempt", "Terminate"], max_notice="10m"),
        _rule("user", event_types=["Reboot", "Redeploy"], event_sources=["User"], statuses=["Scheduled"]),
        _rule("one-of", event_types=["Reboot"], resources=["_WEB_1", "x*"], delay="1s"),
        _rule("much-notice", target="any", event_types=["Terminate"], min_notice="10m"),
        _rule("now", event_types=["Redeploy"], windows=[wrong_day, around], min_duration="9s"),
        _rule("far", event_types=["Preempt"], delay="2h"),
    ]


def events(chance: random.Random, count: int, vms: Sequence[str]) -> Iterator[EventPlan]:
    """Make events of all kinds; notices and durations often lie right at a rule's bound."""
    for _ in range(count):
        yield plan(
            chance.choice(TYPES),
            chance.sample(vms, chance.choice((0, 1, 1, 2, 2, 3))),
            notice=chance.choice((0, 300, 500, 900, 1500, 3600)),
            duration_in_seconds=chance.choice((-1, -1, 0, 5, 8, 9, 29, 30, chance.randint(-1, 60))),
            source=chance.choice(("Platform", "User")),
            after=chance.choice((0, 0, 0, 1, 2)),
        )


def _rule(name: str, action: str = "approve", delay: str = "0s", **match: Any) -> dict[str, Any]:
    return {"name": name, "match": match, "action": action, "delay": delay}


def _clock(at: datetime) -> str:
    return at.strftime("%H:%M")


def _day(at: datetime) -> str:
    return DAYS[at.weekday()]
