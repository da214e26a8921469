"""``/api/v1``: the data of the landing page as JSON."""

from collections.abc import Callable
from datetime import datetime
from typing import Literal

import msgspec

from exporter import __version__
from exporter.health import Health
from exporter.model.lifecycle import TrackedEvent
from exporter.model.views import ApprovalView, EventView, Snapshot, event_view


class Events(msgspec.Struct, frozen=True):
    """The body of ``/api/v1/events``; both lists are newest first."""

    instance: str | None
    current: tuple[EventView, ...]
    past: tuple[EventView, ...]


class Status(msgspec.Struct, frozen=True):
    """The body of ``/api/v1/status``; ``problems`` are lines ``reason: message``, oldest first.

    ``started`` is when this process began to serve, ``last_scrape`` when it last answered ``/metrics``.
    """

    version: str
    up: bool
    ready: bool
    last_success: datetime | None
    last_error: str
    document_incarnation: int | None
    instance: str | None
    endpoint: str
    state: Literal["ok", "degraded"]
    problems: tuple[str, ...]
    started: datetime | None = None
    last_scrape: datetime | None = None


def events(snapshot: Snapshot, approval: Callable[[TrackedEvent], ApprovalView]) -> Events:
    """Return all known events, current and past, each with the state of its approval."""
    current, past = (
        tuple(event_view(tracked, approval(tracked)) for tracked in group)
        for group in (snapshot.current, snapshot.past)
    )
    return Events(snapshot.instance, current, past)


def status(snapshot: Snapshot, health: Health, started: datetime, last_scrape: datetime | None) -> Status:
    """Return the state of the watch and the active problems of the exporter."""
    problems = tuple(f"{problem.reason}: {problem.message}" for problem in health.problems())
    return Status(
        version=__version__,
        up=snapshot.up,
        ready=snapshot.ready,
        last_success=snapshot.last_success,
        last_error=snapshot.last_error,
        document_incarnation=snapshot.incarnation,
        instance=snapshot.instance,
        endpoint=snapshot.endpoint,
        state="degraded" if problems else "ok",
        problems=problems,
        started=started,
        last_scrape=last_scrape,
    )
