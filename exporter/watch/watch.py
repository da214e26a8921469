"""A poll: fetch the document, find the transitions, record them, publish the snapshot.

`exporter.watch.poller` runs it on a thread.
"""

import hashlib
import logging
import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from exporter.approval.approver import Approver
from exporter.clock import Clock, ahead, moment
from exporter.config import Config
from exporter.errors import ImdsError, PollOutcome
from exporter.health import DegradedReason, Health
from exporter.hooks.runner import HookRunner
from exporter.imds.client import ImdsClient
from exporter.imds.refusals import FORBIDDEN
from exporter.inbox import Inbox, Report
from exporter.kubernetes.loop import NodeLoop
from exporter.metrics import Metrics
from exporter.model.advance import WATCHED, advance
from exporter.model.documents import Document, decode_document
from exporter.model.events import normal_name
from exporter.model.imminent import next_imminent, pass_time
from exporter.model.jobs import Attempt, Finding, note, note_clock_set, note_pause
from exporter.model.lifecycle import Known, Step
from exporter.model.views import Snapshot, UnannouncedPause, by_urgency
from exporter.notifications.notifier import Notifier
from exporter.otlp import Tracer
from exporter.state.store import Store
from exporter.watch.defects import Defects
from exporter.watch.facts import Facts
from exporter.watch.logged import log_transition, note_dropped, started_facts
from exporter.watch.outages import Outages

log = logging.getLogger(__name__)

# Rules depend on the time of day and on the time left, so they are evaluated this often.
_LOOK_SECONDS = 1.0
_EVENTFUL_SECONDS = 0.2


