"""One target's messages, worked off in their order by a thread of its own."""

import logging
import random
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from exporter.clock import Clock
from exporter.health import Health, Trouble
from exporter.model.events import trace_id
from exporter.model.messages import Delivery, Message, Outcome, Rendered, Sender
from exporter.retry import delay_after
from exporter.state.outbox import Outbox, Waiting

log = logging.getLogger(__name__)

# More than these that waited for a target that was down go out as one.
MOST_SINGLE = 10
# A message that is older than this says when the thing happened.
LATE_SECONDS = 5.0
_BATCH = 200
# What wakes a worker otherwise is `Worker.wake`; this finds what a disk that came back brings.
_IDLE_SECONDS = 60.0
# After an error of ours outside of a try: as late as a target may be tried again early in an outage.
_ERROR_SECONDS = 20.0


class Writes(Protocol):
    """What is needed of `exporter.notifications.rendering.Renderer`."""

    def render(
        self, message: Message, now: datetime, *, limit: int | None = None, late: bool = False
    ) -> Rendered:
        """Write one message."""
        ...

    def digest(
        self, messages: Sequence[Message], now: datetime, *, limit: int | None = None
    ) -> tuple[Rendered, int]:
        """Write the first of several messages as one, and say how many those are."""
        ...


class Counts(Protocol):
    """What is needed of `exporter.metrics.Metrics`."""

    def delivered(self, target: str, delays: Sequence[float]) -> None:
        """Count messages that arrived, each with the seconds since its transition."""
        ...

    def failed(self, target: str) -> None:
        """Count a try that failed."""
        ...

    def expired(self, target: str, count: int) -> None:
        """Count messages that were given up."""
        ...


class Traces(Protocol):
    """What is needed of `exporter.tracing.Tracer`."""

    def traceparent(self, message: Message) -> str:
        """Return the W3C header to send along with a message; "" for none."""
        ...

    def notified(self, message: Message, at: datetime, outcome: Outcome) -> None:
        """Take in that a message arrived, or was given up."""
        ...


class Duty(NamedTuple):
    """How a worker is to do its work; the factories are called on its thread, at its first message.

    Without a sender the target is configured no more: its messages wait until they are too old.
    """

    sender: Callable[[], Sender] | None
    renderer: Callable[[], Writes]
    retry_for: float


