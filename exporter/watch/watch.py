"""A poll: fetch the document, find the transitions, record them, publish the snapshot.

Beside it: what IMDS tells about this VM, defects of documents, outages of the watch, and the log lines about
events. `exporter.watch.poller` runs it on a thread.
"""

import hashlib
import logging
import math
import platform
import socket
from collections.abc import Sequence
from datetime import datetime, timedelta
from http import HTTPStatus

from msgspec.structs import replace

from exporter.clock import Clock, Moment, ahead, moment, seconds_since
from exporter.config import Config
from exporter.config.match import Match
from exporter.errors import ImdsError, PollOutcome
from exporter.health import DegradedReason, Health
from exporter.imds.client import ImdsClient
from exporter.metrics import Metrics
from exporter.model.advance import WATCHED, advance, next_imminent, pass_time
from exporter.model.documents import Defect, Document, decode_document
from exporter.model.events import normal_name, trace_id
from exporter.model.facts import OutageFact, PauseFact
from exporter.model.lifecycle import Occurrence, Step, Transition, WatchState
from exporter.model.messages import Outage, WatchChange, severity_of
from exporter.model.reports import record_clock_set, record_pause, record_report
from exporter.model.views import Snapshot, UnannouncedPause, by_urgency
from exporter.model.vm import VirtualMachine
from exporter.outputs.output import Core, Decider, Output
from exporter.state.store import Store

log = logging.getLogger(__name__)


def out_of_service(snapshot: Snapshot, match: Match, now: datetime) -> str:
    """Return the reason why this VM should get no new work; "" while it may.

    There is none before the first valid document of this process, nor while the VM's name is unknown. A
    recommendation is one only if the match names its type.
    """
    if not snapshot.ready or snapshot.instance is None:
        return ""
    for life in snapshot.current:
        event = life.event
        counts = not event.is_advice or match.event_types is not None
        if counts and match.holds(event, target=life.target, now=now):
            return f"{event.event_type} {event.event_id} is {event.event_status}"
    return ""


def host_name(seen: Snapshot) -> str:
    """Return what identifies this VM in records that are not about an event."""
    return normal_name(seen.instance or seen.host)


# After a crash, the age of the last success decides how ended events are judged; some minutes do not matter.
_RECORD_SECONDS = 900.0
# While an event can start, that age also decides whether its start was watched, which is a matter of 30 s.
_RECORD_PENDING_SECONDS = 10.0


class Outages:
    """Reports that an outage begins or ends, once each, also across restarts; used by one thread.

    The time of the last valid document is recorded at intervals, and when polls begin to fail, so that an
    outage continues across restarts within one boot.
    """

    def __init__(self, store: Store, outputs: Sequence[Output], clock: Clock) -> None:
        self._store = store
        self._outputs = outputs
        self._clock = clock
        self.after = math.inf  # for how many seconds there is no valid document before that is an outage
        # When the last document was valid, and when that was last recorded, on the monotonic clock.
        self._valid_at = clock.monotonic() - (seconds_since(store.progress.failing, clock) or 0.0)
        self._recorded_at = -math.inf

    def valid(self, seen: Snapshot, vm: VirtualMachine) -> None:
        """Record a valid document, which ends an outage; ``seen`` is what was known before it.

        ``vm`` is what IMDS has told about this VM.
        """
        store, outage = self._store, self._store.progress.outage
        if outage is not None:
            self._change(WatchChange.RECOVERED, outage, seen)
        self._valid_at = self._clock.monotonic()
        is_pending = any(life.event.is_scheduled for life in seen.current)
        pause = _RECORD_PENDING_SECONDS if is_pending else _RECORD_SECONDS
        is_due = self._valid_at - self._recorded_at >= pause
        if is_due or store.progress.failing is not None or (vm.name and vm.name != store.certain_instance):
            self._recorded_at = self._valid_at
            store.record_valid(self._clock.now(), vm)

    def invalid(self, seen: Snapshot, last_success: datetime | None) -> None:
        """Record a failed poll; an outage begins if there was no valid document for some minutes."""
        if seconds_since(self._store.progress.failing, self._clock) is None:
            self._store.record_failing(Moment(self._clock.boot, self._valid_at), last_success)
        blind = self._clock.monotonic() - self._valid_at
        if self._store.progress.outage is None and blind >= self.after:
            since = last_success or self._clock.now() - timedelta(seconds=blind)
            key = f"watch/{seen.instance or self._store.progress.instance or platform.node()}"
            self._change(WatchChange.BLIND, Outage(since, key, never=last_success is None), seen)

    def _change(self, change: WatchChange, outage: Outage, seen: Snapshot) -> None:
        """Record that an outage begins or ends, with messages about it."""
        # A reboot does not change the name, unless the disk is now another VM's.
        seen = replace(seen, instance=seen.instance or self._store.progress.instance)
        fact = OutageFact(change, outage, self._clock.now(), host_name(seen), seen.last_error)
        self._store.record_outage(
            fact, [job for output in self._outputs for job in output.compose_outage(fact, seen)]
        )
        for output in self._outputs:
            output.wake()
        log.warning(change.value, extra={"since": outage.since, "error": seen.last_error})


