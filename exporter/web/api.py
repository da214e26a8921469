"""``/api/v1``: the data of the landing page as JSON."""

from collections.abc import Callable
from datetime import datetime
from typing import Literal

import msgspec

from exporter import __version__
from exporter.model.lifecycle import Life
from exporter.model.views import (
    ApprovalView,
    ConfigurationView,
    EventView,
    NodeView,
    Snapshot,
    TargetView,
    Views,
    event_view,
)

PAGE_SIZE = 100


class Events(msgspec.Struct, frozen=True):
    """The body of ``/api/v1/events``: current events by `urgency`, a page of the past ones newest first."""

    instance: str | None
    current: tuple[EventView, ...]
    past: tuple[EventView, ...]


class Status(msgspec.Struct, frozen=True):
    """The body of ``/api/v1/status``."""

    version: str
    up: bool
    ready: bool
    last_success: datetime | None
    last_error: str
    document_incarnation: int | None
    instance: str | None
    endpoint: str
    api_version: str
    state: Literal["ok", "degraded"]
    problems: tuple[str, ...]  # lines ``reason: message``, IMDS first
    started: datetime | None = None  # when this process began to serve
    last_scrape: datetime | None = None  # when it last answered ``/metrics``
    kubernetes: NodeView | None = None  # None without a Node
    configuration: ConfigurationView | None = None
    targets: tuple[TargetView, ...] = ()  # in the order of the configuration
    last_status: int = 0  # HTTP status of the last failed poll, 0 without an answer or after a success
    instance_api_version: str = ""


def events(snapshot: Snapshot, approval: Callable[[Life], ApprovalView], page: int) -> Events:
    past = snapshot.past[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    current, ended = (
        tuple(event_view(life, approval(life)) for life in lives) for lives in (snapshot.current, past)
    )
    return Events(snapshot.instance, current, ended)


def has_page(snapshot: Snapshot, page: int) -> bool:
    """Return whether there are past events for a page, from 1."""
    return len(snapshot.past) > (page - 1) * PAGE_SIZE


def status(views: Views, started: datetime, last_scrape: datetime | None) -> Status:
    snapshot = views.snapshot
    problems = [f"{problem.reason}: {problem.message}" for problem in views.health.problems()]
    if snapshot.poll_problem is not None:
        problems.insert(0, f"{snapshot.poll_problem}: {snapshot.last_error}")
    return Status(
        version=__version__,
        up=snapshot.up,
        ready=snapshot.ready,
        last_success=snapshot.last_success,
        last_error=snapshot.last_error,
        document_incarnation=snapshot.incarnation,
        instance=snapshot.instance,
        endpoint=snapshot.endpoint,
        api_version=snapshot.api_version,
        state="degraded" if problems else "ok",
        problems=tuple(problems),
        started=started,
        last_scrape=last_scrape,
        kubernetes=views.node,
        configuration=views.configuration,
        targets=views.targets(),
        last_status=snapshot.last_status,
        instance_api_version=snapshot.instance_api_version,
    )