class Worker:
    """Delivers what waits for one target; no failure of a sender or a renderer ends it."""

    def __init__(  # noqa: PLR0913  # it is built in one place, by names
        self,
        target: str,
        duty: Duty,
        *,
        outbox: Outbox,
        counts: Counts,
        tracer: Traces,
        health: Health,
        clock: Clock,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.target = target
        self._duty = duty
        self._outbox = outbox
        self._counts = counts
        self._tracer = tracer
        self._health = health
        self._clock = clock
        self._chance = chance
        self._sender: Sender | None = None
        self._sender_of: Duty | None = None
        # What waits at the start was not delivered in time: the target, or the exporter, was down.
        self._was_down = bool(outbox.waiting(target, 1))
        self._digest_of = _BATCH
        self._failures = 0
        self._failing_since = 0.0
        self._try_at = clock.monotonic()
        self._wake = threading.Event()
        self._stopping = False
        # A receiver may keep a send waiting; the end of the process must not.
        self._thread = threading.Thread(target=self._run, name=f"notify {target}", daemon=True)
        self._lock = threading.Lock()

    def assign(self, duty: Duty) -> None:
        """Take over another way to do the work, and try at once."""
        with self._lock:
            self._duty = duty
            self._try_at = self._clock.monotonic()
            if duty.sender is None:
                self._health.clear(Trouble.NOTIFICATIONS_FAILING, self.target)
        self.wake()

    def wake(self) -> None:
        """Look for messages now; the thread is started when there are some for the first time."""
        with self._lock:
            idle = self._thread.ident is None
            if idle and not self._stopping and self._outbox.counts().get(self.target):
                self._thread.start()
        self._wake.set()

    def stop(self) -> None:
        """Ask the thread to end after what it does now."""
        with self._lock:
            self._stopping = True
        self._wake.set()

    def join(self, timeout: float) -> bool:
        """Wait for the end of the thread, and return whether it came within ``timeout`` seconds."""
        if self._thread.ident is not None:
            self._thread.join(max(timeout, 0.0))
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            try:
                delay = self.step()
            except Exception as error:  # a thread that ended would not be missed by anybody
                problem = f"target {self.target}: {type(error).__name__} in this program"
                self._health.report(Trouble.NOTIFICATIONS_FAILING, problem, self.target)
                log.debug("a worker failed", exc_info=True)
                delay = _ERROR_SECONDS
            if delay > 0:
                self._wake.wait(delay)

    def step(self) -> float:
        """Do what is due, one message or one digest at most; return the seconds until there may be more."""
        duty = self._duty
        several = self._was_down or duty.sender is None
        waiting = self._outbox.waiting(self.target, _BATCH if several else 1)
        lost = [entry for entry in waiting if entry.message is None]
        if lost:
            self._expire(lost)
            return 0.0
        if not waiting:
            self._was_down = False
            return _IDLE_SECONDS
        if duty.sender is None:
            self._give_up(duty.retry_for)
            return _IDLE_SECONDS
        left = self._try_at - self._clock.monotonic()
        return left if left > 0 else self._deliver(duty, waiting)

    def _deliver(self, duty: Duty, waiting: Sequence[Waiting]) -> float:
        several = self._was_down and len(waiting) > MOST_SINGLE
        begun = self._clock.monotonic()
        delivery, sent = self._try(duty, waiting[: self._digest_of] if several else waiting[:1])
        if delivery.delivered:
            self._digest_of = _BATCH
            self._succeeded(sent)
        elif not self._stopping:
            # Of several services some may have it: what is tried again is the same, not a longer one.
            self._digest_of = len(sent) if len(sent) > 1 else _BATCH
            return self._failed(delivery.reason, duty, self._clock.monotonic() - begun)
        return 0.0

    def _try(self, duty: Duty, waiting: Sequence[Waiting]) -> tuple[Delivery, Sequence[Waiting]]:
        try:
            if self._sender is None or self._sender_of is not duty:
                self._sender, self._sender_of = None, duty
                self._sender = duty.sender() if duty.sender else None
            if self._sender is None:
                return Delivery(delivered=False, reason="it is not configured any more"), ()
            rendered, count = self._write(duty.renderer(), waiting, self._sender.body_limit)
            sent = waiting[:count]
            about = tuple((entry.key, entry.sequence) for entry in sent)
            return self._sender.send(rendered, about), sent
        except Exception as error:  # noqa: BLE001  # the messages must go on, whatever is wrong with this try
            # No traceback: its text may have what must not show, a URL or a token.
            return Delivery(delivered=False, reason=f"{type(error).__name__} in this program"), ()

    def _write(self, renderer: Writes, waiting: Sequence[Waiting], limit: int | None) -> tuple[Rendered, int]:
        now = self._clock.now()
        messages = [entry.message for entry in waiting if entry.message is not None]
        if len(messages) > 1:
            return renderer.digest(messages, now, limit=limit)
        late = (now - messages[0].at).total_seconds() > LATE_SECONDS
        rendered = renderer.render(messages[0], now, limit=limit, late=late)
        # A digest tells of several traces.
        return msgspec.structs.replace(rendered, traceparent=self._tracer.traceparent(messages[0])), 1

    def _succeeded(self, sent: Sequence[Waiting]) -> None:
        now = self._clock.now()
        self._outbox.finish(self.target, sent, now)
        messages = [entry.message for entry in sent if entry.message is not None]
        delays = [max((now - message.at).total_seconds(), 0.0) for message in messages]
        self._counts.delivered(self.target, delays)
        self._failures = 0
        self._health.clear(Trouble.NOTIFICATIONS_FAILING, self.target)
        for message, delay in zip(messages, delays, strict=True):
            log.info("notified", extra=_facts(message) | {"delay_seconds": delay})
            self._tracer.notified(message, now, Outcome.DELIVERED)

    def _failed(self, reason: str, duty: Duty, took: float) -> float:
        now = self._clock.monotonic()
        if not self._failures:
            self._failing_since = now
        self._failures += 1
        self._was_down = True
        self._counts.failed(self.target)
        address = f" ({self._sender.address})" if self._sender else ""
        delay = delay_after(
            self._failures, failing_for=now - self._failing_since, took=took, chance=self._chance()
        )
        with self._lock:
            # Where a reload came during the try, its end says nothing of what is configured now.
            if self._duty is not duty:
                return 0.0
            self._health.report(
                Trouble.NOTIFICATIONS_FAILING, f"target {self.target}{address}: {reason}", self.target
            )
            self._try_at = now + delay
        self._give_up(duty.retry_for)
        return delay

    def _give_up(self, retry_for: float) -> None:
        """Expire what is too old; it is asked only after a try failed, whatever the clock says."""
        now = self._clock.now()
        while True:
            old = [
                entry
                for entry in self._outbox.waiting(self.target, _BATCH)
                if entry.message is not None and (now - entry.message.at).total_seconds() > retry_for
            ]
            self._expire(old)
            if len(old) < _BATCH:
                return

    def _expire(self, entries: Sequence[Waiting]) -> None:
        if not entries:
            return
        now = self._clock.now()
        self._outbox.finish(self.target, entries, now)
        self._counts.expired(self.target, len(entries))
        for entry in entries:
            if entry.message is None:
                facts: dict[str, object] = {"target": self.target, "event_id": entry.key}
            else:
                facts = _facts(entry.message) | {"at": entry.message.at, "instance": entry.message.instance}
                self._tracer.notified(entry.message, now, Outcome.EXPIRED)
            log.warning("message given up", extra=facts)


def _facts(message: Message) -> dict[str, object]:
    return {
        "target": message.target,
        "transition": message.transition.value,
        "event_id": message.event.id,
        "trace_id": trace_id(message.event.id),
        "event_type": message.event.type,
    }
