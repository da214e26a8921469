"""Run the benchmarks that are named, or all, and print a table; no figure makes it fail.

Some are measured beside a floor, the least that an exporter in Python can cost, and with BENCH_BASE=DIRECTORY
beside another checkout. These figures mean something on any machine, even a busy one.
"""

import platform
import sys
from collections.abc import Sequence

from benchmarks import core, fleet, growth, hour, latency, notify, process, scrape, traces
from benchmarks.figure import Benchmark, Figure

BENCHMARKS: dict[str, Benchmark] = {
    "idle": process.idle,
    "start": latency.start,
    "change": latency.change,
    "scrape": scrape.scrape,
    "core": core.thousand,
    "targets": notify.idle,
    "message": notify.message,
    "messages": notify.many,
    "traces": traces.traces,
    "otlp": traces.otlp,
    "growth": growth.growth,
    "hour": hour.hour,
    "fleet": fleet.series,
}


def main(names: Sequence[str]) -> int:
    """Measure and print; a name that is not known gives status 2."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(
            f"{unknown[0]!r} is not a benchmark; the benchmarks are: {', '.join(BENCHMARKS)}", file=sys.stderr
        )
        return 2
    print(f"{platform.platform()}, Python {platform.python_version()}; medians of one run\n")
    print(f"{'':80}{'measured':>10}{'aim':>10}")
    for name in names or BENCHMARKS:
        for figure in BENCHMARKS[name]():
            print(row(figure), flush=True)
    return 0


def row(figure: Figure) -> str:
    """Write a figure as a line of the table; one over its aim is marked."""
    aim = "" if figure.aim is None else f"{figure.aim:g}"
    mark = "" if figure.met else "  over"
    return f"{figure.name:80}{figure.value:>10.3g}{aim:>10} {figure.unit}{mark}".rstrip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
