"""The loops that keep the alerts at each Alertmanager as they should be."""

import logging
import math
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from exporter.config import Alertmanager, Web
from exporter.config.addresses import Address, without_credentials
from exporter.config.loading import Loaded
from exporter.health import DegradedReason
from exporter.model.views import TargetView
from exporter.outputs.alertmanager.alerts import Alert, Key, alerts
from exporter.outputs.alertmanager.client import AlertmanagerError, Client
from exporter.outputs.alertmanager.section import ALERTMANAGER, AlertmanagerSection
from exporter.outputs.output import Core, Output
from exporter.work import Backoff, Loop

log = logging.getLogger(__name__)

_RENEW_SECONDS = 60.0
_LOOK_SECONDS = 5.0  # while there are events: time alone can change whether they match
_UNKNOWN_SECONDS = 1.0  # until the first poll has ended, nothing is known for certain
_ERROR_SECONDS = 20.0
_MOST_AT_ONCE = 256  # of one request


class _Wanted(NamedTuple):
    """What a configuration wants at an Alertmanager."""

    address: Address
    settings: Alertmanager
    web: Web


class Alertmanagers(Output):
    """One loop for each configured Alertmanager."""

    name = "alertmanager"
    section = AlertmanagerSection()

    def __init__(self, core: Core) -> None:
        self._core = core
        self._loops: Sequence[AlertLoop] = ()

    def configure(self, loaded: Loaded, environ: Mapping[str, str]) -> None:
        """Apply a configuration; what was posted to a former Alertmanager ends there by its ``endsAt``."""
        addresses, settings = loaded.addresses[self.name], loaded.config
        if addresses:
            self._core.metrics.deliveries.expect([ALERTMANAGER])
        before = list(self._loops)
        loops = []
        for address in addresses:
            wanted = _Wanted(address, settings.alertmanager, settings.web)
            loop = next((loop for loop in before if loop.reaches(address)), None)
            if loop is None:
                loop = AlertLoop(wanted, self._core)
            else:
                before.remove(loop)
                loop.wanted = wanted
            loops.append(loop)
        for loop in before:
            loop.close()
        self._loops = loops
        self.wake()

    def wake(self) -> None:
        for loop in self._loops:
            loop.loop.wake()

    def targets(self) -> tuple[TargetView, ...]:
        return tuple(loop.view for loop in self._loops)

    def pending(self) -> dict[str, int]:
        """Return the number of alerts that have not been accepted; {} without an Alertmanager."""
        views = self.targets()
        return {ALERTMANAGER: sum(view.pending for view in views)} if views else {}

    def stop(self, timeout: float) -> bool:
        """Post nothing more; what should be posted follows from the state at the next start."""
        clock = self._core.clock
        deadline = clock.monotonic() + timeout
        for loop in self._loops:
            loop.close()
        for loop in self._loops:
            loop.loop.join(max(deadline - clock.monotonic(), 0.0))
        # Nothing of this is in the state.
        return True


