"""The interface of the export over OTLP to the rest of the program."""

import logging
import queue
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Literal

from exporter.config import Config
from exporter.errors import ConfigurationError
from exporter.health import Problem
from exporter.model.events import Affected, normal_name
from exporter.model.jobs import CommandResult, Job
from exporter.model.lifecycle import Life, Occurrence
from exporter.model.messages import Message, Outage, Outcome, WatchChange
from exporter.model.telemetry import LogRecord, Signal, Span, TraceJobs
from exporter.model.views import EventView, Snapshot
from exporter.model.vm import VirtualMachine
from exporter.outputs.otlp import environment, records, spans
from exporter.outputs.otlp.environment import CONSOLE, OTLP
from exporter.outputs.otlp.worker import (
    ITEMS,
    REASONS,
    Destination,
    Exporter,
    Pusher,
    Receiver,
    Worker,
    subject,
)
from exporter.shared import Shared
from exporter.state.jobs import Exports
from exporter.state.store import Store

log = logging.getLogger(__name__)

_SWITCH_OFF_SECONDS = 1.0


class Tracer:
    """Creates spans and log records, and exports them and the metrics in the background.

    For any thread; never blocks it. Until `configure` finds that a signal is on, nothing is done or stored
    for it, and the SDK is not imported.
    """

    def __init__(self, store: Store, shared: Shared, snapshot: Callable[[], Snapshot]) -> None:
        self._log_records = store.log_records
        self._queues: Mapping[Signal, Exports[Span] | Exports[LogRecord]] = {
            Signal.TRACES: store.spans,
            Signal.LOGS: store.log_records,
        }
        self._shared = shared
        self._metrics, self._health, self._clock = shared
        self._store = store
        self._snapshot = snapshot
        self._begun = shared.clock.now()
        self._receivers: dict[tuple[Signal, str], Receiver] = {}
        # Problems that begin or end while the state is being written.
        self._recorded: queue.SimpleQueue[LogRecord] = queue.SimpleQueue()
        shared.health.changed = self._record_problem

    def configure(self, settings: Config, environ: Mapping[str, str]) -> None:
        """Apply a configuration; an invalid OTEL_* variable is reported, and its signal is not exported."""
        self._environ = environ
        self._everything = settings.metrics.events == "all"
        self._instance = settings.instance.name
        self._configure(Signal.TRACES, settings.tracing.enabled)
        self._configure(Signal.LOGS, settings.otlp.logs)
        self._configure(Signal.METRICS, settings.otlp.metrics)

    def _configure(self, signal: Signal, enabled: Literal["auto"] | bool) -> None:
        receivers = self._select(signal, enabled)
        if signal in self._queues:
            self._queues[signal].lanes = tuple(receivers)
        for lane in {OTLP, CONSOLE} - receivers.keys():
            self._end(signal, lane)
        if receivers:
            self._metrics.exporting(signal)
        for lane, name in receivers.items():
            if (signal, lane) not in self._receivers:
                self._begin(signal, lane, name)

    def compose(self, occurrences: Sequence[Occurrence]) -> TraceJobs:
        """Return the spans and records of occurrences, to be recorded in the same step."""
        traced = [one for one in occurrences if self._samples(one)]
        return TraceJobs(
            [span for one in traced for span in spans.event_spans(one, _identity(one.life))],
            [
                records.transition_record(one, _identity(one.life), sampled=self._samples(one))
                for one in occurrences
                if self.keeps_records and self._reports(one.life.target)
            ],
        )

    @property
    def is_on(self) -> bool:
        """Whether spans are exported."""
        return self._is_on(Signal.TRACES)

    @property
    def keeps_records(self) -> bool:
        """Whether log records are exported."""
        return self._is_on(Signal.LOGS)

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals that are exported."""
        return tuple(signal.value for signal in Signal if self._is_on(signal))

    def _is_on(self, signal: Signal) -> bool:
        return any(one is signal for one, _ in self._receivers)

    def wake(self) -> None:
        for receiver in tuple(self._receivers.values()):
            receiver.wake()

    def watch_changed(self, change: WatchChange, outage: Outage, at: datetime, error: str) -> list[LogRecord]:
        """Return the record of an outage that begins or ends, to be recorded in the same step."""
        if not self.keeps_records:
            return []
        return [records.watch_record(change, outage, self._host, at, error)]

    def paused(self, seconds: float, at: datetime) -> None:
        """Record a pause of this VM that no event announced."""
        if self.keeps_records:
            self._log_records.put([records.pause_record(seconds, self._host, at)])
            self.wake()

    @property
    def _host(self) -> str:
        return normal_name(self._snapshot().instance or socket.gethostname())

    def _record_problem(self, problem: Problem, begins: bool) -> None:  # a callback
        if self.keeps_records:
            at = problem.since if begins else self._clock.now()
            self._recorded.put(records.problem_record(problem, self._host, at, begins=begins))
            for (signal, _), receiver in tuple(self._receivers.items()):
                if signal is Signal.LOGS:
                    receiver.wake()

    def _collect_recorded(self) -> None:
        found = []
        while not self._recorded.empty():
            found.append(self._recorded.get())
        self._log_records.put(found)

    def notified(self, message: Message, at: datetime, outcome: Outcome) -> list[Span]:
        """Return the span of a message that was delivered or given up, to be recorded in the same step."""
        if not self._traces(message.event.target, message.event.id):
            return []
        return [spans.notification_span(message, _identity(message), at, outcome)]

    def traceparent(self, message: Message) -> str:
        """Return the W3C header for a message; if its event is not traced, with the sampled flag unset."""
        span = spans.notification_span(message, _identity(message), message.at, Outcome.DELIVERED)
        return self._header(span, message.event)

    def approved(self, life: Life, rule: str, times: tuple[datetime, datetime]) -> list[Span]:
        """Return the span of an approval, from the decision to Azure's response, to be recorded."""
        if not self._traces(life.target, life.ids[0]):
            return []
        return [spans.approval_span(life, _identity(life), rule, times)]

    def hook_traceparent(self, job: Job) -> str:
        """Return the W3C header for a hook; if its event is not traced, with the sampled flag unset."""
        return self._header(spans.hook_span(job, _identity(job), (job.at, job.at)), job.event)

    def _header(self, span: Span, event: EventView) -> str:
        return span.traceparent if self._traces(event.target, event.id) else f"{span.traceparent[:-2]}00"

    def hooked(self, job: Job, begun: datetime, ended: datetime, result: CommandResult) -> list[Span]:
        """Return the span of a hook's run, to be recorded with its end."""
        if not self._traces(job.event.target, job.event.id):
            return []
        return [spans.hook_span(job, _identity(job), (begun, ended), result)]

    def stop(self, timeout: float) -> None:
        """Make a last attempt to export, which may take ``timeout`` seconds.

        What remains of spans and log records is exported after the next start.
        """
        _stop(self._receivers.values(), timeout)

    def _select(self, signal: Signal, enabled: Literal["auto"] | bool) -> dict[str, str]:
        about = "" if signal is Signal.TRACES else signal.value
        try:
            receivers = environment.selected(signal, enabled, self._environ)
            if receivers and signal is Signal.TRACES:
                self._share = environment.sampled_share(self._environ)
            if receivers and signal is Signal.METRICS:
                self._interval = environment.interval(self._environ)
        except ConfigurationError as error:
            self._health.report(REASONS[signal], f"no {signal} are sent: {error}", about)
            return {}
        self._health.clear(REASONS[signal], about)
        return receivers

    def _begin(self, signal: Signal, lane: str, name: str) -> None:
        log.info("export of %s enabled", signal, extra={"to": name})
        receiver: Receiver
        to = Destination(
            signal,
            name,
            partial(self._exporter, signal, lane),
            knows_vm=lambda: self._snapshot().vm is not None,
            shared=self._shared,
        )
        if signal is Signal.METRICS:
            receiver = Pusher(to, self._interval)
        else:
            collect = self._collect_recorded if signal is Signal.LOGS else lambda: None
            receiver = Worker(to, lane, queue=self._queues[signal], collect=collect)
        is_first = not self._is_on(signal)
        self._receivers = self._receivers | {(signal, lane): receiver}
        if signal is Signal.LOGS and is_first:
            for problem in self._health.problems():
                self._record_problem(problem, True)
        receiver.loop.start()

    def _exporter(self, signal: Signal, lane: str) -> Exporter:
        from exporter.outputs.otlp import export

        def attributes() -> Mapping[str, str]:
            snapshot = self._snapshot()
            # Until IMDS has answered, the resource is that of the process before this one.
            vm = snapshot.vm or VirtualMachine(vm_id=self._store.certain_vm_id)
            return export.resource_attributes(vm, self._instance or snapshot.instance or "")

        console = lane == CONSOLE
        if signal is Signal.TRACES:
            from exporter.outputs.otlp import traces

            return traces.exporter(attributes, console=console)
        if signal is Signal.LOGS:
            from exporter.outputs.otlp import logs

            return logs.exporter(attributes, console=console)
        from exporter.outputs.otlp import metrics

        return metrics.MetricExporter(attributes, self._clock, self._begun, console=console)

    def _end(self, signal: Signal, lane: str) -> None:
        """Stop exporting to a lane, and drop what is queued for it, also from before the start."""
        receiver = self._receivers.get((signal, lane))
        if receiver is not None:
            self._receivers = {key: one for key, one in self._receivers.items() if key != (signal, lane)}
            _stop([receiver], _SWITCH_OFF_SECONDS)
            self._health.clear(REASONS[signal], subject(signal, receiver.to.name))
        if signal not in self._queues:
            return
        waiting = self._queues[signal]
        dropped = waiting.remove([key for key, _ in waiting.waiting(lane)])
        if dropped:
            self._metrics.dropped(signal, dropped)
            facts = {"exporter": lane, "count": dropped, "reason": f"{signal} are switched off"}
            log.warning("%s dropped", ITEMS[signal], extra=facts)

    def _traces(self, target: Affected, event_id: str) -> bool:
        return self.is_on and self._reports(target) and spans.is_sampled(event_id, self._share)

    def _samples(self, occurrence: Occurrence) -> bool:
        return self._traces(occurrence.life.target, occurrence.life.ids[0])

    def _reports(self, target: Affected) -> bool:
        return self._everything or target is Affected.SELF


def _stop(receivers: Iterable[Receiver], timeout: float) -> None:
    """Make all of them export what is left at the same time."""
    deadline = time.monotonic() + timeout
    stopped = tuple(receivers)
    for receiver in stopped:
        receiver.begin_stop()
    for receiver in stopped:
        receiver.loop.join(max(deadline - time.monotonic(), 0.0))


def _identity(source: Life | Message | Job) -> str:
    """Return what identifies this VM in the span ids of a life.

    It is the name with which the life began, or the host's if there was none: all its spans have the same
    root, although the VM may get a name, or another one, meanwhile.
    """
    return normal_name((None if source.name_was_unknown else source.instance) or socket.gethostname())
