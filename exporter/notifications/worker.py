"""Delivery of one target's messages: a loop starts attempts, each on its own thread."""

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from exporter.clock import Clock
from exporter.health import DegradedReason, Health
from exporter.metrics import Metrics
from exporter.model.events import trace_id
from exporter.model.jobs import Span
from exporter.model.messages import (
    AnyMessage,
    Backlog,
    Delivery,
    Failure,
    Message,
    Outcome,
    Rendered,
    Sender,
)
from exporter.notifications.planning import Plan
from exporter.notifications.schedule import MOST_ATTEMPTS_FOR_ONE, Ids, Item, Schedule, Turn
from exporter.state.jobs import Outbox, Waiting
from exporter.tracing import Tracer
from exporter.work import Loop

log = logging.getLogger(__name__)

# A message that is older than this contains the time of its transition.
LATE_SECONDS = 5.0
_MOST_WAITING = 1000
_MOST_IN_DIGEST = 200
# `wake` makes the worker check the outbox; this finds messages that appear when the disk works again.
_IDLE_SECONDS = 60.0
_ERROR_SECONDS = 20.0


class Attempt(NamedTuple):
    """An attempt: its messages and its plan."""

    ids: Ids
    entries: Sequence[Waiting]
    digest: bool
    plan: Plan


def _on_a_thread(name: str, work: Callable[[], None]) -> None:
    # A daemon thread, so that a slow receiver does not keep the process from exiting.
    threading.Thread(target=work, name=name, daemon=True).start()


