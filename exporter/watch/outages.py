"""Outages of the watch: for a while there is no valid document, then there is one again."""

import logging
import math
import platform
from datetime import timedelta

from msgspec.structs import replace

from exporter.clock import Clock, Moment, seconds_since
from exporter.model.messages import Outage, WatchChange
from exporter.model.views import Snapshot
from exporter.notifications.notifier import Notifier
from exporter.otlp import Tracer
from exporter.state.store import Store

log = logging.getLogger(__name__)

# After a crash, the age of the last success decides how ended events are judged; some minutes do not matter.
_NOTE_SECONDS = 900.0
# While an event can start, that age also decides whether its start was watched, which is a matter of 30 s.
_NOTE_PENDING_SECONDS = 10.0


class Outages:
    """Reports that an outage begins or ends, once each, also across restarts; used by one thread.

    The state is told the time of the last valid document now and then, and when polls begin to fail. Of the
    time before this process, what is certain counts: an outage goes on over restarts within one boot.
    """

    def __init__(self, store: Store, notifier: Notifier, tracer: Tracer, clock: Clock) -> None:
        self._store = store
        self._notifier = notifier
        self._tracer = tracer
        self._clock = clock
        # The current outage, if it was reported.
        self._reported = store.outage
        self._last_success = store.last_success
        # Since when there is no valid document, on the monotonic clock; whether the state says so.
        age = seconds_since(store.failing, clock)
        self._valid_at, self._is_failing = clock.monotonic() - (age or 0.0), age is not None
        self._noted_at = -math.inf

    def valid(self, seen: Snapshot) -> None:
        """Note a valid document, which ends an outage; ``seen`` is what was known before it."""
        if self._reported is not None:
            self._change(WatchChange.RECOVERED, self._reported, seen)
        self._valid_at, self._last_success = self._clock.monotonic(), self._clock.now()
        is_pending = any(life.event.is_scheduled for life in seen.current)
        is_due = self._valid_at - self._noted_at >= (_NOTE_PENDING_SECONDS if is_pending else _NOTE_SECONDS)
        if is_due or self._is_failing or seen.instance not in (None, self._store.instance):
            self._noted_at, self._is_failing = self._valid_at, False
            self._store.note_valid(self._last_success, seen.instance)

    def invalid(self, seen: Snapshot) -> None:
        """Note a failed poll; an outage begins if there was no valid document for some minutes."""
        if not self._is_failing:
            self._is_failing = True
            self._store.note_failing(Moment(self._clock.boot, self._valid_at), self._last_success)
        blind, plan = self._clock.monotonic() - self._valid_at, self._notifier.plan
        after = plan.watch_after if self._tracer.keeps_records else plan.blind_after
        if self._reported is None and blind >= after:
            since = self._last_success or self._clock.now() - timedelta(seconds=blind)
            name = seen.instance or self._store.instance or platform.node()
            never = self._last_success is None
            self._change(WatchChange.BLIND, Outage(since, f"watch/{name}", never), seen)

    def _change(self, change: WatchChange, outage: Outage, seen: Snapshot) -> None:
        """Record that an outage begins or ends, with messages about it."""
        # After a restart the name is not known before IMDS answers.
        seen = replace(seen, instance=seen.instance or self._store.instance)
        opened = self._store.outbox.opened((outage.key,))
        now = self._clock.now()
        messages = self._notifier.plan.compose_watch(change, outage, now, seen, opened)
        records = self._tracer.watch_changed(change, outage, now, seen.last_error)
        self._reported = outage if change is WatchChange.BLIND else None
        self._store.record_outage(self._reported, messages, records)
        self._notifier.wake()
        self._tracer.wake()
        log.warning(change.value, extra={"since": outage.since, "error": seen.last_error})
