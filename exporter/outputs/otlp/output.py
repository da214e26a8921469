"""What is sent over OTLP: spans and log records, composed from facts, and the metrics."""

import logging
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Literal

from msgspec.structs import replace

from exporter.config.loading import Loaded
from exporter.errors import ConfigurationError
from exporter.model.events import Affected
from exporter.model.facts import Fact, TransitionFact, WorkFact
from exporter.model.tracing import is_sampled
from exporter.model.vm import VirtualMachine
from exporter.outputs.otlp import environment, records, spans
from exporter.outputs.otlp.environment import CONSOLE
from exporter.outputs.otlp.telemetry import ItemOutcome, LogRecord, Signal, Span, counters
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
from exporter.outputs.output import Core, Output

log = logging.getLogger(__name__)

_SWITCH_OFF_SECONDS = 1.0


class Otlp(Output):
    """Exports spans, log records and metrics in the background.

    Until `configure` finds that a signal is on, nothing is done or stored for it; the SDK is not imported.
    """

    name = "otlp"
    stop_seconds = 1.5

    def __init__(self, core: Core) -> None:
        self._core = core
        self._facts = core.store.facts
        self._health, self._clock = core.health, core.clock
        self._counters = counters(core.metrics.registry)
        self._counters[Signal.TRACES].expect()
        self._begun = core.clock.now()
        self._receivers: dict[tuple[Signal, str], Receiver] = {}
        self._share = 0.0
        self._facts.grown = self._wake_readers

    @property
    def sampled_share(self) -> float:
        return self._share

    def configure(self, loaded: Loaded, environ: Mapping[str, str]) -> None:
        """Apply a configuration; an invalid OTEL_* variable is reported, and its signal is not exported."""
        settings = loaded.config
        self._environ = environ
        everything = settings.metrics.events == "all"
        # Nothing is sent for the others, which could displace those of this VM.
        self._facts.is_wanted = lambda fact: everything or _affected(fact) is Affected.SELF
        self._instance = settings.instance.name
        self._node = settings.kubernetes.node_name(environ)
        enabled = {
            Signal.TRACES: settings.tracing.enabled,
            Signal.LOGS: settings.otlp.logs,
            Signal.METRICS: settings.otlp.metrics,
        }
        self._wanted_share = 0.0
        wanted = {
            (signal, lane): name
            for signal, choice in enabled.items()
            for lane, name in self._select(signal, choice).items()
        }
        for signal, lane in [key for key in self._receivers if key not in wanted]:
            self._end(signal, lane)
        # What a receiver lacks at its end is counted by the share until then.
        self._share = self._wanted_share
        # Also of receivers that only a former process had.
        readers = [_reader(signal, lane) for signal, lane in wanted if signal in ITEMS]
        for reader, lacked in self._core.store.set_readers(readers).items():
            self._drop(reader, lacked)
        for (signal, lane), name in wanted.items():
            self._counters[signal].expect()
            if (signal, lane) not in self._receivers:
                self._begin(signal, lane, name)

    @property
    def signals(self) -> tuple[str, ...]:
        exported = {signal for signal, _ in self._receivers}
        return tuple(signal.value for signal in Signal if signal in exported)

    def wake(self) -> None:
        for receiver in tuple(self._receivers.values()):
            receiver.wake()

    def _wake_readers(self) -> None:  # with locks of the state held
        for (signal, _), receiver in tuple(self._receivers.items()):
            if signal in ITEMS:
                receiver.wake()

    def _compose(
        self, signal: Signal, fact: Fact, *, sampled: bool | None = None
    ) -> list[Span] | list[LogRecord]:
        """Return what a receiver is sent for a fact; ``sampled`` is None for what its event decides."""
        host = self._core.views.snapshot.host
        if signal is Signal.LOGS:
            record = records.record_of(fact, host, self._samples)
            return [record] if record is not None else []
        if not isinstance(fact, TransitionFact | WorkFact):
            return []
        if not (self._samples(fact.event_id) if sampled is None else sampled):
            return []
        if isinstance(fact, WorkFact):
            return [spans.work_span(fact, fact.vm or host)]
        return list(spans.event_spans(fact.occurrence, fact.occurrence.life.identity or host))

    def _samples(self, event_id: str) -> bool:
        return is_sampled(event_id, self._share)

    def stop(self, timeout: float) -> bool:
        """Make a last attempt to export; what remains is exported after the next start."""
        _stop(self._receivers.values(), timeout)
        # A receiver that hangs loses nothing: what it has not accepted is sent again.
        return True

    def _select(self, signal: Signal, enabled: Literal["auto"] | bool) -> dict[str, str]:
        about = "" if signal is Signal.TRACES else signal.value
        try:
            receivers = environment.selected(signal, enabled, self._environ)
            if receivers and signal is Signal.TRACES:
                self._wanted_share = environment.sampled_share(self._environ)
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
            counter=self._counters[signal],
            core=self._core,
        )
        if signal is Signal.METRICS:
            receiver = Pusher(to, self._interval)
        else:
            receiver = Worker(to, _reader(signal, lane), self._facts, partial(self._compose, signal))
        self._receivers = self._receivers | {(signal, lane): receiver}
        receiver.loop.start()

    def _exporter(self, signal: Signal, lane: str) -> Exporter:
        from exporter.outputs.otlp import export

        def attributes() -> Mapping[str, str]:
            snapshot = self._core.views.snapshot
            # Until IMDS has answered, the resource is that of the process before this one.
            vm = snapshot.vm or VirtualMachine(vm_id=self._core.store.certain_vm_id)
            vm = replace(vm, node=self._node)
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
        """Stop exporting to a receiver."""
        receiver = self._receivers[signal, lane]
        self._receivers = {
            key: receiver for key, receiver in self._receivers.items() if key != (signal, lane)
        }
        _stop([receiver], _SWITCH_OFF_SECONDS)
        self._health.clear(REASONS[signal], subject(signal, receiver.to.name))

    def _drop(self, reader: str, lacked: Iterable[Fact]) -> None:
        """Count what a receiver will not get any more."""
        lane, _, name = reader.partition(" ")
        signal = Signal(name)
        dropped = sum(len(self._compose(signal, fact, sampled=True)) for fact in lacked)
        if dropped:
            self._counters[signal].count(ItemOutcome.DROPPED, times=dropped)
            facts = {"exporter": lane, "count": dropped, "reason": f"{signal} are switched off"}
            log.warning("%s dropped", ITEMS[signal], extra=facts)


def _reader(signal: Signal, lane: str) -> str:
    """Return the name under which the state keeps how far a receiver has come."""
    return f"{lane} {signal}"


def _affected(fact: Fact) -> Affected:
    if isinstance(fact, TransitionFact):
        return fact.occurrence.life.target
    return fact.affects if isinstance(fact, WorkFact) else Affected.SELF


def _stop(receivers: Iterable[Receiver], timeout: float) -> None:
    """Make all of them export what is left at the same time."""
    deadline = time.monotonic() + timeout
    stopped = tuple(receivers)
    for receiver in stopped:
        receiver.begin_stop()
    for receiver in stopped:
        receiver.loop.join(max(deadline - time.monotonic(), 0.0))