class Worker:
    """Delivers the queued messages of one target, whatever a sender or a renderer raises."""

    def __init__(  # noqa: PLR0913  # it is built in one place, by names
        self,
        target: str,
        plan: Plan,
        *,
        outbox: Outbox,
        counts: Metrics,
        tracer: Tracer,
        health: Health,
        clock: Clock,
        chance: Callable[[], float] = random.random,
        start: Callable[[str, Callable[[], None]], None] = _on_a_thread,
    ) -> None:
        self.target = target
        self._plan = self._plan_in_use = plan
        self._outbox = outbox
        self._counts = counts
        self._tracer = tracer
        self._health = health
        self._clock = clock
        self._start = start
        self._sender: Sender | None = None
        # Messages queued before the start are late: the target, or the exporter, was down.
        self._schedule = Schedule(clock, recovering=bool(outbox.waiting(target, 1)), chance=chance)
        self._ended: queue.SimpleQueue[tuple[Attempt, Delivery]] = queue.SimpleQueue()
        # The services behind the target that already have a message which others have not.
        self._delivered_to: dict[Ids, set[str]] = {}
        self._loop = Loop(f"notify {target}", self.step, failed=self._report_error)

    def follow(self, plan: Plan) -> None:
        """Apply another plan, and try immediately."""
        self._plan = plan
        self.wake()

    def wake(self) -> None:
        """Look for messages now; the first ones start the thread."""
        if self._outbox.counts().get(self.target):
            self._loop.start()
        self._loop.wake()

    def stop(self) -> None:
        """Start no further attempts."""
        self._loop.stop()

    def join(self, timeout: float) -> bool:
        """Wait for attempts in progress and record their results; return whether all ended in time."""
        deadline = time.monotonic() + timeout
        if not self._loop.join(timeout):
            return False
        while self._schedule.under_way:
            try:
                self._settle(*self._ended.get(timeout=max(deadline - time.monotonic(), 0)))
            except queue.Empty:
                return False
        return True

    def step(self) -> float | None:
        """Record ended attempts, and start one if due; return the seconds until the next step."""
        while not self._ended.empty():
            self._settle(*self._ended.get())
        if self._plan is not self._plan_in_use:
            self._change_plan()
        plan = self._plan_in_use
        waiting = self._outbox.waiting(self.target, _MOST_WAITING)
        if lost := [entry for entry in waiting if entry.message is None]:
            self._give_up(lost, Outcome.EXPIRED)
            return 0.0
        if self.target not in plan.senders:
            self._expire(plan.retry_for)
            return _IDLE_SECONDS
        try:
            backlog = self._opened().backlog
        except Exception:  # noqa: BLE001  # the attempt reports it
            backlog = Backlog.DIGEST
        items = [Item(one.key, one.sequence, one.message.severity) for one in waiting if one.message]
        turn = self._schedule.next(items, backlog)
        if turn.items:
            self._begin(turn, waiting)
            return 0.0
        return _IDLE_SECONDS if turn.delay is None else min(turn.delay, _IDLE_SECONDS)

    def _change_plan(self) -> None:
        self._plan_in_use = self._plan
        self._sender = None
        self._schedule.reset()
        self._delivered_to.clear()
        if self.target not in self._plan_in_use.senders:
            self._health.clear(DegradedReason.NOTIFICATIONS_FAILING, self.target)

    def _opened(self) -> Sender:
        if self._sender is None:
            self._sender = self._plan_in_use.senders[self.target]()
        return self._sender

    def _begin(self, turn: Turn, waiting: Sequence[Waiting]) -> None:
        by_id = {(entry.key, entry.sequence): entry for entry in waiting}
        items = turn.items[:_MOST_IN_DIGEST] if turn.digest else turn.items
        entries = [by_id[item.id] for item in items]
        try:
            sender = self._opened()
            rendered, count = self._write(turn, entries, sender.body_limit)
        except Exception as error:  # noqa: BLE001  # an error in one message must not block the others
            self._ended.put((self._attempt(turn, entries), _broken(error)))
            return
        attempt = self._attempt(turn, entries[:count])
        delivered_to = self._delivered_to.setdefault(attempt.ids, set())
        self._start(f"deliver to {self.target}", partial(self._run, attempt, sender, rendered, delivered_to))

    def _attempt(self, turn: Turn, entries: Sequence[Waiting]) -> Attempt:
        ids = tuple((entry.key, entry.sequence) for entry in entries)
        self._schedule.begun(ids, digest=turn.digest)
        return Attempt(ids, entries, turn.digest, self._plan_in_use)

    def _run(self, attempt: Attempt, sender: Sender, rendered: Rendered, delivered_to: set[str]) -> None:
        try:
            delivery = sender.send(rendered, delivered_to)
        except Exception as error:  # noqa: BLE001  # an attempt without an end would block its event
            delivery = _broken(error)
        self._ended.put((attempt, delivery))
        self._loop.wake()

    def _write(self, turn: Turn, entries: Sequence[Waiting], limit: int | None) -> tuple[Rendered, int]:
        now, renderer = self._clock.now(), self._plan_in_use.renderer()
        messages = [self._outbox.as_of_now(message) for message in _messages(entries)]
        if turn.digest:
            return renderer.digest(messages, now, limit=limit)
        message = messages[-1]
        late = (now - message.at).total_seconds() > LATE_SECONDS
        rendered = renderer.render(message, now, limit=limit, late=late)
        # A digest belongs to several traces, and a message about the watch to none.
        traceparent = self._tracer.traceparent(message) if isinstance(message, Message) else ""
        return rendered.about(message, traceparent), len(entries)

    def _settle(self, attempt: Attempt, delivery: Delivery) -> None:
        if delivery.delivered:
            self._schedule.delivered(attempt.ids)
            self._succeeded(attempt, skipped=delivery.skipped)
            return
        self._counts.failed(self.target)
        if attempt.plan is not self._plan or self._loop.stopping:
            self._schedule.dropped(attempt.ids)
            return
        self._schedule.failed(attempt.ids, delivery.failure)
        self._failed(attempt, delivery)
        self._expire(attempt.plan.retry_for)

    def _succeeded(self, attempt: Attempt, *, skipped: bool) -> None:
        now = self._clock.now()
        self._delivered_to.pop(attempt.ids, None)
        if skipped:
            self._outbox.finish(self.target, attempt.entries, now)
            return
        messages = _messages(attempt.entries)
        self._finish(attempt.entries, now, Outcome.DELIVERED)
        delays = [max((now - message.at).total_seconds(), 0.0) for message in messages]
        self._counts.delivered(self.target, delays)
        if not self._schedule.is_failing:
            self._health.clear(DegradedReason.NOTIFICATIONS_FAILING, self.target)
        for message, delay in zip(messages, delays, strict=True):
            log.info("notified", extra=_facts(message) | {"delay_seconds": delay})

    def _failed(self, attempt: Attempt, delivery: Delivery) -> None:
        """Report a failed attempt, and give up messages that were refused or unanswered too often."""
        address = f" ({self._sender.address})" if self._sender else ""
        problem = f"target {self.target}{address}: {delivery.reason}"
        refused = delivery.failure is Failure.REFUSED
        lost: list[Waiting] = []
        # A refused digest is split: the target may reject only one of its messages.
        if not (delivery.failure is Failure.TARGET or (refused and attempt.digest)):
            lost = [one for one in attempt.entries if one.attempts + 1 >= MOST_ATTEMPTS_FOR_ONE]
            self._outbox.count_attempt(self.target, [one for one in attempt.entries if one not in lost])
        if lost:
            problem += f"; {len(lost)} given up after {MOST_ATTEMPTS_FOR_ONE} attempts"
        self._health.report(DegradedReason.NOTIFICATIONS_FAILING, problem, self.target)
        self._give_up(lost, Outcome.REFUSED if refused else Outcome.EXPIRED, delivery.reason)

    def _expire(self, retry_for: float) -> None:
        """Give up messages that are too old; only after a failed attempt, as the clock may jump."""
        now, under_way = self._clock.now(), self._schedule.under_way
        while old := [
            entry
            for entry in self._outbox.waiting(self.target, _MOST_WAITING)
            if entry.message is not None
            and (now - entry.message.at).total_seconds() > retry_for
            and (entry.key, entry.sequence) not in under_way
        ]:
            self._give_up(old, Outcome.EXPIRED)

    def _give_up(self, entries: Sequence[Waiting], outcome: Outcome, reason: str = "too old") -> None:
        if not entries:
            return
        now = self._clock.now()
        self._finish(entries, now, outcome)
        gone = {(entry.key, entry.sequence) for entry in entries}
        self._schedule.given_up(gone)
        self._delivered_to = {ids: who for ids, who in self._delivered_to.items() if gone.isdisjoint(ids)}
        self._counts.given_up(self.target, outcome, len(entries))
        for entry in entries:
            facts: dict[str, object] = {"target": self.target, "event_id": entry.key}
            if entry.message is not None:
                facts = _facts(entry.message) | {"at": entry.message.at, "instance": entry.message.instance}
            log.warning("message given up", extra=facts | {"outcome": outcome.value, "reason": reason})

    def _finish(self, entries: Sequence[Waiting], at: datetime, outcome: Outcome) -> None:
        spans: list[Span] = []
        for message in _messages(entries):
            if isinstance(message, Message):
                spans += self._tracer.notified(message, at, outcome)
        self._outbox.finish(self.target, entries, at, outcome=outcome, spans=spans)
        self._tracer.wake()

    def _report_error(self, error: Exception) -> float:
        problem = f"target {self.target}: {type(error).__name__} in this program"
        self._health.report(DegradedReason.NOTIFICATIONS_FAILING, problem, self.target)
        log.debug("a worker failed", exc_info=error)
        return _ERROR_SECONDS


def _broken(error: Exception) -> Delivery:
    # No traceback: its text may contain a URL or a token.
    return Delivery(delivered=False, reason=f"{type(error).__name__} in this program")


def _messages(entries: Sequence[Waiting]) -> list[AnyMessage]:
    return [entry.message for entry in entries if entry.message is not None]


def _facts(message: AnyMessage) -> dict[str, object]:
    facts: dict[str, object] = {"target": message.target, "transition": message.transition.value}
    if isinstance(message, Message):
        facts |= {
            "event_id": message.event.id,
            "trace_id": trace_id(message.event.id),
            "event_type": message.event.type,
        }
    return facts