class Watch:
    """The watch of one VM, poll by poll; used by one thread. Any thread may read its `snapshot`."""

    def __init__(  # noqa: PLR0913  # it is built in one place, by names
        self,
        *,
        store: Store,
        notifier: Notifier,
        metrics: Metrics,
        tracer: Tracer,
        hooks: HookRunner,
        approver: Approver,
        node: NodeLoop,
        inbox: Inbox,
        health: Health,
        clock: Clock,
        known: Known,
    ) -> None:
        self._store = store
        self._notifier = notifier
        self._metrics = metrics
        self._tracer = tracer
        self._hooks = hooks
        self._approver = approver
        self._node = node
        self._inbox = inbox
        self._health = health
        self._clock = clock
        self._outages = Outages(store, notifier, tracer, clock)
        # Findings of a previous process, until this VM's name is known.
        self._unrecorded: list[Report] = []
        # A digest of the newest document; None if it has to be processed again.
        self._digest: bytes | None = None
        self._document: Document | None = None
        self._was_named = False
        self._thresholds: Sequence[float] = ()
        # By how many seconds the wall clock is ahead of the monotonic clock.
        self._ahead: float | None = None
        # When the next event becomes imminent.
        self._imminent_at: datetime | None = None
        self._defects = Defects(metrics, health)
        self._facts = Facts(clock)
        self.snapshot = Snapshot()
        self._publish(known)

    def configure(self, settings: Config, imds: ImdsClient) -> None:
        """Apply a configuration and its client; a name from IMDS is kept if none is configured."""
        self._approver.configure(settings, imds)
        self._configured_name = settings.instance.name
        if imds.endpoint != self.snapshot.endpoint or not self._facts.is_current:
            self._facts.renew()
        self._thresholds = settings.events.imminent
        self._publish(self.known)
        self.snapshot = replace(
            self.snapshot,
            endpoint=imds.endpoint,
            api_version=imds.api_version,
            all_events=settings.metrics.events == "all",
            resources=settings.metrics.resources,
            poll_interval=settings.imds.poll_interval,
        )
        self._facts.tags = settings.metrics.tags
        self._show_vm()
        # What is shown follows the new rules even if IMDS takes long to answer.
        self._approver.look(self.snapshot)

    def poll(self, imds: ImdsClient) -> ImdsError | None:
        """Fetch the document once and process it.

        Returns:
            the failure of IMDS, None after a success; those of the disk are neither returned nor raised.
        """
        started = self._clock.monotonic()
        try:
            body = imds.fetch()
            digest = hashlib.sha256(body).digest()
            instance = self.snapshot.instance
            document = self._document if digest == self._digest else decode_document(body, instance)
        except ImdsError as error:
            seconds = self._clock.monotonic() - started
            self._metrics.polled(error.reason, seconds)
            self._fail(error)
            self._tell_imminent()
            self._approver.poll_failed(str(error), seconds)
            return error
        self._metrics.polled(PollOutcome.SUCCESS, self._clock.monotonic() - started)
        self._approver.note_document()
        if digest != self._digest:
            self._approver.outdate()
        if imds.api_version != self.snapshot.api_version:
            self.snapshot = replace(self.snapshot, api_version=imds.api_version)
        self._learn_vm(imds)
        self.record_findings()
        self._note_clock()
        if self.snapshot.instance != instance:
            # Of too many events, those of this VM count first.
            document = decode_document(body, self.snapshot.instance)
        if document is not None and (digest != self._digest or self.known.has_untold):
            self._take(document)
            self._digest, self._document = digest, document
        self._succeed()
        self._tell_imminent()
        self._store.retry()
        return None

    def _note_clock(self) -> None:
        """Notice a step of the wall clock since the last poll."""
        before, self._ahead = self._ahead, ahead(self._clock)
        # Smaller steps also correct a clock that stood still while the host paused the VM, see `pauses`.
        if before is not None and abs(self._ahead - before) > WATCHED.total_seconds():
            self._settle(note_clock_set(self.known), self.snapshot.instance)

    def approve(self) -> None:
        """Send the approvals that are due by the document that has just been fetched."""
        self._approver.look(self.snapshot, fresh=True)

    def look(self) -> bool:
        """Do what is due by the time alone; return whether approvals need a fresh document now."""
        self._tell_imminent()
        return self._approver.look(self.snapshot)

    def paused(self, seconds: float) -> None:
        """Record that this VM stood still for some seconds until now."""
        now, seen = self._clock.now(), self.snapshot
        # The poll after a pause may have found that the event is gone.
        lives = seen.under_way(since=now - timedelta(seconds=seconds + 1))
        if lives:
            self._settle(note_pause(self.known, lives, seconds), seen.instance)
        else:
            self.snapshot = replace(seen, last_pause=UnannouncedPause(now, seconds))
            self._metrics.unannounced_pause(seconds)
            self._tracer.paused(seconds, now)
        for event_type in sorted({life.event.event_type for life in lives}):
            self._metrics.paused(event_type, seconds)
        log.info("pause", extra={"seconds": seconds, **started_facts(lives)})

    def clock_set(self, seconds: float) -> None:
        """Log that the wall clock was set forward during an event, the only sign of some pauses."""
        lives = self.snapshot.under_way()
        if lives:
            log.info("clock set forward", extra={"seconds": seconds, **started_facts(lives)})

    @property
    def patience(self) -> float:
        """The seconds within which `look` is to be called again."""
        patience = _LOOK_SECONDS if self._approver.is_pending else math.inf
        if self.is_eventful:
            # Pauses are measured up to this much too short.
            patience = _EVENTFUL_SECONDS
        left = (self._imminent_at - self._clock.now()).total_seconds() if self._imminent_at else 0.0
        return min(patience, left) if left > 0 else patience

    def _tell_imminent(self) -> None:
        if self._imminent_at is None or (now := self._clock.now()) < self._imminent_at:
            return
        seen = self.snapshot
        # After a start IMDS is asked first. While it fails, an event whose time has passed may be over.
        if seen.ready or seen.last_error:
            step = pass_time(self.known, now, self._thresholds, seen.instance, late=seen.ready)
            self._settle(step, seen.instance)

    def record_findings(self) -> None:
        """Record the findings of workers, whether or not IMDS answers.

        Those left by a previous process wait for this VM's name, which the first poll requests.
        """
        waiting, self._unrecorded = self._unrecorded, []
        for report in [*waiting, *self._inbox.take()]:
            for finding in self._approver.conclude(report) if isinstance(report, Attempt) else (report,):
                self._record(finding)

    def _record(self, finding: Finding) -> None:
        instance = self.snapshot.instance or finding.instance
        if instance is None and not self.snapshot.ready:
            self._unrecorded.append(finding)
        else:
            self._settle(note(self.known, finding, instance), instance)

    def _take(self, document: Document) -> None:
        self._defects.note(document.defects)
        instance = self.snapshot.instance
        step = advance(
            self.known,
            document,
            self._clock.now(),
            instance=instance,
            watching=self._document is not None,
            named=self._was_named,
            thresholds=self._thresholds,
            moment=moment(self._clock),
        )
        self._was_named = instance is not None
        self._settle(step, instance)

    def _settle(self, step: Step | None, instance: str | None) -> None:
        """Record a step with its jobs, publish it, and wake the workers."""
        if step is None:
            return
        # Recording it may take long.
        self._approver.outdate()
        now, told = self._clock.now(), step.occurrences
        jobs = self._hooks.compose(step.hookable, instance, now)
        opened = self._store.outbox.opened({one.life.key for one in told}) if told else {}
        messages = self._notifier.plan.compose(told, instance, now, self.snapshot.vm, opened)
        traced = self._tracer.compose(told)
        self._store.record(step, messages, jobs, traced)
        note_dropped(self._store, self._metrics)
        before = [life.event for life in self.snapshot.current]
        self._publish(step.known)
        if step.occurrences or [life.event for life in self.snapshot.current] != before:
            # Also for what is told later, such as a second postponement within a minute.
            self._node.wake()
        if step.occurrences:
            self._notifier.wake()
            self._tracer.wake()
        if jobs:
            self._hooks.wake()
        for occurrence in step.occurrences:
            if self.snapshot.has_series(occurrence.life):
                self._metrics.happened(occurrence)
            log_transition(occurrence, instance)

    def _publish(self, known: Known) -> None:
        self.known = known
        self._imminent_at = next_imminent(known, self._thresholds)
        self.is_eventful = any(life.event.is_started for life in known.current.values())
        self.snapshot = replace(
            self.snapshot,
            incarnation=known.incarnation,
            current=by_urgency(known.current.values()),
            past=tuple(reversed(known.past.values())),
        )

    def _learn_vm(self, imds: ImdsClient) -> None:
        """Request the facts about this VM from IMDS, until they and the name are known."""
        named = self.snapshot.instance is not None
        if named and self._facts.is_current:
            return
        if not self._facts.learn(imds, named=named):
            return
        self._show_vm()
        error = self._facts.error
        if error is not None and error.status == FORBIDDEN:
            self._health.report(DegradedReason.IMDS_FORBIDDEN, str(error))
        else:
            self._health.clear(DegradedReason.IMDS_FORBIDDEN)
        if self.snapshot.instance is None:
            self._health.report(
                DegradedReason.INSTANCE_UNKNOWN,
                f"IMDS does not return this VM's name ({error or 'compute.name is empty'}): "
                "all events count as its own; set instance.name",
            )

    def _show_vm(self) -> None:
        before, given, told = self.snapshot.instance, self._configured_name, self._facts.name
        name = given or told or None
        self.snapshot = replace(
            self.snapshot,
            vm=self._facts.shown,
            instance=name,
            instance_api_version=self._facts.api_version,
        )
        if name is not None:
            self._health.clear(DegradedReason.INSTANCE_UNKNOWN)
        if given and told and normal_name(given) != normal_name(told):
            self._health.report(
                DegradedReason.INSTANCE_NAME_DIFFERS,
                f"instance.name is {given}, but IMDS calls this VM {told}: events that name {told} count as "
                "those of another VM; remove instance.name",
            )
        else:
            self._health.clear(DegradedReason.INSTANCE_NAME_DIFFERS)
        if name != before:
            # The targets of the newest document's events have to be determined again.
            self._digest = None

    def _succeed(self) -> None:
        now, seen = self._clock.now(), self.snapshot
        if not seen.up:
            log.info("IMDS answers", extra={"endpoint": seen.endpoint, "instance": seen.instance})
        self.known = replace(self.known, last_success=now)
        self._outages.valid(seen)
        self.snapshot = replace(
            self.snapshot, up=True, ready=True, last_success=now, last_error="", last_status=0
        )

    def _fail(self, error: ImdsError) -> None:
        message = str(error)
        if self.snapshot.up or self.snapshot.last_error != message:
            log.warning("poll failed", extra={"reason": error.reason.value, "error": message})
        self.snapshot = replace(self.snapshot, up=False, last_error=message, last_status=error.status)
        self._outages.invalid(self.snapshot)
        self._store.retry()
