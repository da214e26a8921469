"""`match`: conditions on events, for routes, rules, hooks and in-service."""

import re
from collections.abc import Container, Iterable, Mapping
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Literal

import msgspec

from exporter.model.events import (
    EVENT_STATUSES,
    REBALANCE,
    SCHEDULED,
    STARTED,
    Affected,
    ScheduledEvent,
    normal_name,
    normal_word,
)
from exporter.model.lifecycle import Transition
from exporter.timefmt import Duration, parsed

# Types of texts that logs, messages and metrics show, where a URL with a password must not appear.


def parse_text(value: object) -> str:
    text = msgspec.convert(value, str)
    if "://" in text:
        raise ValueError("is a URL, which is not possible here")
    return text


def parse_name(value: object) -> str:
    """Return the name of a target, a rule or a hook."""
    text = msgspec.convert(value, str)
    if not text.strip():
        raise ValueError("is empty; set a name")
    if "://" in text:
        raise ValueError("is a URL, and names appear in logs and metrics; choose another name")
    return text


def parse_event_type(value: object) -> str:
    """Return any word: Azure adds types without a new version of its API."""
    text = msgspec.convert(value, str)
    if not re.fullmatch(r"\s*[\w.-]+\s*", text):
        raise ValueError("is not a word; write an event type like Reboot")
    return text


Text = Annotated[str, parsed(parse_text)]
Name = Annotated[str, parsed(parse_name)]
EventType = Annotated[str, parsed(parse_event_type)]


class Scope(StrEnum):
    """Whether events that affect this VM match, or those that affect others only."""

    SELF = "self"
    OTHER = "other"
    ANY = "any"


Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# Whether an event can be Scheduled or Started at a transition; both for transitions not listed here.
STATUSES_AT: Mapping[Transition, tuple[str, ...]] = {
    Transition.ADVISED: (),
    Transition.SCHEDULED: (SCHEDULED,),
    Transition.STARTED: (STARTED,),
    Transition.IMMINENT: (SCHEDULED,),
    Transition.APPROVED: (SCHEDULED,),
}
_TIME_OF_DAY = re.compile("([01][0-9]|2[0-3]|24(?=:00)):([0-5][0-9])")


def parse_time_of_day(value: object) -> int:
    """Return minutes since midnight, written ``22:00``; ``24:00`` is the end of the day."""
    time = _TIME_OF_DAY.fullmatch(str(value))
    if time is None:
        raise ValueError('is not a valid time of day; write it like "22:00"')
    return int(time[1]) * 60 + int(time[2])


def parse_zone(value: object) -> str:
    """Return the name of a time zone of the IANA database, which is read only if a window names one."""
    try:
        _zone(str(value))
    # Unknown zones raise a KeyError.
    except (KeyError, ValueError, OSError) as error:
        raise ValueError("is not a known time zone; write it like Europe/Berlin or UTC") from error
    return str(value)


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


TimeOfDay = Annotated[int, parsed(parse_time_of_day, pattern="^[0-2][0-9]:[0-5][0-9]$")]
Zone = Annotated[str, parsed(parse_zone)]


class Window(msgspec.Struct, frozen=True):
    """A weekly period; one that crosses midnight belongs to the day on which it begins."""

    days: tuple[Day, ...] = DAYS
    start: TimeOfDay = msgspec.field(name="from", default=0)
    end: TimeOfDay = msgspec.field(name="to", default=parse_time_of_day("24:00"))
    timezone: Zone = "UTC"

    def holds(self, now: datetime) -> bool:
        local = now.astimezone(_zone(self.timezone))
        minute = local.hour * 60 + local.minute
        today, yesterday = DAYS[local.weekday()], DAYS[(local - timedelta(days=1)).weekday()]
        if self.start < self.end:
            return today in self.days and self.start <= minute < self.end
        return (today in self.days and minute >= self.start) or (yesterday in self.days and minute < self.end)


class Match(msgspec.Struct, frozen=True):
    """Conditions that must all be met; an unspecified key matches every event."""

    event_types: tuple[EventType, ...] | None = None
    event_sources: tuple[Literal["Platform", "User"], ...] | None = None
    statuses: tuple[Literal["Scheduled", "Started"], ...] | None = None
    transitions: tuple[Transition, ...] | None = None
    target: Scope = Scope.SELF
    resources: tuple[str, ...] | None = None
    min_duration: Duration | None = None
    max_duration: Duration | None = None
    min_notice: Duration | None = None
    max_notice: Duration | None = None
    windows: tuple[Window, ...] | None = None

    def bounds(self, what: str) -> tuple[float | None, float | None]:
        return getattr(self, f"min_{what}"), getattr(self, f"max_{what}")

    def may_hold(self, transition: Transition) -> bool:
        """Return whether some event can match with this transition."""
        if self.event_types == (REBALANCE,):
            # It is advised, whatever its status.
            possible = transition is Transition.ADVISED or transition not in STATUSES_AT
        else:
            statuses = STATUSES_AT.get(transition, EVENT_STATUSES)
            possible = self.statuses is None or not set(statuses).isdisjoint(self.statuses)
        return possible and _among(transition, self.transitions)

    def holds(
        self, event: ScheduledEvent, *, target: Affected, now: datetime, transition: Transition | None = None
    ) -> bool:
        """Return whether an event that affects ``target`` matches, at ``now`` and with this transition."""
        return (
            _is_word(event.event_type, self.event_types)
            and _is_word(event.event_source, self.event_sources)
            and _is_word(event.event_status, self.statuses)
            and _among(transition, self.transitions)
            and self.target in (Scope.ANY, Scope(target))
            and _any_like(event.resources, self.resources)
            and _within(event.duration_seconds, self.min_duration, self.max_duration)
            and _within(notice(event, now), self.min_notice, self.max_notice)
            and (self.windows is None or any(window.holds(now) for window in self.windows))
        )


def notice(event: ScheduledEvent, now: datetime) -> float | None:
    """Return the seconds left until NotBefore; 0 if it is blank or past, None if it cannot be decoded."""
    if event.not_before_unreadable:
        return None
    return max((event.not_before - now).total_seconds(), 0.0) if event.not_before else 0.0


def _among(value: str | None, wanted: Container[str] | None) -> bool:
    return wanted is None or value in wanted


def _is_word(value: str, wanted: Iterable[str] | None) -> bool:
    return wanted is None or normal_word(value) in map(normal_word, wanted)


def _any_like(names: Iterable[str], patterns: Iterable[str] | None) -> bool:
    if patterns is None:
        return True
    folded = [normal_name(pattern) for pattern in patterns]
    return any(fnmatchcase(normal_name(name), pattern) for name in names for pattern in folded)


def _within(value: float | None, least: float | None, most: float | None) -> bool:
    if least is None and most is None:
        return True
    return value is not None and (least is None or value >= least) and (most is None or value <= most)