class AlertLoop:
    """Posts alerts to one Alertmanager: what is new at once, all that are active every minute.

    It remembers only what was accepted. A process that begins anew posts again what is true, and the ends of
    the last day, which Alertmanager recognises by their labels.
    """

    def __init__(self, wanted: _Wanted, core: Core) -> None:
        self.wanted = wanted
        self._views = core.views
        self._metrics, self._health, self._clock = core.metrics, core.health, core.clock
        address = wanted.address
        self._subject = without_credentials(address.url)
        self._client = Client(address, self._clock)
        self._view = TargetView(address.target)
        self._closing = threading.Lock()  # no problem is reported after `close`
        self._began = self._clock.now()
        self._backoff = Backoff(self._clock)
        self._accepted: dict[Key, Alert] = {}  # the last that was accepted, by labels
        # When alerts ended that no longer match, or whose labels changed.
        self._ends: dict[Key, datetime] = {}
        self._renewed = self._wait_until = -math.inf
        self.loop = Loop(f"alerts {address.target}", self.step, failed=self._report_error)
        self.loop.start()

    @property
    def view(self) -> TargetView:
        return replace(self._view, name=self.wanted.address.target)

    def reaches(self, address: Address) -> bool:
        """Return whether it posts to this address with these credentials."""
        own = self.wanted.address
        return (own.url, own.headers) == (address.url, address.headers)

    def close(self) -> None:
        """Post nothing after the request in progress."""
        with self._closing:
            self.loop.stop()
            self._health.clear(DegradedReason.NOTIFICATIONS_FAILING, self._subject)
            self._health.clear(DegradedReason.CLOCK_SKEW, self._subject)
        self._client.close()

    def step(self) -> float | None:
        snapshot, now, at = self._views.snapshot, self._clock.now(), self._clock.monotonic()
        if not (snapshot.ready or snapshot.last_error):
            return _UNKNOWN_SECONDS
        if at < self._wait_until:
            return self._wait_until - at
        wanted = alerts(snapshot, self.wanted.settings, now, self.wanted.web.runbook_url)
        news = self._news(wanted, now)
        fresh = {alert.key for alert in news}
        is_due = at - self._renewed >= _RENEW_SECONDS
        if is_due:
            self._renewed = at
        active = [alert for alert in wanted.values() if alert.ends is None]
        renewed = [alert for alert in active if alert.key not in fresh] if is_due else []
        told = {_phase(alert) for alert in self._accepted.values()}
        try:
            self._post([*news, *renewed], now)
        except AlertmanagerError as error:
            self._renewed = -math.inf
            return self._failed(error, len(news), self._clock.monotonic() - at)
        if news or renewed:
            # A text or a label that has changed is no new delivery.
            self._succeeded([alert for alert in news if _phase(alert) not in told])
        self._accepted = {key: alert for key, alert in self._accepted.items() if key in wanted}
        self._ends = {}
        return _LOOK_SECONDS if snapshot.current else _RENEW_SECONDS

    def _news(self, wanted: dict[Key, Alert], now: datetime) -> list[Alert]:
        """Return the alerts that have not been accepted as they are now, active ones first."""
        gone = {
            key: replace(alert, ends=self._ends.setdefault(key, now))
            for key, alert in self._accepted.items()
            if alert.ends is None and key not in wanted
        }
        news = [alert for key, alert in (wanted | gone).items() if self._accepted.get(key) != alert]
        return sorted(news, key=lambda alert: alert.ends is not None)

    def _post(self, due: Sequence[Alert], now: datetime) -> None:
        for start in range(0, len(due), _MOST_AT_ONCE):
            part = due[start : start + _MOST_AT_ONCE]
            bodies = [alert.body(now, self.wanted.web.external_url) for alert in part]
            self._check_clock(self._client.post(bodies))
            self._accepted |= {alert.key: alert for alert in part}

    def _succeeded(self, delivered: Sequence[Alert]) -> None:
        now = self._clock.now()
        self._backoff.succeeded()
        self._health.clear(DegradedReason.NOTIFICATIONS_FAILING, self._subject)
        self._view = replace(self._view, pending=0, delivers=True, last_delivery=now)
        # A new process posts again what an earlier one may have posted.
        changed = [
            (alert, since) for alert in delivered if (since := alert.ends or alert.starts) >= self._began
        ]
        delays = [max((now - since).total_seconds(), 0.0) for _, since in changed]
        self._metrics.deliveries.delivered(ALERTMANAGER, delays)
        for (alert, _), delay in zip(changed, delays, strict=True):
            facts = {name: alert.labels.get(name) for name in ("alertname", "event_id", "event_type")}
            facts |= {
                "target": self.wanted.address.target,
                "state": "active" if alert.ends is None else "ended",
            }
            log.info("notified", extra=facts | {"delay_seconds": delay})

    def _failed(self, error: AlertmanagerError, pending: int, took: float) -> float:
        now, reason = self._clock.now(), str(error)
        self._metrics.deliveries.failed(ALERTMANAGER)
        self._view = replace(self._view, pending=pending, delivers=False, last_failure=now, last_error=reason)
        self._report(f"target {self.wanted.address.target} ({self._client.label}): {reason}")
        self._wait_until = self._clock.monotonic() + error.retry_after
        return max(self._backoff.failed(took), error.retry_after)

    def _check_clock(self, offset: float) -> None:
        other = f"{self.wanted.address.target} ({self._client.label})"
        effect = "alerts end early there, or at once" if offset < 0 else "alerts end late there"
        with self._closing:
            if not self.loop.stopping:
                self._health.check_clock(offset, other, effect, self._subject)

    def _report(self, problem: str) -> None:
        with self._closing:
            if not self.loop.stopping:
                self._health.report(DegradedReason.NOTIFICATIONS_FAILING, problem, self._subject)

    def _report_error(self, error: Exception) -> float:
        self._report(f"target {self.wanted.address.target}: {type(error).__name__} in this program")
        log.debug("posting alerts failed", exc_info=error)
        return _ERROR_SECONDS


def _phase(alert: Alert) -> tuple[str | None, str | None, bool]:
    """Return which phase of which event an alert is about, and whether that is over."""
    return alert.labels.get("event_id"), alert.labels.get("phase"), alert.ends is not None
