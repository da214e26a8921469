"""Scheduled events as a document lists them.

Source: Azure's pages "Scheduled Events for Linux VMs" and "... for Windows VMs".
"""

import hashlib
import re
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

import msgspec

EVENT_TYPES = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")
# Advice about a Spot VM, from API version 2024-07-09 on (Azure's page "Spot eviction risk notifications").
REBALANCE = "SpotRebalanceRecommendation"
SCHEDULED = "Scheduled"
STARTED = "Started"
EVENT_STATUSES = (SCHEDULED, STARTED)
EVENT_SOURCES = ("Platform", "User")
UNKNOWN = "Unknown"  # in place of a missing or unreadable type or status
# Azure's Event Grid and Resource Graph list events that are over, too.
COMPLETED = "Completed"
CANCELED = "Canceled"
LONGEST_NAME = 256  # of an id, a type, a status or a name
# Python's UUID also takes braces, prefixes, digits of every script, and hyphens anywhere.
_GUID = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Affected(StrEnum):
    """Which VMs an event affects, as seen from this VM."""

    SELF = "self"
    OTHER = "other"


def unreadable_resources(doubts: Iterable[str]) -> bool:
    """Return whether the doubts about an event are about its resources, so that names are missing."""
    return any(doubt.startswith("Resources:") for doubt in doubts)


def unreadable_not_before(doubts: Iterable[str]) -> bool:
    """Return whether the doubts about an event are about its NotBefore."""
    return any(doubt.startswith("NotBefore:") for doubt in doubts)


class ScheduledEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event as the newest document lists it; fields that Azure left blank or unknown are empty or None.

    Types and statuses are plain strings: Azure adds new ones without a new API version. ``doubts`` has a line
    for each part that could not be read, or was cut or rounded: the name of the field, a colon, and why.
    """

    event_id: str
    event_type: str
    event_status: str
    resources: tuple[str, ...] = ()
    not_before: datetime | None = None  # aware and in UTC
    duration_seconds: int | None = None  # None if Azure's value is -1 or missing
    description: str = ""
    event_source: str = ""
    resource_type: str = ""
    doubts: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The id for comparison: Azure writes the same GUID in upper or lower case."""
        return lower(self.event_id)

    @property
    def not_before_unreadable(self) -> bool:
        """Whether there is a NotBefore in an unknown format."""
        return unreadable_not_before(self.doubts)

    @property
    def is_advice(self) -> bool:
        """Whether it only recommends something, whatever its status, and nothing happens to the VM."""
        return self.event_type == REBALANCE

    @property
    def is_scheduled(self) -> bool:
        return self.event_status == SCHEDULED and not self.is_advice

    @property
    def is_started(self) -> bool:
        return self.event_status == STARTED and not self.is_advice

    def target(self, instance: str | None) -> Affected:
        """Return which VMs the event affects; with an unknown name or empty ``Resources``, this VM."""
        if not instance or not self.resources:
            return Affected.SELF
        is_own = normal_name(instance) in map(normal_name, self.resources)
        return Affected.SELF if is_own else Affected.OTHER


def lower(event_id: str) -> str:
    """Return an id in lower case: itself, if it is, so that thousands of keys take no memory of their own."""
    lowered = event_id.lower()
    return event_id if lowered == event_id else lowered


def normal_name(name: str) -> str:
    """Return a VM name for comparison: case is not significant, and old APIs put an underscore in front."""
    return name.removeprefix("_").lower()


def normal_word(word: str) -> str:
    """Return a type, status or source for comparison, without regard to case and blanks around it."""
    return word.strip().lower()


def same_resources(left: Iterable[str], right: Iterable[str]) -> bool:
    """Return whether two lists have the same VM names, in any order."""
    return sorted(map(normal_name, left)) == sorted(map(normal_name, right))


def trace_id(event_id: str) -> str:
    """Return the trace id, 32 hex digits: the GUID's 128 bits, so that all VMs agree on it.

    For an id that is not a GUID, or all zero (which W3C Trace Context forbids), the start of its SHA-256.
    """
    digits = event_id.replace("-", "").lower()
    if _GUID.fullmatch(event_id) and digits.strip("0"):
        return digits
    return hashlib.sha256(event_id.encode()).hexdigest()[:32]
