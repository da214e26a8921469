"""The interface between the web application and the rest of the exporter."""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime

import msgspec
from prometheus_client import CollectorRegistry, Counter

from exporter.clock import Clock
from exporter.health import Health
from exporter.model.lifecycle import Life
from exporter.model.views import (
    NO_APPROVAL,
    ApprovalView,
    ConfigurationView,
    Minute,
    NodeView,
    Snapshot,
    TargetView,
    WorkView,
)
from exporter.web.webfile import WebSettings


class Demonstration(msgspec.Struct, frozen=True):
    """A demo: what the page says about it, and that time passes ``speed`` times as fast since ``began``."""

    notice: str
    speed: float
    began: datetime


class WebContext(msgspec.Struct, frozen=True, kw_only=True):
    """The data and actions behind the web application.

    ``reload`` returns at once; its future raises `ConfigurationError` if the file is invalid, and
    `StoppingError` while the exporter stops. ``approval`` returns the state of approving an event.
    ``in_service`` returns "" while the VM is in service, otherwise the reason why it is not. ``work`` returns
    messages and hooks by the key of an event's life, and ``polls`` the outcomes of polls in the last hour, by
    minute. ``settings`` is called for every request, so that a changed web configuration applies at once.
    """

    snapshot: Callable[[], Snapshot]
    health: Health
    clock: Clock
    metrics: CollectorRegistry
    failed_logins: Counter
    reload: Callable[[], Future[None]]
    approval: Callable[[Life], ApprovalView] = lambda _: NO_APPROVAL
    lifecycle_enabled: bool = False
    demonstration: Demonstration | None = None
    in_service: Callable[[], str] = lambda: ""
    work: Callable[[Collection[str]], Mapping[str, Sequence[WorkView]]] = lambda _: {}
    polls: Callable[[], Sequence[Minute]] = tuple
    node: Callable[[], NodeView | None] = lambda: None
    targets: Callable[[], tuple[TargetView, ...]] = tuple
    configuration: Callable[[], ConfigurationView | None] = lambda: None
    settings: Callable[[], WebSettings] = WebSettings
