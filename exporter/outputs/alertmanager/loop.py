"""The loops that keep the alerts at each Alertmanager as they should be."""

import logging
import math
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from exporter.config import Alertmanager
from exporter.config.addresses import ALERTMANAGER, Address, without_credentials
from exporter.health import DegradedReason
from exporter.model.views import Snapshot, TargetView
from exporter.outputs.alertmanager.alerts import ACTIVE_SECONDS, Alert, Key, alerts
from exporter.outputs.alertmanager.client import AlertmanagerError, Client
from exporter.shared import Shared
from exporter.work import Backoff, Loop

log = logging.getLogger(__name__)

_RENEW_SECONDS = 60.0
# While there are events: time alone can change whether they match.
_LOOK_SECONDS = 5.0
# Until the first poll has ended, nothing is known for certain.
_UNKNOWN_SECONDS = 1.0
_ERROR_SECONDS = 20.0
# Of one request.
_MOST_AT_ONCE = 256


class _Order(NamedTuple):
    """What one configuration wants posted; without ``settings``, it wants all that was posted to end."""

    client: Client
    settings: Alertmanager | None
    url: str


class Alertmanagers:
    """One loop for each configured Alertmanager, and for each that has alerts to end; thread-safe."""

    def __init__(self, snapshot: Callable[[], Snapshot], shared: Shared) -> None:
        self._snapshot = snapshot
        self._shared = shared
        self._loops: Sequence[AlertLoop] = ()
        self._is_stopping = False

    def configure(self, settings: Alertmanager, addresses: Sequence[Address], url: str) -> None:
        """Apply a configuration; ``url`` is that of the exporter's page.

        An Alertmanager that is no longer configured gets the end of what was posted there.
        """
        if self._is_stopping:
            return
        if addresses:
            self._shared.metrics.notifying([ALERTMANAGER])
        before = {one.place: one for one in self._loops}
        loops = []
        for address in addresses:
            loop = before.pop(without_credentials(address.url), None)
            if loop is None or not loop.follow(address, settings, url):
                loop = AlertLoop(address, settings, url, self._snapshot, self._shared, left=self._renew)
            loops.append(loop)
        leaving = [loop for loop in before.values() if loop.leave()]
        self._loops = (*loops, *leaving)
        self.wake()

    def wake(self) -> None:
        """Post what has changed."""
        for one in self._loops:
            one.loop.wake()

    def _renew(self) -> None:
        """Post what is active again: it was ended at a URL that may lead to the same Alertmanager."""
        for loop in self._loops:
            loop.renew()

    def targets(self) -> tuple[TargetView, ...]:
        return tuple(one.view for one in self._loops if not one.is_leaving)

    def pending(self) -> dict[str, int]:
        """Return the number of alerts that have not been accepted; {} without an Alertmanager."""
        views = self.targets()
        return {ALERTMANAGER: sum(view.pending for view in views)} if views else {}

    def stop(self, timeout: float) -> None:
        """Post nothing more; what should be posted follows from the state at the next start."""
        self._is_stopping = True
        clock = self._shared.clock
        deadline = clock.monotonic() + timeout
        for one in self._loops:
            one.loop.stop()
        for one in self._loops:
            one.loop.join(max(deadline - clock.monotonic(), 0.0))


