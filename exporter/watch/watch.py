"""One poll after another: ask IMDS, understand, remember, publish.

`Watch` is what a single poll does, without a thread, so that tests can drive it; `exporter.watch.poller`
has the thread.
"""

import logging
from collections.abc import Sequence
from datetime import datetime

import msgspec

from exporter.clock import Clock
from exporter.config import Config
from exporter.errors import ImdsError, PollOutcome
from exporter.health import Health, Trouble
from exporter.metrics import Metrics
from exporter.model.advance import advance, approve
from exporter.model.events import Defect, Document, decode_document, trace_id
from exporter.model.lifecycle import Known, Occurrence, Step
from exporter.model.snapshot import Snapshot
from exporter.watch.ports import Approvals, Hooks, Imds, Memory, Pauses, Teller, Traces

log = logging.getLogger(__name__)

_NAME_RETRY_SECONDS = 10.0
# Where asking for the name takes long, polling must still get most of the time.
_NAME_PATIENCE = 9.0
# After a crash, the age of the last success decides what its events' ends prove; minutes more or less do not.
_NOTE_SUCCESS_SECONDS = 900.0


class Watch:
    """The watch of one VM, poll by poll; used by one thread, its `snapshot` read by any."""

    def __init__(  # noqa: PLR0913  # it is built in one place, by names
        self,
        *,
        memory: Memory,
        teller: Teller,
        metrics: Metrics,
        tracer: Traces,
        hooks: Hooks,
        approvals: Approvals,
        pauses: Pauses,
        health: Health,
        clock: Clock,
        known: Known,
    ) -> None:
        self._memory = memory
        self._teller = teller
        self._metrics = metrics
        self._tracer = tracer
        self._hooks = hooks
        self._approvals = approvals
        self._pauses = pauses
        self._health = health
        self._clock = clock
        self._known = known
        # The newest document, as sent and as read; ``_body`` is None where it has to be taken in again.
        self._body: bytes | None = None
        self._document: Document | None = None
        self._defects: frozenset[Defect] = frozenset()
        self._name_due = clock.monotonic()
        self._given_name: str | None = None
        self._note_success_at = clock.monotonic()
        self.snapshot = Snapshot(
            incarnation=known.incarnation,
            current=tuple(reversed(known.current.values())),
            past=tuple(reversed(known.past.values())),
        )

    @property
    def known(self) -> Known:
        """What the last valid document left known."""
        return self._known

    def configure(self, settings: Config, endpoint: str) -> None:
        """Take over a configuration; a name that IMDS gave stays where none is configured."""
        self.snapshot = msgspec.structs.replace(
            self.snapshot,
            endpoint=endpoint,
            metrics=settings.metrics,
            poll_interval=settings.imds.poll_interval,
        )
        self._use_name(settings.instance.name or self._given_name)
        self._look_for_pauses()

    def poll(self, imds: Imds) -> PollOutcome:
        """Ask IMDS once, and take its answer into account.

        Returns:
            how it went; no failure of IMDS or of the disk is raised.
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
        self._learn_name(imds)
        self._note_approvals()
        if document is not None and (body != self._body or self._known.has_untold):
            self._take(document)
            self._body, self._document = body, document
        self._succeed()
        self._memory.retry()
        return PollOutcome.SUCCESS

    def _take(self, document: Document) -> None:
        self._note_defects(document.defects)
        now = self._clock.now()
        watching = self._document is not None
        step = advance(self._known, document, now, instance=self.snapshot.instance, watching=watching)
        self._settle(step, now)

    def _note_approvals(self) -> None:
        for approval in self._approvals.take_sent():
            step = approve(self._known, approval.key, approval.sent or approval.decided)
            if step is not None:
                self._settle(step, self._clock.now())

    def _settle(self, step: Step, now: datetime) -> None:
        """Write a step down, publish it, and have done what it asks for."""
        instance = self.snapshot.instance
        jobs = self._hooks.compose(step.hookable, instance, now)
        self._memory.record(step, self._teller.compose(step.occurrences, instance, now), jobs)
        self._known = step.known
        self.snapshot = msgspec.structs.replace(
            self.snapshot,
            incarnation=step.known.incarnation,
            current=tuple(reversed(step.known.current.values())),
            past=tuple(reversed(step.known.past.values())),
        )
        if step.occurrences:
            self._teller.wake()
        if jobs:
            self._hooks.wake()
        self._approvals.wake()
        self._look_for_pauses()
        for occurrence in step.occurrences:
            if self.snapshot.has_series(occurrence.tracked):
                self._metrics.happened(occurrence)
                self._tracer.happened(occurrence, self.snapshot.instance)
            _log(occurrence, self.snapshot)

    def _look_for_pauses(self) -> None:
        self._pauses.watch(active=bool(self.snapshot.under_way()))

    def _note_defects(self, defects: Sequence[Defect]) -> None:
        fresh = [defect for defect in defects if defect not in self._defects]
        self._defects = frozenset(defects)
        self._metrics.misunderstood(len(fresh))
        for defect in fresh:
            log.warning("event not understood", extra={"problem": defect.message, "lost": defect.lost})
        if defects:
            more = f" (and {len(defects) - 1} more)" if len(defects) > 1 else ""
            self._health.report(Trouble.INVALID_EVENT, defects[0].message + more)
        else:
            self._health.clear(Trouble.INVALID_EVENT)

    def _learn_name(self, imds: Imds) -> None:
        if self.snapshot.instance is not None or self._clock.monotonic() < self._name_due:
            return
        asked = self._clock.monotonic()
        try:
            name = imds.instance().name
        except ImdsError as error:
            reason = str(error)
        else:
            reason = "compute.name is empty"
            if name:
                self._given_name = name
                self._use_name(name)
                self._look_for_pauses()
                return
        answered = self._clock.monotonic()
        self._name_due = answered + max(_NAME_RETRY_SECONDS, _NAME_PATIENCE * (answered - asked))
        self._health.report(
            Trouble.INSTANCE_UNKNOWN,
            f"IMDS does not return this VM's name ({reason}): all events count as its own; set instance.name",
        )

    def _use_name(self, name: str | None) -> None:
        if name is None:
            return
        self._health.clear(Trouble.INSTANCE_UNKNOWN)
        if name != self.snapshot.instance:
            self.snapshot = msgspec.structs.replace(self.snapshot, instance=name)
            # Whom the newest document affects is to be found out anew.
            self._body = None

    def _succeed(self) -> None:
        now = self._clock.now()
        if not self.snapshot.up:
            facts = {"endpoint": self.snapshot.endpoint, "instance": self.snapshot.instance}
            log.info("IMDS answers", extra=facts)
        self._known = msgspec.structs.replace(self._known, last_success=now)
        if self._clock.monotonic() >= self._note_success_at:
            self._note_success_at = self._clock.monotonic() + _NOTE_SUCCESS_SECONDS
            self._memory.note_last_success(now)
        self.snapshot = msgspec.structs.replace(
            self.snapshot, up=True, ready=True, last_success=now, last_error=""
        )

    def _fail(self, error: ImdsError) -> None:
        message = str(error)
        if self.snapshot.up or self.snapshot.last_error != message:
            log.warning("poll failed", extra={"reason": error.reason.value, "error": message})
        self.snapshot = msgspec.structs.replace(self.snapshot, up=False, last_error=message)
        self._memory.retry()


def _log(occurrence: Occurrence, snapshot: Snapshot) -> None:
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
        "instance": snapshot.instance,
        "resources": event.resources,
        "not_before": event.not_before,
        "duration_seconds": event.duration_seconds,
        "description": event.description,
        "first_seen": occurrence.tracked.first_seen,
        "started": occurrence.tracked.started,
        "impact_seconds": None if occurrence.impact is None else occurrence.impact.total_seconds(),
    }
    for change in occurrence.changes:
        facts[f"old_{change.field}"] = change.old
    log.info("transition", extra=facts)
