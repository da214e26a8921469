"""All of tracing: what the rest of the program knows of it."""

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
from exporter.events import Target, normal_name
from exporter.health import Health, Trouble
from exporter.hooks.jobs import CommandResult, Job
from exporter.imds import InstanceFacts
from exporter.lifecycle import Occurrence, TrackedEvent
from exporter.messages import Message, Outcome
from exporter.tracing import environment, spans
from exporter.tracing.environment import Wanted
from exporter.tracing.facts import FactsOnce
from exporter.tracing.resource import resource_attributes
from exporter.tracing.spans import Span

if TYPE_CHECKING:
    # Only where tracing is on.
    from exporter.tracing.pipeline import Counts, Pipeline

log = logging.getLogger(__name__)

_SWITCH_OFF_SECONDS = 1.0


class Tracer:
    """Turns what happens into spans and has them sent; any thread may call it, and none ever waits for it.

    Until `configure` finds that tracing is wanted it does nothing, and imports nothing.
    """

    def __init__(
        self,
        counts: "Counts",
        health: Health,
        clock: Clock,
        *,
        ask: Callable[[], InstanceFacts],
        environ: Mapping[str, str],
    ) -> None:
        """Prepare; ``ask`` gives the facts about this VM or raises ImdsError."""
        self._counts = counts
        self._health = health
        self._clock = clock
        self._ask = ask
        self._environ = environ
        self._lock = threading.Lock()
        self._wanted = Wanted()
        self._pipelines: tuple[Pipeline, ...] = ()
        self._facts: FactsOnce | None = None
        self._instance: str | None = None
        self._vm: str | None = None
        self._everything = False

    def configure(self, settings: Config) -> None:
        """Take over a configuration; what a variable of OpenTelemetry's has wrong is a trouble, no error."""
        self._everything = settings.metrics.events == "all"
        self._instance = settings.instance.name or None
        found = self._found(settings.tracing.enabled)
        if found == self._wanted:
            return
        ending = self._pipelines
        self._end(_SWITCH_OFF_SECONDS)
        for pipeline in ending:
            self._health.clear(Trouble.TRACING_FAILING, pipeline.name)
        self._wanted = found
        if found.otlp or found.console:
            self._begin(found)

    def happened(self, occurrence: Occurrence, instance: str | None) -> None:
        """Take in a transition of an event that is to be traced, as this VM saw it."""
        if self._pipelines:
            self._put(spans.event_spans(occurrence, self._name(instance)))

    def notified(self, message: Message, at: datetime, outcome: Outcome) -> None:
        """Take in that a message arrived, or was given up."""
        if self._traces(message.event.target):
            self._put([spans.notification_span(message, self._name(message.instance), at, outcome)])

    def traceparent(self, message: Message) -> str:
        """Give the W3C header to send along with a message; "" where it is not traced."""
        if not self._traces(message.event.target):
            return ""
        vm = self._name(message.instance)
        return spans.notification_span(message, vm, message.at, Outcome.DELIVERED).traceparent

    def approved(
        self, tracked: TrackedEvent, rule: str, begun: datetime, sent: datetime, *, instance: str | None
    ) -> None:
        """Take in that this exporter approved an event, from the decision to Azure's answer."""
        if self._traces(tracked.target):
            self._put([spans.approval_span(tracked, self._name(instance), rule, (begun, sent))])

    def hook_traceparent(self, job: Job) -> str:
        """Give the W3C header for a hook; without tracing, one that says that nothing is recorded."""
        span = spans.hook_span(job, self._name(job.instance), (job.at, job.at))
        return span.traceparent if self._traces(job.event.target) else span.traceparent[:-2] + "00"

    def hooked(self, job: Job, begun: datetime, ended: datetime, result: CommandResult) -> None:
        """Take in that a hook ran."""
        if self._traces(job.event.target):
            vm = self._name(job.instance)
            self._put([spans.hook_span(job, vm, (begun, ended), result)])

    def stop(self, timeout: float) -> bool:
        """Send what waits, and end within ``timeout`` seconds; tell whether all of it ended."""
        return self._end(timeout)

    def _found(self, enabled: Literal["auto"] | bool) -> Wanted:
        try:
            found = environment.wanted(enabled, self._environ)
        except ConfigurationError as error:
            self._health.report(Trouble.TRACING_FAILING, f"no traces are sent: {error}")
            return Wanted()
        self._health.clear(Trouble.TRACING_FAILING)
        return found

    def _begin(self, found: Wanted) -> None:
        from exporter.tracing.outlets import ConsoleOutlet, OtlpOutlet
        from exporter.tracing.pipeline import Pipeline

        if self._facts is None:
            self._facts = FactsOnce(self._ask)
        make = partial(Pipeline, counts=self._counts, health=self._health, clock=self._clock)
        begun = []
        if found.otlp:
            begun.append(make(found.label, partial(OtlpOutlet, self._resource)))
        if found.console:
            begun.append(make("console", partial(ConsoleOutlet, self._resource)))
        self._pipelines = tuple(begun)
        log.info("traces are sent", extra={"to": [pipeline.name for pipeline in begun]})

    def _end(self, timeout: float) -> bool:
        ending, self._pipelines = self._pipelines, ()
        if self._facts is not None and not self._facts.known.vm_id:
            self._facts.stop()
            self._facts = None
        ended = [pipeline.stop(timeout / len(ending)) for pipeline in ending]
        return all(ended)

    def _put(self, made: Iterable[Span]) -> None:
        found = tuple(made)
        for pipeline in self._pipelines:
            pipeline.put(found)

    def _traces(self, target: Target) -> bool:
        return bool(self._pipelines) and (self._everything or target is Target.SELF)

    def _name(self, instance: str | None) -> str:
        """Name this VM in span ids: by what was known when the first was made, so that all fit together.

        A message may wait since a time when the name was not known, or another one was configured.
        """
        with self._lock:
            if self._vm is None:
                told = self._facts.known.name if self._facts is not None else ""
                self._vm = normal_name(self._instance or told or instance or socket.gethostname())
            return self._vm

    def _resource(self) -> Mapping[str, str]:
        facts = self._facts.known if self._facts is not None else InstanceFacts()
        return resource_attributes(facts, self._instance)
