"""Tests of `exporter.web.exposition`: the text of a scrape, part of which is kept."""

import gzip
import zlib
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from exporter.metrics import EventCollector
from exporter.model.views import Snapshot
from exporter.serving.http import Response
from exporter.web.exposition import Deflated, Encode, Exposition
from tests.builders import scheduled
from tests.clocks import HandClock
from tests.memory import traced
from tests.web.support import life


class Counting(Collector):
    """Has one sample: how often it was collected."""

    times = 0

    def collect(self) -> Iterator[GaugeMetricFamily]:
        self.times += 1
        yield GaugeMetricFamily("b_collected", "Times.", self.times)


@pytest.mark.parametrize("encode", [generate_latest, openmetrics.generate_latest])
def test_a_part_is_kept_while_nothing_changes(encode: Encode) -> None:
    """Both parts make one valid text, as it is and compressed; only the other part is rendered each time."""
    registry, clock, collector, version = CollectorRegistry(), HandClock(), Counting(), ["one"]
    gauge = Gauge("a_fresh", "One.", registry=registry)
    exposition = Exposition(registry, clock, events=collector, version=lambda: tuple(version))
    base = collector.times

    def scraped(names: tuple[str, ...] = ()) -> list[str]:
        text = exposition.text(encode, "", names)
        plain = gzip.decompress(text.gzipped())
        assert plain == zlib.decompress(text.data, wbits=-zlib.MAX_WBITS)
        assert len(plain) == text.size
        return [line for line in plain.decode().splitlines() if not line.startswith("# HELP")]

    end = ["# EOF"] if encode is openmetrics.generate_latest else []
    kept = ["# TYPE b_collected gauge", f"b_collected {base + 1}.0"]
    assert scraped() == [*kept, "# TYPE a_fresh gauge", "a_fresh 0.0", *end]
    gauge.set(7)
    assert scraped() == [*kept, "# TYPE a_fresh gauge", "a_fresh 7.0", *end]
    assert scraped(("a_fresh",)) == ["# TYPE a_fresh gauge", "a_fresh 7.0", *end]
    version[0] = "two"
    assert scraped()[1] == f"b_collected {base + 2}.0"
    for _ in range(2):
        clock.pass_seconds(300)
        exposition.tidy()
        assert scraped()[1] == f"b_collected {base + 2}.0"
    clock.pass_seconds(301)
    exposition.tidy()
    assert scraped()[1] == f"b_collected {base + 3}.0"


@pytest.mark.parametrize("encode", [generate_latest, openmetrics.generate_latest])
def test_the_samples_of_many_events_are_never_held_as_a_whole(encode: Encode) -> None:
    """They are rendered in parts, which make one family each, and sent in pieces."""
    lives = [life(scheduled(event_id=f"{number:032x}")) for number in range(5000)]
    events = EventCollector(lambda: Snapshot(current=tuple(lives), resources=True))
    exposition = Exposition(CollectorRegistry(), HandClock(), events=events)

    def render_and_send() -> tuple[Deflated, int]:
        text = exposition.text(encode, "")
        return text, max(map(len, Response(text.data, inflated_size=text.size).pieces()))

    (text, longest), peak = traced(render_and_send)
    assert longest == 16 * 1024
    lines = zlib.decompress(text.data, wbits=-zlib.MAX_WBITS).decode().splitlines()
    types = [line for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types)) == 7
    assert sum("_event_info{" in line for line in lines) == 5000
    assert sum("_event_resource_info{" in line for line in lines) == 10_000
    assert peak < 3 * 2**20 < text.size
