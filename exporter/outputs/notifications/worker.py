"""Delivery of messages: a loop for each target has them sent, one at a time, and records the results."""

import logging
import threading
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from exporter import files
from exporter.clock import seconds_since
from exporter.config.addresses import Address
from exporter.config.yamlfile import dotted
from exporter.errors import ConfigurationError
from exporter.health import DegradedReason
from exporter.model.events import trace_id
from exporter.model.messages import AnyMessage, Delivery, Failure, Message, Outcome
from exporter.model.views import TargetView
from exporter.outputs.notifications.outbox import Outbox, QueuedMessage
from exporter.outputs.notifications.planning import Plan
from exporter.outputs.notifications.protocol import Checked, CheckTarget
from exporter.outputs.notifications.schedule import MOST_ATTEMPTS_FOR_ONE, Schedule
from exporter.outputs.notifications.section import reread
from exporter.outputs.notifications.sender import SenderProcess
from exporter.outputs.output import Core
from exporter.state.jobs import End
from exporter.work import Loop

log = logging.getLogger(__name__)

# `wake` makes the worker check the outbox; this finds messages that appear when the disk works again.
_IDLE_SECONDS = 60.0
_ERROR_SECONDS = 20.0
# Failures after which nobody knows whether the message arrived, or it never will: their number is limited.
_GIVEN_UP = {
    Outcome.EXPIRED: "it did not arrive in time, and was given up",
    Outcome.REFUSED: "it was refused, and given up",
}
_LIMITED = (Failure.REFUSED, Failure.UNANSWERED)


