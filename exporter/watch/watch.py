"""A poll: fetch the document, find the transitions, record them, publish the snapshot.

`exporter.watch.poller` runs it on a thread.
"""

import logging
import platform
import queue
from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec.structs import replace

from exporter.clock import Clock
from exporter.config import Config
from exporter.config.match import Match
from exporter.errors import ImdsError, PollOutcome
from exporter.health import DegradedReason, Health
from exporter.hooks.runner import HookRunner
from exporter.imds import ImdsClient
from exporter.metrics import Metrics
from exporter.model.advance import advance
from exporter.model.documents import Defect, Document, decode_document
from exporter.model.events import trace_id
from exporter.model.jobs import Finding, Pause, note, note_pause
from exporter.model.lifecycle import Known, Occurrence, Step
from exporter.model.messages import Outage, WatchChange
from exporter.model.views import Snapshot
from exporter.notifications.notifier import Notifier
from exporter.state import Store
from exporter.tracing import Tracer

log = logging.getLogger(__name__)

_NAME_RETRY_SECONDS = 10.0
# If the name is configured, the other facts are only for labels and messages.
_FACTS_RETRY_SECONDS = 300.0
# If the request for the facts is slow, most of the time must remain for polling.
_NAME_PATIENCE = 9.0
# After a crash, the age of the last success decides how ended events are judged; some minutes do not matter.
_NOTE_SUCCESS_SECONDS = 900.0


class Watch:
    """The watch of one VM, poll by poll; used by one thread.

    Any thread may read its `snapshot`, and put findings into its `inbox`.
    """

    def __init__(  # noqa: PLR0913  # it is built in one place, by names
        self,
        *,
        store: Store,
        notifier: Notifier,
        metrics: Metrics,
        tracer: Tracer,
        hooks: HookRunner,
        look_for_approvals: Callable[[], None],
        watch_for_pauses: Callable[[bool], None],
        health: Health,
        clock: Clock,
        known: Known,
    ) -> None:
        self._store = store
        self._notifier = notifier
        self._metrics = metrics
        self._tracer = tracer
        self._hooks = hooks
        self._look_for_approvals = look_for_approvals
        self._watch_for_pauses = watch_for_pauses
        self._health = health
        self._clock = clock
        # The current outage, if it was reported; the time of the last valid document, or of the start.
        self._outage = store.outage
        self._valid_at, self._valid_since = clock.monotonic(), clock.now()
        self.inbox: queue.SimpleQueue[Finding | Pause] = queue.SimpleQueue()
        # The newest document, as bytes and decoded; ``_body`` is None if it has to be processed again.
        self._body: bytes | None = None
        self._document: Document | None = None
        self._was_named = False
        self._defects: frozenset[Defect] = frozenset()
        self._vm_due = clock.monotonic()
        self._note_success_at = clock.monotonic()
        self.snapshot = Snapshot()
        self._publish(known)

    def configure(self, settings: Config, endpoint: str) -> None:
        """Apply a configuration; a name from IMDS is kept if none is configured."""
        self.snapshot = replace(
            self.snapshot,
            endpoint=endpoint,
            all_events=settings.metrics.events == "all",
            resources=settings.metrics.resources,
            poll_interval=settings.imds.poll_interval,
        )
        vm = self.snapshot.vm
        name = settings.instance.name or (vm.name if vm else "")
        if name:
            self._use_name(name)

    def poll(self, imds: ImdsClient) -> PollOutcome:
        """Fetch the document once and process it.

        Returns:
            the outcome; failures of IMDS or of the disk are not raised.
        """
        started = self._clock.monotonic()
        try:
            body = imds.fetch()
            document = self._document if body == self._body else decode_document(body)
        except ImdsError as error:
            self._metrics.polled(error.reason, self._clock.monotonic() - started)
            self._fail(error)
            return error.reason
        self._metrics.polled(PollOutcome.SUCCESS, self._clock.monotonic() - started)
        self._learn_vm(imds)
        self.record_findings()
        if document is not None and (body != self._body or self.known.has_untold):
            self._take(document)
            self._body, self._document = body, document
        self._succeed()
        self._store.retry()
        return PollOutcome.SUCCESS

    def record_findings(self) -> None:
        """Record the findings of workers, whether or not IMDS answers.

        Those left by a previous process wait for this VM's name, which the first poll requests.
        """
        for _ in range(self.inbox.qsize()):
            finding, instance = self.inbox.get(), self.snapshot.instance
            if isinstance(finding, Pause):
                step = note_pause(self.known, finding)
            else:
                instance = instance or finding.instance
                if instance is None and not self.snapshot.ready:
                    self.inbox.put(finding)
                    continue
                step = note(self.known, finding, instance)
            if step is not None:
                self._settle(step, self._clock.now(), instance)

    def _take(self, document: Document) -> None:
        self._note_defects(document.defects)
        now, instance = self._clock.now(), self.snapshot.instance
        watching = self._document is not None
        step = advance(self.known, document, now, instance=instance, watching=watching, named=self._was_named)
        self._was_named = instance is not None
        self._settle(step, now, instance)

    def _settle(self, step: Step, now: datetime, instance: str | None) -> None:
        """Record a step with its jobs, publish it, and wake the workers."""
        jobs = self._hooks.compose(step.hookable, instance, now)
        messages = self._notifier.plan.compose(step.occurrences, instance, now, self.snapshot.vm)
        traced = self._tracer.compose(step.occurrences, instance)
        self._store.record(step, messages, jobs, traced)
        self._publish(step.known)
        if step.occurrences:
            self._notifier.wake()
            self._tracer.wake()
        if jobs:
            self._hooks.wake()
        self._look_for_approvals()
        self._look_for_pauses()
        for occurrence in step.occurrences:
            if self.snapshot.has_series(occurrence.tracked):
                self._metrics.happened(occurrence)
            _log(occurrence, instance)

    def _publish(self, known: Known) -> None:
        self.known = known
        self.snapshot = replace(
            self.snapshot,
            incarnation=known.incarnation,
            current=tuple(reversed(known.current.values())),
            past=tuple(reversed(known.past.values())),
        )

    def _look_for_pauses(self) -> None:
        self._watch_for_pauses(bool(self.snapshot.under_way()))

    def _note_defects(self, defects: Sequence[Defect]) -> None:
        fresh = [defect for defect in defects if defect not in self._defects]
        self._defects = frozenset(defects)
        self._metrics.misunderstood(len(fresh))
        for defect in fresh:
            log.warning("event could not be decoded", extra={"problem": defect.message, "lost": defect.lost})
        if defects:
            more = f" (and {len(defects) - 1} more)" if len(defects) > 1 else ""
            self._health.report(DegradedReason.INVALID_EVENT, defects[0].message + more)
        else:
            self._health.clear(DegradedReason.INVALID_EVENT)

    def _learn_vm(self, imds: ImdsClient) -> None:
        """Request the facts about this VM from IMDS, until they and the name are known."""
        known = self.snapshot.instance is not None
        if (known and self.snapshot.vm is not None) or self._clock.monotonic() < self._vm_due:
            return
        asked = self._clock.monotonic()
        try:
            vm, reason = imds.instance(), "compute.name is empty"
        except ImdsError as error:
            reason = str(error)
        else:
            self.snapshot = replace(self.snapshot, vm=vm)
            if vm.name and not known:
                self._use_name(vm.name)
        answered = self._clock.monotonic()
        pause = _FACTS_RETRY_SECONDS if known else _NAME_RETRY_SECONDS
        self._vm_due = answered + max(pause, _NAME_PATIENCE * (answered - asked))
        if self.snapshot.instance is None:
            self._health.report(
                DegradedReason.INSTANCE_UNKNOWN,
                f"IMDS does not return this VM's name ({reason}): all events count as its own; "
                "set instance.name",
            )

    def _use_name(self, name: str) -> None:
        self._health.clear(DegradedReason.INSTANCE_UNKNOWN)
        if name != self.snapshot.instance:
            self.snapshot = replace(self.snapshot, instance=name)
            # The targets of the newest document's events have to be determined again.
            self._body = None
            self._look_for_pauses()

    def _succeed(self) -> None:
        now = self._clock.now()
        seen = self.snapshot
        if not seen.up:
            log.info("IMDS answers", extra={"endpoint": seen.endpoint, "instance": seen.instance})
        self.known = replace(self.known, last_success=now)
        if self._clock.monotonic() >= self._note_success_at:
            self._note_success_at = self._clock.monotonic() + _NOTE_SUCCESS_SECONDS
            self._store.note_last_success(now)
        if self._outage is not None:
            self._change_outage(WatchChange.RECOVERED, self._outage, None)
        self._valid_at, self._valid_since = self._clock.monotonic(), now
        self.snapshot = replace(self.snapshot, up=True, ready=True, last_success=now, last_error="")

    def _fail(self, error: ImdsError) -> None:
        message = str(error)
        if self.snapshot.up or self.snapshot.last_error != message:
            log.warning("poll failed", extra={"reason": error.reason.value, "error": message})
        self.snapshot = replace(self.snapshot, up=False, last_error=message)
        blind = self._clock.monotonic() - self._valid_at
        if self._outage is None and blind >= self._notifier.plan.blind_after:
            outage = Outage(self._valid_since, f"watch/{self.snapshot.instance or platform.node()}")
            self._change_outage(WatchChange.BLIND, outage, outage)
        self._store.retry()

    def _change_outage(self, change: WatchChange, outage: Outage, lasting: Outage | None) -> None:
        """Record that an outage of the watch begins or ends, with messages about it."""
        now = self._clock.now()
        messages = self._notifier.plan.compose_watch(change, outage, now, self.snapshot)
        self._outage = lasting
        self._store.record_outage(lasting, messages)
        self._notifier.wake()
        log.warning(change.value, extra={"since": outage.since, "error": self.snapshot.last_error})


