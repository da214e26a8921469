"""The face of tracing towards the rest of the program."""

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Literal

from exporter.clock import Clock
from exporter.config import Config
from exporter.errors import ConfigurationError
from exporter.health import Health, Trouble
from exporter.imds import InstanceFacts
from exporter.model.events import Target, normal_name
from exporter.model.jobs import CommandResult, Job
from exporter.model.lifecycle import Occurrence, TrackedEvent
from exporter.model.messages import Message, Outcome
from exporter.tracing import environment, spans
from exporter.tracing.environment import Selection
from exporter.tracing.processor import BatchProcessor, Counts, Exporter
from exporter.tracing.resource import CachedFacts, resource_attributes
from exporter.tracing.spans import Span

if TYPE_CHECKING:
    from exporter.tracing.export import Attributes

log = logging.getLogger(__name__)

_SWITCH_OFF_SECONDS = 1.0


class Tracer:
    """Turns what happens into spans and queues them for export; any thread may call it, and it never waits.

    Until `configure` finds that tracing is on, nothing is done and the SDK is not imported.
    """

    def __init__(
        self,
        counts: Counts,
        health: Health,
        clock: Clock,
        *,
        ask: Callable[[], InstanceFacts],
        environ: Mapping[str, str],
    ) -> None:
        """``ask`` returns the facts about this VM or raises ImdsError."""
        self._counts = counts
        self._health = health
        self._clock = clock
        self._facts = CachedFacts(ask, clock)
        self._environ = environ
        self._lock = threading.Lock()
        self._selection = Selection()
        self._processors: tuple[BatchProcessor, ...] = ()
        self._instance: str | None = None
        self._vm: str | None = None
        self._everything = False

    def configure(self, settings: Config) -> None:
        """Apply a configuration; an invalid OTEL_* variable is reported, and nothing is exported."""
        self._everything = settings.metrics.events == "all"
        self._instance = settings.instance.name or None
        selection = self._select(settings.tracing.enabled)
        if selection == self._selection:
            return
        replaced = self._processors
        self.stop(_SWITCH_OFF_SECONDS)
        for processor in replaced:
            self._health.clear(Trouble.TRACING_FAILING, processor.name)
        self._selection = selection
        self._processors = self._started(selection)

    def happened(self, occurrence: Occurrence, instance: str | None) -> None:
        """Export the spans that a transition of an event ends, as this VM saw it."""
        if self._processors:
            self._put(spans.event_spans(occurrence, self._name(instance)))

    def notified(self, message: Message, at: datetime, outcome: Outcome) -> None:
        """Export the span of a message that was delivered or given up."""
        if self._traces(message.event.target):
            self._put([spans.notification_span(message, self._name(message.instance), at, outcome)])

    def traceparent(self, message: Message) -> str:
        """Return the W3C header to send with a message; "" if its event is not traced."""
        if not self._traces(message.event.target):
            return ""
        vm = self._name(message.instance)
        return spans.notification_span(message, vm, message.at, Outcome.DELIVERED).traceparent

    def approved(
        self, tracked: TrackedEvent, rule: str, begun: datetime, sent: datetime, *, instance: str | None
    ) -> None:
        """Export the span of an approval, from this exporter's decision to Azure's answer."""
        if self._traces(tracked.target):
            self._put([spans.approval_span(tracked, self._name(instance), rule, (begun, sent))])

    def hook_traceparent(self, job: Job) -> str:
        """Return the W3C header for a hook; if its event is not traced, one with the sampled flag unset."""
        span = spans.hook_span(job, self._name(job.instance), (job.at, job.at))
        return span.traceparent if self._traces(job.event.target) else span.traceparent[:-2] + "00"

    def hooked(self, job: Job, begun: datetime, ended: datetime, result: CommandResult) -> None:
        """Export the span of a hook's run."""
        if self._traces(job.event.target):
            vm = self._name(job.instance)
            self._put([spans.hook_span(job, vm, (begun, ended), result)])

    def stop(self, timeout: float) -> bool:
        """Export what is queued, and return whether that ended within ``timeout`` seconds."""
        stopping, self._processors = self._processors, ()
        ended = [processor.stop(timeout / len(stopping)) for processor in stopping]
        return all(ended)

    def _select(self, enabled: Literal["auto"] | bool) -> Selection:
        try:
            selection = environment.selected(enabled, self._environ)
        except ConfigurationError as error:
            self._health.report(Trouble.TRACING_FAILING, f"no traces are sent: {error}")
            return Selection()
        self._health.clear(Trouble.TRACING_FAILING)
        return selection

    def _started(self, selection: Selection) -> tuple[BatchProcessor, ...]:
        exporters: dict[str, Callable[[Attributes], Exporter]] = {}
        if selection.otlp:
            exporters[selection.label] = _otlp_exporter
        if selection.console:
            exporters["console"] = _console_exporter
        if exporters:
            log.info("traces are sent", extra={"to": list(exporters)})
        return tuple(
            BatchProcessor(
                name,
                partial(make, self._resource),
                counts=self._counts,
                health=self._health,
                clock=self._clock,
            )
            for name, make in exporters.items()
        )

    def _put(self, ended: Iterable[Span]) -> None:
        found = tuple(ended)
        for processor in self._processors:
            processor.put(found)

    def _traces(self, target: Target) -> bool:
        return bool(self._processors) and (self._everything or target is Target.SELF)

    def _name(self, instance: str | None) -> str:
        """Return this VM's name in span ids, which is the first one known, so that all of them agree.

        A message may have been queued when the name was not known yet, or another one was configured.
        """
        with self._lock:
            self._vm = self._vm or self._instance or instance
            return normal_name(self._vm or socket.gethostname())

    def _resource(self) -> Mapping[str, str]:
        return resource_attributes(self._facts(), self._instance)


def _otlp_exporter(attributes: "Attributes") -> Exporter:
    from exporter.tracing.export import otlp_exporter

    return otlp_exporter(attributes)


def _console_exporter(attributes: "Attributes") -> Exporter:
    from exporter.tracing.export import console_exporter

    return console_exporter(attributes)