_FIND_AGAIN_SECONDS = 60.0  # by then, problems that persist have been reported again


class Problems:
    """Records the problems of the exporter as facts; used by one thread.

    A problem that the previous process left active is over if it is not reported again within a minute.
    """

    def __init__(self, store: Store, health: Health, clock: Clock) -> None:
        self._store = store
        self._health = health
        self._clock = clock
        self._former = store.progress.problems
        self._former_until = clock.monotonic() + _FIND_AGAIN_SECONDS

    def record(self, seen: Snapshot) -> None:
        active = self._health.problems() if self._store.facts.readers else ()
        if self._former and self._clock.monotonic() >= self._former_until:
            self._former = ()
        identities = {problem.identity for problem in active}
        waiting = (problem for problem in self._former if problem.identity not in identities)
        self._store.record_problems((*waiting, *active), self._clock.now(), host_name(seen))


def log_transition(occurrence: Occurrence, instance: str | None) -> None:
    event = occurrence.life.event
    facts = {
        "transition": occurrence.transition.value,
        "event_id": event.event_id,
        "trace_id": trace_id(occurrence.life.ids[0]),
        "event_type": event.event_type,
        "event_status": event.event_status,
        "event_source": event.event_source,
        "resource_type": event.resource_type,
        "target": occurrence.life.target.value,
        "instance": occurrence.life.instance or instance,
        "resources": event.resources,
        "not_before": event.not_before,
        "duration_seconds": event.duration_seconds,
        "description": event.description,
        "first_seen": occurrence.life.first_seen,
        "started": occurrence.life.started,
        "impact_seconds": None if occurrence.impact is None else occurrence.impact.total_seconds(),
    }
    if occurrence.life.changed_to is not None:
        facts["changed_to"] = occurrence.life.changed_to
    if occurrence.detail:
        facts["detail"] = occurrence.detail
    for change in occurrence.changes:
        facts[f"old_{change.field}"] = change.old
    log.info("transition", extra=facts)


_NAME_RETRY_SECONDS = 10.0
_FACTS_RETRY_SECONDS = 300.0  # if the name is configured, the other facts are only for labels and messages
_PATIENCE = 9.0  # if the request for the facts is slow, most of the time must remain for polling


class ImdsMetadata:
    """The facts about this VM from IMDS; used by one thread. ``tags`` are those that are shown."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._vm: VirtualMachine | None = None
        self.error: ImdsError | None = None
        self.api_version = ""  # that of the answer with the facts, "" before it
        self.tags: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of this VM, "" while it is unknown."""
        return self._vm.name if self._vm else ""

    @property
    def shown(self) -> VirtualMachine | None:
        """The facts, with the tags that are shown."""
        return self._vm.with_tags(self.tags) if self._vm else None

    def renew(self) -> None:
        """Ask IMDS, which may be another one, again at the next poll; until then the facts stay."""
        # Whether they are those of the IMDS in use.
        self.is_current = False
        self._due = self._clock.monotonic()

    def learn(self, imds: ImdsClient, *, named: bool) -> bool:
        """Ask IMDS if that is due, and return whether it was; ``error`` is why the last request failed."""
        asked = self._clock.monotonic()
        if asked < self._due:
            return False
        try:
            self._vm, self.error = imds.instance(), None
            self.is_current, self.api_version = True, imds.instance_api_version
        except ImdsError as error:
            self.error = error
        answered = self._clock.monotonic()
        pause = _FACTS_RETRY_SECONDS if named else _NAME_RETRY_SECONDS
        if self.error is not None:
            pause = max(pause, self.error.retry_after)
        self._due = answered + max(pause, _PATIENCE * (answered - asked))
        return True


_MOST_LOGGED = 10  # of each document