class Worker:
    """Delivers the queued messages of one target."""

    def __init__(self, target: str, plan: Plan, core: Core, outbox: Outbox, sender: SenderProcess) -> None:
        self.target = target
        self._plan = self._plan_in_use = plan  # the newest one, and that which the loop follows
        self._outbox, self._sender = outbox, sender
        self._metrics, self._health, self._clock = core.metrics, core.health, core.clock
        self._approval = core.views.approval
        # Messages queued before the start are late: the target, or the exporter, was down.
        is_late = bool(outbox.counts().get(target))
        self._schedule = Schedule(self._clock, recovering=is_late)
        self._remarked: set[str] = set()  # the user's templates whose failure has been logged
        # The state of the target's file whose address is in use.
        self._read: tuple[str, files.Stamp] | None = None
        self._lock = threading.Lock()
        self._started = self._clock.monotonic()
        self.view = TargetView(target)
        self._loop = Loop(f"notify {target}", self.step, failed=self._report_error)

    def follow(self, plan: Plan) -> None:
        """Apply another plan, and try immediately."""
        with self._lock:
            self._plan = plan
        self.wake()

    def wake(self) -> None:
        """Look for messages now; the first ones start the thread, or a file with the address to look at."""
        address = self._plan.addresses.get(self.target)
        if self._outbox.counts().get(self.target) or (address and address.url_file):
            self._loop.start()
        self._loop.wake()

    def stop(self) -> None:
        """Start no further attempts."""
        self._loop.stop()

    def join(self, timeout: float) -> bool:
        """Wait until the attempt in progress is recorded; return whether that was in time."""
        return self._loop.join(timeout)

    def step(self) -> float | None:
        """Make an attempt if one is due; return the seconds until the next step."""
        self._reread()
        if self._plan is not self._plan_in_use:
            self._change_plan()
        plan = self._plan_in_use
        address = plan.addresses.get(self.target)
        if address is None:
            self._expire(plan.retry_for)
            return _IDLE_SECONDS
        with self._outbox.lock:
            # A webhook gets every transition.
            turn = self._schedule.next(self._outbox.lane(self.target), every=bool(address.webhook))
        if turn.messages:
            self._attempt(turn.messages, plan)
            return 0.0
        return _IDLE_SECONDS if turn.delay is None else min(turn.delay, _IDLE_SECONDS)

    def _reread(self) -> None:
        """Use the address that the target's file has by now; if it has no valid one, the former stays."""
        plan, problem = self._plan, ""
        address = plan.addresses.get(self.target)
        if address is not None and address.url_file:
            read = address.url_file, files.stamp(Path(address.url_file))
            if read == self._read:
                return
            try:
                fresh = reread(address)
                if fresh != address:
                    self._use(fresh, plan)
            except ConfigurationError as error:
                problem = str(error)
            # A file that could not be read may become readable without a change.
            self._read = None if problem else read
        if problem:
            problem = f"target {self.target}: {problem}; the former address stays in use"
            self._health.report(DegradedReason.RELOAD_FAILED, problem, self.target)
        else:
            self._health.clear(DegradedReason.RELOAD_FAILED, self.target)

    def _use(self, fresh: Address, plan: Plan) -> None:
        """Change the target's address in a plan, or raise ConfigurationError: Apprise does not accept it."""
        checked = self._sender.ask(CheckTarget(fresh))
        if isinstance(checked, Checked) and checked.problem:
            raise ConfigurationError(f"{dotted(fresh.keys)}: {checked.problem}")
        with self._lock:
            if self._plan is plan:
                self._plan = replace(plan, addresses={**plan.addresses, self.target: fresh})
                log.info("address read again", extra={"target": self.target, "path": fresh.url_file})
        if isinstance(checked, Checked) and not checked.failure:
            plan.incidents[self.target], plan.mails[self.target] = checked.incidents, checked.is_mail

    def _change_plan(self) -> None:
        before, self._plan_in_use = self._plan_in_use, self._plan
        self._schedule.reset(waited=self.target not in before.addresses)
        self._remarked.clear()
        if self._plan_in_use.address(self.target) != before.address(self.target):
            # The results so far say nothing about the new address.
            self.view = TargetView(self.target)
            self._health.clear(DegradedReason.NOTIFICATIONS_FAILING, self.target)

    def _attempt(self, queued: Sequence[QueuedMessage], plan: Plan) -> None:
        """Send the last one of messages, which stands for the others."""
        last = queued[-1].message
        if last is None or any(entry.message is None for entry in queued):
            self._give_up([entry for entry in queued if entry.message is None], Outcome.EXPIRED)
            return
        if unneeded := [entry for entry in queued if self._is_unneeded(entry)]:
            self._outbox.finish([entry.key for entry in unneeded], End(None, self._clock.now()))
            return
        message = self._as_of_now(last)
        request = replace(
            plan.request(self.target, message, self._clock.now()),
            stands_for=tuple(
                (entry.message.transition.value, entry.message.at) for entry in queued[:-1] if entry.message
            ),
            failed=self._schedule.has_failed,
            is_open=self._outbox.is_open(self.target, message.key),
            traceparent=message.traceparent if isinstance(message, Message) else "",
            services=tuple(set.intersection(*(set(entry.letter.services) for entry in queued))),
        )
        begun = self._clock.monotonic()
        answer = self._sender.ask(
            request, failed=self.view.delivers is False, note=partial(self._note, queued, plan)
        )
        delivery = answer if isinstance(answer, Delivery) else Delivery(False)
        self._settle(queued, plan, delivery, self._clock.monotonic() - begun)

    def _note(self, queued: Sequence[QueuedMessage], plan: Plan, service: str) -> None:
        """Record that one of several services has a message, which is not sent to it again."""
        if plan.address(self.target) == self._plan.address(self.target):
            self._outbox.record_attempt(queued, 0, [service])

    def _is_unneeded(self, entry: QueuedMessage) -> bool:
        """Return whether a message only closes an incident, and the target has none open."""
        if entry.message is None or not entry.message.only_closes:
            return False
        may_close = self._plan_in_use.may_know_incidents(self.target)
        return not may_close or self.target not in self._outbox.opened(entry.life_key)

    def _as_of_now(self, message: AnyMessage) -> AnyMessage:
        """Return a message with the end of its event, or, while the event lasts, with its approval."""
        if not isinstance(message, Message) or (life := self._outbox.life(message)) is None:
            return message
        if life.ended is None:
            return replace(message, event=replace(message.event, approval=self._approval(life)))
        event = replace(
            message.event,
            started=life.started,
            ended=life.ended,
            outcome=life.outcome,
            changed_to=life.changed_to,
            left=life.left,
            impact_seconds=life.impact_seconds,
            paused_seconds=life.paused_seconds,
        )
        return replace(message, event=event)

    def _settle(self, sent: Sequence[QueuedMessage], plan: Plan, delivery: Delivery, took: float) -> None:
        self._remark(sent, plan, delivery)
        if delivery.delivered:
            self._schedule.delivered(sent[-1].life_key)
            self._succeeded(sent, skipped=delivery.skipped)
            return
        self._metrics.deliveries.failed(self.target)
        if plan.address(self.target) == self._plan.address(self.target):
            self._outbox.record_attempt(sent, 0, delivery.services)
        if self._is_outdated(plan) or self._loop.stopping:
            return
        self._schedule.failed(sent[-1].life_key, delivery.failure, took, delivery.retry_after or 0.0)
        self._failed(sent, plan, delivery)
        self._expire(plan.retry_for)

    def _is_outdated(self, plan: Plan) -> bool:
        """Return whether a failure by this plan says nothing about the next attempt."""
        new = self._plan
        same_texts = plan.templates.get(self.target) == new.templates.get(self.target)
        return not same_texts or plan.address(self.target) != new.address(self.target)

    def _remark(self, sent: Sequence[QueuedMessage], plan: Plan, delivery: Delivery) -> None:
        """Log, once for each of the user's templates, that it failed."""
        text = "template failed; the default text is used"
        if plan.addresses[self.target].webhook:
            text = "template failed; the CloudEvent is sent"
        for key, reason in delivery.remarks.items():
            if key not in self._remarked:
                self._remarked.add(key)
                facts = {"key": f"templates.{key}", "reason": reason} | _facts(sent[-1])
                log.warning(text, extra=facts)

    def _succeeded(self, sent: Sequence[QueuedMessage], *, skipped: bool) -> None:
        now = self._clock.now()
        if skipped:
            last = sent[-1:]
            # Where the last one opens no incident, one before it may, unless the incident is over.
            is_over = any(entry.message and entry.message.resolves for entry in last)
            self._outbox.finish([entry.key for entry in (sent if is_over else last)], End(None, now))
            return
        sent = self._finish(sent, now, Outcome.DELIVERED)
        self.view = replace(self.view, delivers=True, last_delivery=now)
        delays = [max((now - entry.message.at).total_seconds(), 0.0) for entry in sent if entry.message]
        self._metrics.deliveries.delivered(self.target, delays)
        if not self._schedule.is_failing:
            self._health.clear(DegradedReason.NOTIFICATIONS_FAILING, self.target)
        for entry, delay in zip(sent, delays, strict=True):
            log.info("notified", extra=_facts(entry) | {"delay_seconds": delay})

    def _failed(self, sent: Sequence[QueuedMessage], plan: Plan, delivery: Delivery) -> None:
        """Report a failed attempt, and give up messages that were refused or unanswered too often."""
        now, reason = self._clock.now(), delivery.reason
        self.view = replace(self.view, delivers=False, last_failure=now, last_error=reason)
        problem = f"target {self.target} ({plan.addresses[self.target].label}): {reason}"
        is_refused = delivery.failure is Failure.REFUSED
        lost: list[QueuedMessage] = []
        if delivery.failure in _LIMITED:
            tried = sent[-1:] if is_refused else sent
            self._outbox.record_attempt(tried, 1)
            lost = [entry for entry in tried if entry.letter.attempts >= MOST_ATTEMPTS_FOR_ONE]
        if lost:
            problem += f"; {len(lost)} given up after {MOST_ATTEMPTS_FOR_ONE} attempts"
        self._health.report(DegradedReason.NOTIFICATIONS_FAILING, problem, self.target)
        self._give_up(lost, Outcome.REFUSED if is_refused else Outcome.EXPIRED, delivery.reason)

    def _expire(self, retry_for: float) -> None:
        """Drop messages that have waited too long; steps of the wall clock do not count."""
        with self._outbox.lock:
            waiting = list(self._outbox.lane(self.target).queue.values())
        self._give_up([entry for entry in waiting if self._waited(entry) > retry_for], Outcome.EXPIRED)

    def _waited(self, queued: QueuedMessage) -> float:
        """Return for how many seconds a message has certainly waited: at least since this process began."""
        age = seconds_since(queued.record.queued, self._clock)
        return self._clock.monotonic() - self._started if age is None else age

    def _give_up(self, queued: Sequence[QueuedMessage], outcome: Outcome, reason: str = "too old") -> None:
        if not queued:
            return
        self._schedule.given_up(queued)
        queued = self._finish(queued, self._clock.now(), outcome)
        self._metrics.deliveries.given_up(self.target, outcome, len(queued))
        for entry in queued:
            facts = _facts(entry) | {"outcome": outcome.value, "reason": reason}
            if entry.message is not None:
                facts |= {"at": entry.message.at, "instance": entry.message.instance}
            log.warning("message given up", extra={"target": self.target, "event_id": entry.life_key} | facts)

    def _finish(
        self, queued: Sequence[QueuedMessage], at: datetime, outcome: Outcome
    ) -> Sequence[QueuedMessage]:
        """Record that messages are done; return them without those that were dropped, and counted, before."""
        end = End(outcome, at, problem=_GIVEN_UP.get(outcome, ""))
        self._outbox.finish([entry.key for entry in queued], end)
        with self._outbox.lock:
            return [entry for entry in queued if entry.key in self._outbox.entries]

    def _report_error(self, error: Exception) -> float:
        problem = f"target {self.target}: {type(error).__name__} in this program"
        self._health.report(DegradedReason.NOTIFICATIONS_FAILING, problem, self.target)
        log.debug("a worker failed", exc_info=error)
        return _ERROR_SECONDS


def _facts(queued: QueuedMessage) -> dict[str, object]:
    message = queued.message
    if message is None:
        return {}
    facts: dict[str, object] = {"target": message.target, "transition": message.transition.value}
    if isinstance(message, Message):
        event = message.event
        facts |= {"event_id": event.id, "trace_id": trace_id(event.id), "event_type": event.type}
    return facts