def _log(occurrence: Occurrence, instance: str | None) -> None:
    event = occurrence.tracked.event
    facts = {
        "transition": occurrence.transition.value,
        "event_id": event.event_id,
        "trace_id": trace_id(occurrence.tracked.ids[0]),
        "event_type": event.event_type,
        "event_status": event.event_status,
        "event_source": event.event_source,
        "resource_type": event.resource_type,
        "target": occurrence.tracked.target.value,
        "instance": instance,
        "resources": event.resources,
        "not_before": event.not_before,
        "duration_seconds": event.duration_seconds,
        "description": event.description,
        "first_seen": occurrence.tracked.first_seen,
        "started": occurrence.tracked.started,
        "impact_seconds": None if occurrence.impact is None else occurrence.impact.total_seconds(),
    }
    if occurrence.detail:
        facts["detail"] = occurrence.detail
    for change in occurrence.changes:
        facts[f"old_{change.field}"] = change.old
    log.info("transition", extra=facts)


def out_of_service(snapshot: Snapshot, match: Match, now: datetime) -> str:
    """Return the reason why this VM should get no new work; "" while it may.

    There is none before the first valid document of this process, nor while the VM's name is unknown.
    """
    if not snapshot.ready or snapshot.instance is None:
        return ""
    for tracked in snapshot.current:
        event = tracked.event
        if match.holds(event, target=tracked.target, now=now):
            return f"{event.event_type} {event.event_id} is {event.event_status}"
    return ""