class Defects:
    """Reports the defects of documents; used by one thread. Defects of the document before are not new."""

    def __init__(self, metrics: Metrics, health: Health) -> None:
        self._metrics = metrics
        self._health = health
        self._before: frozenset[Defect] = frozenset()

    def record(self, defects: Sequence[Defect]) -> None:
        fresh = [defect for defect in defects if defect not in self._before]
        self._before = frozenset(defects)
        self._metrics.misunderstood(len(fresh))
        for defect in fresh[:_MOST_LOGGED]:
            log.warning("event could not be decoded", extra={"problem": defect.message, "lost": defect.lost})
        if len(fresh) > _MOST_LOGGED:
            log.warning("more events could not be decoded", extra={"count": len(fresh) - _MOST_LOGGED})
        if defects:
            more = f" (and {len(defects) - 1} more)" if len(defects) > 1 else ""
            self._health.report(DegradedReason.INVALID_EVENT, defects[0].message + more)
        else:
            self._health.clear(DegradedReason.INVALID_EVENT)


# Rules depend on the time of day and on the time left, so they are evaluated this often.
_LOOK_SECONDS = 1.0
_EVENTFUL_SECONDS = 0.2


class Watch:
    """The watch of one VM, poll by poll; used by one thread. Any thread may read its `snapshot`."""

    def __init__(self, core: Core, outputs: Sequence[Output]) -> None:
        self._store = store = core.store
        self._metrics, self._health, self._clock = core.metrics, core.health, core.clock
        self._inbox = core.inbox
        self._outputs = outputs
        self._deciders = tuple(output for output in outputs if isinstance(output, Decider))
        self._outages = Outages(store, outputs, self._clock)
        self._problems = Problems(store, self._health, self._clock)
        # The name that IMDS returned to the previous process; used until IMDS has answered.
        self._former_name = store.certain_instance
        # A digest of the newest document; None if it has to be processed again.
        self._digest: bytes | None = None
        self._document: Document | None = None
        self._thresholds: Sequence[float] = ()
        self._ahead: float | None = None  # by how many seconds the wall clock is ahead of the monotonic clock
        self._imminent_at: datetime | None = None  # when the next event becomes imminent
        self._defects = Defects(self._metrics, self._health)
        self._facts = ImdsMetadata(self._clock)
        self.snapshot = Snapshot(host=normal_name(socket.gethostname()))
        store.renew_lives()
        self._publish(store.load())

    def configure(self, settings: Config, imds: ImdsClient) -> None:
        """Apply a configuration and its client; a name from IMDS is kept if none is configured."""
        for decider in self._deciders:
            decider.use(settings, imds)
        self._outages.after = settings.notifications.watch.after
        self._configured_name = settings.instance.name
        if imds.endpoint != self.snapshot.endpoint or not self._facts.is_current:
            self._facts.renew()
        self._thresholds = settings.events.imminent
        self._publish(self.state)
        self.snapshot = replace(
            self.snapshot,
            endpoint=imds.endpoint,
            api_version=imds.api_version,
            all_events=settings.metrics.events == "all",
            resources=settings.metrics.resources,
            sampled_share=max((output.sampled_share for output in self._outputs), default=0.0),
            poll_interval=settings.imds.poll_interval,
        )
        self._facts.tags = settings.metrics.tags
        self._show_vm()
        # What is shown follows the new rules even if IMDS takes long to answer.
        self._decide()

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
            for decider in self._deciders:
                decider.polled(error, seconds, changed=False)
            self._fail(error)
            self._tell_imminent()
            return error
        seconds = self._clock.monotonic() - started
        self._metrics.polled(PollOutcome.SUCCESS, seconds)
        for decider in self._deciders:
            decider.polled(None, seconds, changed=digest != self._digest)
        if imds.api_version != self.snapshot.api_version:
            self.snapshot = replace(self.snapshot, api_version=imds.api_version)
        self._learn_vm(imds)
        self.record_reports()
        self._check_clock()
        if self.snapshot.instance != instance:
            # Of too many events, those of this VM count first.
            document = decode_document(body, self.snapshot.instance)
        if document is not None and (digest != self._digest or self.state.has_unreported):
            self._take(document)
            self._digest, self._document = digest, document
        self._succeed(imds.clock_offset)
        self._tell_imminent()
        self._store.retry()
        return None

    def _check_clock(self) -> None:
        """Forget when events started if the wall clock has been set since the last poll."""
        before, self._ahead = self._ahead, ahead(self._clock)
        # Smaller steps also correct a clock that stood still while the host paused the VM, see `pauses`.
        if before is not None and abs(self._ahead - before) > WATCHED.total_seconds():
            self._settle(record_clock_set(self.state))

    def approve(self) -> None:
        """Act on the document that has just been fetched."""
        self._decide(fresh=True)

    def look(self) -> bool:
        """Do what is due by the time alone; return whether approvals need a fresh document now."""
        self._tell_imminent()
        return self._decide()

    def _decide(self, *, fresh: bool = False) -> bool:
        needs = [decider.look(self.snapshot, fresh=fresh) for decider in self._deciders]
        return any(needs)

    def paused(self, seconds: float) -> None:
        """Record that this VM stood still for some seconds until now."""
        now, seen = self._clock.now(), self.snapshot
        # The poll after a pause may have found that the event is gone.
        lives = seen.under_way(since=now - timedelta(seconds=seconds + 1))
        if lives:
            self._settle(record_pause(self.state, lives, seconds))
        else:
            self.snapshot = replace(seen, last_pause=UnannouncedPause(now, seconds))
            self._metrics.unannounced_pause(seconds)
            self._store.facts.put([PauseFact(seconds, now, host_name(seen))])
        for event_type in sorted({life.event.event_type for life in lives}):
            self._metrics.paused(event_type, seconds)
        facts = {
            "seconds": seconds,
            "event_ids": [life.event.event_id for life in lives],
            "event_types": [life.event.event_type for life in lives],
            "announced_seconds": [life.event.duration_seconds for life in lives],
        }
        log.info("pause", extra=facts)

    @property
    def patience(self) -> float:
        """The seconds within which `look` is to be called again."""
        patience = _LOOK_SECONDS if any(decider.is_pending for decider in self._deciders) else math.inf
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
            self._settle(pass_time(self.state, now, self._thresholds, late=seen.ready))

    def record_reports(self) -> None:
        """Record the reports of workers, whether or not IMDS answers."""
        for report in self._inbox.take():
            self._settle(record_report(self.state, report))

    def _take(self, document: Document) -> None:
        self._defects.record(document.defects)
        instance = self.snapshot.instance
        step = advance(
            self.state,
            document,
            self._clock.now(),
            instance=instance,
            watching=self._document is not None,
            thresholds=self._thresholds,
            moment=moment(self._clock),
        )
        self._settle(step)

    def _settle(self, step: Step | None) -> None:
        """Record a step with its jobs, publish it, and wake the workers."""
        if step is None:
            return
        # Recording it may take long.
        for decider in self._deciders:
            decider.outdate()
        seen = self.snapshot
        self._store.record(step, [job for output in self._outputs for job in output.compose(step, seen)])
        self._publish(step.state)
        if step.occurrences or self.snapshot.current != seen.current:
            # Also for changes that are reported later, such as a second postponement within a minute.
            for output in self._outputs:
                output.wake()
        for occurrence in step.occurrences:
            if self.snapshot.has_series(occurrence.life):
                self._metrics.happened(occurrence)
            if occurrence.transition is Transition.HOOK_FAILED:
                self._metrics.hooks.failed(occurrence.life.transitions[-1].hook, severity_of(occurrence))
            log_transition(occurrence, seen.instance)

    def _publish(self, state: WatchState) -> None:
        self.state = state
        self._imminent_at = next_imminent(state, self._thresholds)
        self.is_eventful = any(life.event.is_started for life in state.current.values())
        self.snapshot = replace(
            self.snapshot,
            incarnation=state.incarnation,
            current=by_urgency(state.current.values()),
            past=tuple(reversed(state.past.values())),
        )

    def _learn_vm(self, imds: ImdsClient) -> None:
        """Request the facts about this VM from IMDS, until they and the name are known."""
        named = bool(self._configured_name or self._facts.name)
        if (named and self._facts.is_current) or not self._facts.learn(imds, named=named):
            return
        self._show_vm()
        error = self._facts.error
        if error is not None and error.status == HTTPStatus.FORBIDDEN:
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
        name = given or told or self._former_name
        self.snapshot = replace(
            self.snapshot, vm=self._facts.shown, instance=name, instance_api_version=self._facts.api_version
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

    def _succeed(self, clock_offset: float) -> None:
        now, seen = self._clock.now(), self.snapshot
        if not seen.up:
            log.info("IMDS answers", extra={"endpoint": seen.endpoint, "instance": seen.instance})
        self.state = replace(self.state, last_success=now)
        self._health.check_clock(clock_offset, "IMDS", "the time left to events is wrong by as much")
        self._outages.valid(seen, self._facts.shown or VirtualMachine())
        self._problems.record(seen)
        self.snapshot = replace(
            self.snapshot, up=True, ready=True, last_success=now, last_error="", last_status=0
        )

    def _fail(self, error: ImdsError) -> None:
        message = str(error)
        if self.snapshot.up or self.snapshot.last_error != message:
            log.warning("poll failed", extra={"reason": error.reason.value, "error": message})
        self.snapshot = replace(self.snapshot, up=False, last_error=message, last_status=error.status)
        self._outages.invalid(self.snapshot, self.state.last_success)
        self._problems.record(self.snapshot)
        self._store.retry()
