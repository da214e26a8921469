"""What a change, a poll and a scrape cost as events grow: it must be linear, or better."""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from benchmarks.core import take
from benchmarks.figure import Figure
from exporter.clock import SystemClock
from exporter.metrics import SnapshotCollector
from exporter.model.advance import advance
from exporter.model.documents import decode_document
from exporter.model.lifecycle import WatchState
from exporter.model.views import Snapshot
from tests.builders import body, raw_event
from tests.web.support import Scene

SIZES = (1, 10, 100, 1000)
WORDS = {
    "change": "a changed document: decoded, understood, remembered",
    "decode": "of that, decoding",
    "scrape": "a scrape",
}
_ROUNDS = 5


def growth() -> Iterator[Figure]:
    """Measure each size, and compare what an event costs among a thousand and among ten."""
    found = measure()
    for name, words in WORDS.items():
        for size in SIZES:
            yield Figure(f"{words}, {size} events", found[name][size] * 1000, "ms")
        per_event = {size: found[name][size] / size for size in (10, 1000)}
        yield Figure(
            f"{words}: an event among 1000 to one among 10",
            per_event[1000] / per_event[10],
            "times",
            1.5,
        )


def measure() -> dict[str, dict[int, float]]:
    """Return the seconds by what is measured and how many events there are; medians of some rounds."""
    found: dict[str, dict[int, float]] = {name: {} for name in WORDS}
    for size in SIZES:
        document = body(*(raw_event(EventId=f"{number:032x}") for number in range(size)))
        found["change"][size] = _median(partial(take, document))
        found["decode"][size] = _median(partial(_timed, decode_document, document))
        registry = _registry(document)
        found["scrape"][size] = _median(partial(_timed, generate_latest, registry))
    return found


def _median(run: Callable[[], float]) -> float:
    return statistics.median(run() for _ in range(_ROUNDS))


def _timed(act: Callable[..., object], what: object) -> float:
    begun = time.perf_counter()
    act(what)
    return time.perf_counter() - begun


def _registry(document: bytes) -> CollectorRegistry:
    found, now = decode_document(document), SystemClock().now()
    known = advance(WatchState(), found, now, instance="WestNO_0", watching=True).state
    snapshot = Snapshot(instance="WestNO_0", up=True, ready=True, current=tuple(known.current.values()))
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(Scene(snapshot)))
    return registry


def draw(path: Path) -> None:
    """Draw what was measured, both axes logarithmic, with a line to show what linear is."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    found = measure()
    figure, axes = pyplot.subplots(figsize=(8, 4.5), dpi=100)
    for name, words in WORDS.items():
        axes.plot(SIZES, [found[name][size] * 1000 for size in SIZES], marker="o", label=words)
    last = found["change"][SIZES[-1]] * 1000
    axes.plot(SIZES, [last * size / SIZES[-1] for size in SIZES], "--", color="grey", label="linear")
    axes.set(xscale="log", yscale="log", xlabel="events in the document", ylabel="ms, median")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw the cost of events as they grow.")
    parser.add_argument("path", type=Path)
    draw(parser.parse_args().path)
