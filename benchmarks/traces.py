"""What export over OTLP costs: traces alone, then all signals; each beside the same without it."""

import gzip
import statistics
from collections.abc import Iterator, Mapping

from benchmarks.figure import Figure
from benchmarks.running import cpu_seconds, polls, resident_mib, running
from tests.builders import raw_event
from tests.end_to_end.program import eventually, get
from tests.outputs.otlp.receiver import spans
from tests.receivers import Receiver, http_receiver

POLLS = 50
ROUNDS = 3


def traces() -> Iterator[Figure]:
    """Run the idle exporter with and without a receiver of traces in turn, then send it spans."""
    memory, cpu, after = [], [], []
    with http_receiver() as receiver:
        there = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://{receiver.authority}/v1/traces"}
        for _ in range(ROUNDS):
            plain, plain_cpu, _ = _idle({}, None)
            traced, traced_cpu, later = _idle(there, receiver)
            memory.append(traced - plain)
            cpu.append(traced_cpu - plain_cpu)
            after.append(later - plain)
    yield Figure("tracing on, idle: memory beyond tracing off", statistics.median(memory), "MiB", 14)
    yield Figure("tracing on, idle: CPU per poll beyond tracing off", statistics.median(cpu), "ms", 0.2)
    yield Figure("tracing on, after spans: memory beyond tracing off", statistics.median(after), "MiB")


def otlp() -> Iterator[Figure]:
    """Run the idle exporter with and without all signals in turn, pushing metrics every second."""
    memory, cpu = [], []
    with http_receiver() as receiver:
        there = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{receiver.authority}",
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        }
        for _ in range(ROUNDS):
            plain, plain_cpu, _ = _idle({}, None)
            everything, pushing_cpu, _ = _idle(there, receiver)
            memory.append(everything - plain)
            # Five polls in the second between two pushes.
            cpu.append((pushing_cpu - plain_cpu) * 5)
        sizes = [len(one.body) for one in receiver.requests if one.path == "/v1/metrics"]
        packed = [len(gzip.compress(one.body)) for one in receiver.requests if one.path == "/v1/metrics"]
    yield Figure("all of OTLP on: memory beyond none", statistics.median(memory), "MiB", 16)
    yield Figure("a push of metrics: CPU", statistics.median(cpu), "ms", 15)
    yield Figure("a push of metrics: size", statistics.median(sizes) / 1000, "kB", 40)
    yield Figure("a push of metrics: size by gzip", statistics.median(packed) / 1000, "kB")


def _idle(environ: Mapping[str, str], receiver: Receiver | None) -> tuple[float, float, float]:
    """Return memory in MiB, CPU per poll in ms, and memory after some spans."""
    with running("--poll.interval", "200ms", environ=environ) as exporter:
        eventually(lambda: polls(exporter.url) >= 5)
        begun, used = polls(exporter.url), cpu_seconds(exporter.pid)
        eventually(lambda: polls(exporter.url) >= begun + POLLS, within=120, every=2.0)
        per_poll = (cpu_seconds(exporter.pid) - used) / (polls(exporter.url) - begun) * 1000
        memory = resident_mib(exporter.pid)
        if receiver is not None:
            before = len(spans(receiver))
            event = raw_event(EventStatus="Started", NotBefore="")
            exporter.simulator.set_document({"DocumentIncarnation": 1, "Events": [event]})
            eventually(lambda: "_event_info{" in get(f"{exporter.url}/metrics"))
            exporter.simulator.set_document({"DocumentIncarnation": 2, "Events": []})
            eventually(lambda: len(spans(receiver)) == before + 2)
        return memory, per_poll, resident_mib(exporter.pid)