class AlertLoop:
    """Posts alerts to one Alertmanager: what is new at once, all that are active every minute.

    It remembers only what was accepted. A process that begins anew posts again what is true, and the ends of
    the last day, which Alertmanager recognises by their labels.
    """

    def __init__(
        self,
        address: Address,
        settings: Alertmanager,
        url: str,
        snapshot: Callable[[], Snapshot],
        shared: Shared,
        *,
        left: Callable[[], None],
    ) -> None:
        """Start the loop; ``left`` is called once all has ended after `leave`."""
        self._snapshot = snapshot
        self._metrics, self._health, self._clock = shared
        self.address = address
        # By which it is recognised, whatever the credentials.
        self.place = without_credentials(address.url)
        self.view = TargetView(address.target)
        self._left_all = left
        self._order = _Order(Client(address, self._clock), settings, url)
        # Between the end of the loop and a configuration that needs it again.
        self._lock = threading.Lock()
        self._is_done = False
        self._began = self._clock.now()
        self._backoff = Backoff(self._clock)
        # The last that was accepted, by labels.
        self._accepted: dict[Key, Alert] = {}
        # When alerts ended that no longer match, or whose labels changed.
        self._ends: dict[Key, datetime] = {}
        self._renewed = self._left = self._wait_until = -math.inf
        self.loop = Loop(f"alerts {address.target}", self.step, failed=self._report_error)
        self.loop.start()

    @property
    def is_leaving(self) -> bool:
        return self._order.settings is None

    def follow(self, address: Address, settings: Alertmanager, url: str) -> bool:
        """Apply a configuration; return False if the loop has ended."""
        with self._lock:
            if self._is_done:
                return False
            client, view = self._order.client, self.view
            changed = (address.url, address.headers) != (self.address.url, self.address.headers)
            if self.is_leaving or changed:
                # The results so far say nothing about the new credentials.
                client.close()
                client, view = Client(address, self._clock), TargetView(address.target)
                self._wait_until = -math.inf
                self._health.clear(DegradedReason.NOTIFICATIONS_FAILING, self.place)
            self.address, self.view = address, replace(view, name=address.target)
            self._order = _Order(client, settings, url)
            return True

    def leave(self) -> bool:
        """End all alerts, and then the loop; return False if it has ended."""
        with self._lock:
            if not self.is_leaving:
                self._left = self._clock.monotonic()
                self._order = self._order._replace(settings=None)
            self._health.clear(DegradedReason.NOTIFICATIONS_FAILING, self.place)
            return not self._is_done

    def renew(self) -> None:
        """Post all active alerts now."""
        self._renewed = -math.inf
        self.loop.wake()

    def step(self) -> float | None:
        """Post what is due, and return the seconds until the next step."""
        snapshot, now, at = self._snapshot(), self._clock.now(), self._clock.monotonic()
        order = self._order
        if not (snapshot.ready or snapshot.last_error):
            return _UNKNOWN_SECONDS
        if at < self._wait_until:
            return self._wait_until - at
        wanted = alerts(snapshot, order.settings, now) if order.settings is not None else {}
        news = self._news(wanted, now)
        fresh = {alert.key for alert in news}
        is_due = at - self._renewed >= _RENEW_SECONDS
        if is_due:
            self._renewed = at
        active = [one for one in wanted.values() if one.ends is None]
        renewed = [one for one in active if one.key not in fresh] if is_due else []
        try:
            self._post(order, [*news, *renewed], now)
        except AlertmanagerError as error:
            self._renewed = -math.inf
            return self._failed(order, error, len(news), self._clock.monotonic() - at)
        if news or renewed:
            self._succeeded(news)
        self._accepted = {key: alert for key, alert in self._accepted.items() if key in wanted}
        self._ends = {}
        if order.settings is None:
            return self._finish()
        return _LOOK_SECONDS if snapshot.current else _RENEW_SECONDS

    def _news(self, wanted: dict[Key, Alert], now: datetime) -> list[Alert]:
        """Return the alerts that have not been accepted as they are now, active ones first."""
        gone = {
            key: replace(alert, ends=self._ends.setdefault(key, now))
            for key, alert in self._accepted.items()
            if alert.ends is None and key not in wanted
        }
        news = [one for key, one in (wanted | gone).items() if self._accepted.get(key) != one]
        return sorted(news, key=lambda one: one.ends is not None)

    def _post(self, order: _Order, due: Sequence[Alert], now: datetime) -> None:
        for start in range(0, len(due), _MOST_AT_ONCE):
            part = due[start : start + _MOST_AT_ONCE]
            order.client.post([alert.body(now, order.url) for alert in part])
            self._accepted |= {alert.key: alert for alert in part}

    def _succeeded(self, news: Sequence[Alert]) -> None:
        now = self._clock.now()
        self._backoff.succeeded()
        self._health.clear(DegradedReason.NOTIFICATIONS_FAILING, self.place)
        self.view = replace(self.view, pending=0, delivers=True, last_delivery=now)
        # A new process posts again what an earlier one may have posted.
        changed = [(one, since) for one in news if (since := one.ends or one.starts) >= self._began]
        delays = [max((now - since).total_seconds(), 0.0) for _, since in changed]
        self._metrics.delivered(ALERTMANAGER, delays)
        for (alert, _), delay in zip(changed, delays, strict=True):
            facts = {name: alert.labels.get(name) for name in ("alertname", "event_id", "event_type")}
            facts |= {"target": self.address.target, "state": "active" if alert.ends is None else "ended"}
            log.info("notified", extra=facts | {"delay_seconds": delay})

    def _failed(self, order: _Order, error: AlertmanagerError, pending: int, took: float) -> float | None:
        now, reason = self._clock.now(), str(error)
        if order is not self._order:
            # It says nothing about the next attempt.
            return 0.0
        self._metrics.failed(ALERTMANAGER)
        self.view = replace(self.view, pending=pending, delivers=False, last_failure=now, last_error=reason)
        if order.settings is not None:
            problem = f"target {self.address.target} ({order.client.label}): {reason}"
            self._health.report(DegradedReason.NOTIFICATIONS_FAILING, problem, self.place)
        elif self._clock.monotonic() - self._left >= ACTIVE_SECONDS:
            # What was posted has ended by itself.
            return self._finish()
        self._wait_until = self._clock.monotonic() + error.retry_after
        return max(self._backoff.failed(took), error.retry_after)

    def _finish(self) -> float | None:
        with self._lock:
            if not self.is_leaving:
                return 0.0
            self._is_done = True
        self._order.client.close()
        self.loop.stop()
        self._left_all()
        return None

    def _report_error(self, error: Exception) -> float:
        problem = f"target {self.address.target}: {type(error).__name__} in this program"
        self._health.report(DegradedReason.NOTIFICATIONS_FAILING, problem, self.place)
        log.debug("posting alerts failed", exc_info=error)
        return _ERROR_SECONDS
