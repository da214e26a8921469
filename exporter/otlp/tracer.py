"""The interface of tracing to the rest of the program."""

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Literal

from exporter.clock import Clock
from exporter.config import Config
from exporter.errors import ConfigurationError
from exporter.health import DegradedReason, Health
from exporter.metrics import Metrics
from exporter.model.events import Target, normal_name
from exporter.model.jobs import CommandResult, Job, Span, TraceJobs
from exporter.model.lifecycle import Life, Occurrence, Transition
from exporter.model.messages import Message, Outcome
from exporter.model.views import EventView
from exporter.model.vm import VirtualMachine
from exporter.otlp import environment, spans
from exporter.otlp.environment import CONSOLE, OTLP
from exporter.otlp.worker import Worker
from exporter.state.queues import Spans

if TYPE_CHECKING:
    from exporter.otlp.export import SpanExporter

log = logging.getLogger(__name__)

_SWITCH_OFF_SECONDS = 1.0


class Tracer:
    """Creates spans and exports them in the background; for any thread, never blocks it.

    Until `configure` finds that tracing is on, nothing is done or stored, and the SDK is not imported.
    """

    def __init__(
        self,
        waiting: Spans,
        metrics: Metrics,
        health: Health,
        clock: Clock,
        *,
        vm: Callable[[], VirtualMachine | None],
        environ: Mapping[str, str],
    ) -> None:
        """``vm`` returns the known facts about this VM."""
        self._waiting = waiting
        self._metrics = metrics
        self._health = health
        self._clock = clock
        self._vm = vm
        self._environ = environ
        self._workers: dict[str, Worker] = {}

    def configure(self, settings: Config) -> None:
        """Apply a configuration; an invalid OTEL_* variable is reported, and nothing is exported."""
        self._everything = settings.metrics.events == "all"
        self._instance = settings.instance.name
        receivers = self._select(settings.tracing.enabled)
        self._waiting.lanes = tuple(receivers)
        for lane in {OTLP, CONSOLE} - receivers.keys():
            self._end(lane)
        if not receivers:
            self._waiting.events.clear()
        for lane, name in receivers.items():
            if lane not in self._workers:
                self._begin(lane, name)

    def compose(self, occurrences: Sequence[Occurrence]) -> TraceJobs:
        """Return the spans of occurrences, to be recorded in the same step."""
        if not self._workers:
            return TraceJobs()
        traced = [one for one in occurrences if self._traces(one.life.target, one.life.ids[0])]
        known = self._waiting.events.of
        return TraceJobs(
            [span for one in traced for span in spans.event_spans(one, _identity(one.life), known)],
            {
                (one.life.key, len(one.life.transitions)): spans.update_event(one)
                for one in traced
                if one.transition is Transition.UPDATED
            },
        )

    @property
    def is_on(self) -> bool:
        return bool(self._workers)

    def wake(self) -> None:
        for worker in tuple(self._workers.values()):
            worker.wake()

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
        """Make a last attempt to export queued spans, which may take ``timeout`` seconds.

        The remaining spans are exported after the next start.
        """
        for worker in self._workers.values():
            worker.stop(timeout / len(self._workers))

    def _select(self, enabled: Literal["auto"] | bool) -> dict[str, str]:
        try:
            receivers = environment.selected(enabled, self._environ)
            if receivers:
                self._share = environment.sampled_share(self._environ)
        except ConfigurationError as error:
            self._health.report(DegradedReason.TRACING_FAILING, f"no traces are sent: {error}")
            return {}
        self._health.clear(DegradedReason.TRACING_FAILING)
        return receivers

    def _begin(self, lane: str, name: str) -> None:
        log.info("tracing enabled", extra={"to": name})
        worker = Worker(
            lane,
            name,
            partial(self._exporter, lane),
            spans=self._waiting,
            knows_vm=lambda: self._vm() is not None,
            metrics=self._metrics,
            health=self._health,
            clock=self._clock,
        )
        self._workers = self._workers | {lane: worker}
        worker.start()

    def _exporter(self, lane: str) -> "SpanExporter":
        from exporter.otlp import export

        def resource() -> Mapping[str, str]:
            return export.resource_attributes(self._vm() or VirtualMachine(), self._instance)

        return export.otlp_exporter(resource) if lane == OTLP else export.console_exporter(resource)

    def _end(self, lane: str) -> None:
        """Stop exporting to a lane, and drop its queued spans, including those from before the start."""
        worker = self._workers.get(lane)
        if worker is not None:
            self._workers = {other: one for other, one in self._workers.items() if other != lane}
            worker.stop(_SWITCH_OFF_SECONDS)
            self._health.clear(DegradedReason.TRACING_FAILING, worker.name)
        dropped = self._waiting.remove([key for key, _ in self._waiting.waiting(lane)])
        if dropped:
            self._metrics.spans_dropped(dropped)
            facts = {"exporter": lane, "count": dropped, "reason": "traces are switched off"}
            log.warning("spans dropped", extra=facts)

    def _traces(self, target: Target, event_id: str) -> bool:
        wanted = self.is_on and (self._everything or target is Target.SELF)
        return wanted and spans.is_sampled(event_id, self._share)


def _identity(source: Life | Message | Job) -> str:
    """Return what identifies this VM in the span ids of a life.

    It is the name with which the life began, or the host's if there was none: all its spans have the same
    root, although the VM may get a name, or another one, meanwhile.
    """
    return normal_name((None if source.nameless else source.instance) or socket.gethostname())
