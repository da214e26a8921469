"""What viewers and rules cost a fleet's Prometheus: `python -m benchmarks.queries [VMS...]`.

Writes a day of a synthetic fleet into Prometheus' own blocks, and asks a real Prometheus every query of the
dashboards as Grafana does. Series have their real density. Those about VMs reach back as far as the queries
of a fleet read them, and a day for the VM of the dashboard Instance. Others scrape a fleet without events
and in two storms, all of it from one target, with and without the rules: the difference is what rules cost.
"""

import contextlib
import functools
import itertools
import json
import sys
import tempfile
import time
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import yaml

from benchmarks.__main__ import row
from benchmarks.figure import Figure
from exporter.health import DegradedReason
from exporter.model.events import EVENT_TYPES
from scripts.alerts import RULE_FILES
from tests.alerts.support import tool
from tests.dashboards.reading import NAMES, Asked, interpolate, load, queries, spans
from tests.end_to_end.program import eventually, free_port, get, query, running
from tests.http_server import Connection, Request, answer, serving

DAY = 86_400
EVENTS = 50
HIT = 10
_LIVE = 5
STORMS = (0, 300, 1000)
_SHOWN = 11
_STORM_VMS = 2
# Series of events that have been Started for six hours: rules look back.
_LONG_STARTED, _HISTORY = 200, 6 * 3600
# A minute: in it the group without an interval of its own is evaluated once.
_EVALUATIONS = 12
_AIM = {0: 0.03, 1000: 0.5}
_COUNTERS = (
    ("notifications", "target", ("delivered", "failed", "expired", "refused")),
    ("approvals", "rule", ("approved", "dry_run", "failed", "limited")),
)
_NOTICE, _IMPACT = 900, 600
_STEP = 90
_COARSE_STEP = 300
_JOB = "azure-scheduled-events-exporter"
_BLOCKS = ("promtool", "tsdb", "create-blocks-from", "openmetrics", "-q")
_P, _R = "azure_scheduled_events_", "azure_scheduled_events:event"
_SCHEDULED, _STARTED = 'phase="scheduled",severity="warning"', 'phase="started",severity="critical"'

Series = tuple[str, float, Iterable[int]]
"""A series with its labels, its value, and the times of its samples."""


def write(file: IO[str], vms: int, end: int) -> None:
    """Write a day up to ``end`` as OpenMetrics: scale sets of 100 VMs, and events that hit ten VMs each."""
    for series, value, times in (*_vms(vms, end), *_events(vms, end)):
        file.writelines(f"{series} {value} {at}\n" for at in times)
    file.write("# EOF\n")


def _vm(number: int) -> tuple[str, str]:
    place = f'resource_group="prod",scale_set="set-{number // 100}",zone="{number % 3 + 1}"'
    return f'job="{_JOB}",instance="vm-{number}"', place


def _vms(vms: int, end: int) -> Iterator[Series]:
    now, quarter, hour = (range(end - seconds, end + 1, 15) for seconds in (300, 900, 3600))
    for number in range(vms):
        vm, place = _vm(number)
        down, shown = number < HIT, number == _SHOWN
        yield f"up{{{vm}}}", 0 if down else 1, now
        if down:
            continue
        yield f'{_P}instance_info{{{vm},instance_name="vm_{number}",{place}}}', 1, quarter
        yield f"{_P}up{{{vm}}}", 1, range(end - DAY, end + 1, 15) if shown else now
        yield f"{_P}last_success_timestamp_seconds{{{vm}}}", end, hour
        yield f"{_P}in_service{{{vm}}}", 1, now


def _events(vms: int, end: int) -> Iterator[Series]:
    """Spread events over the day; the last few are under way at its end, and have taken ten VMs down."""
    for event in range(EVENTS):
        over = end - (EVENTS - _LIVE - event) * DAY // EVENTS if event < EVENTS - _LIVE else end + 60
        kind = EVENT_TYPES[event % 3]
        for number in range(HIT):
            vm, _ = _vm((event * HIT + number) % vms)
            which = f'{vm},event_id="E{event:07}",event_type="{kind}"'
            yield from _event(which, over, min(over, end + 1))


def _event(which: str, over: int, until: int) -> Iterator[Series]:
    seen, started = over - _IMPACT - _NOTICE, over - _IMPACT
    before, after = range(seen, started, 15), range(started, until, 15)
    source = f'{which},event_source="Platform",instance_name="vm"'
    info = f'{_P}event_info{{{source},target="self",description="Maintenance."'
    yield f'{info},event_status="Scheduled"}}', 1, before
    yield f'{info},event_status="Started"}}', 1, after
    yield f"{_P}event_not_before_timestamp_seconds{{{which}}}", started, before
    yield f"{_P}event_first_seen_timestamp_seconds{{{which}}}", seen, range(seen, until, 15)
    yield f"{_P}event_started_timestamp_seconds{{{which}}}", started, after
    yield f"{_P}event_duration_seconds{{{which}}}", 30, range(seen, until, 15)
    yield f"{_P}event_resources{{{which}}}", HIT, range(seen, until, 15)
    yield f"{_R}{{{source},{_SCHEDULED}}}", started, range(seen, started, 5)
    yield f"{_R}{{{source},{_STARTED}}}", started, range(started, until, 5)


def storm(vms: int, events: int, now: int) -> str:
    """Return what rules read of a fleet with events of two VMs each that are announced or in progress.

    Each exporter has a target, a hook and a rule for approvals.
    """
    lines: list[tuple[str, float]] = []
    for number in range(vms):
        vm, place = _vm(number)
        lines += [(f"up{{{vm}}}", 1), (f"{_P}up{{{vm}}}", 1)]
        lines.append((f'{_P}build_info{{{vm},version="1"}}', 1))
        lines.append((f'{_P}instance_info{{{vm},instance_name="vm_{number}",{place}}}', 1))
        lines.append((f"{_P}last_success_timestamp_seconds{{{vm}}}", now))
        lines.append((f"{_P}config_last_reload_success_timestamp_seconds{{{vm}}}", now - 3600))
        lines.append((f"{_P}config_last_reload_successful{{{vm}}}", 1))
        lines.append((f"{_P}unannounced_pauses_total{{{vm}}}", 0))
        lines += [(f'{_P}degraded{{{vm},reason="{reason}"}}', 0) for reason in DegradedReason]
        for counter, label, outcomes in _COUNTERS:
            each = [f'{vm},{label}="it",outcome="{outcome}"' for outcome in outcomes]
            lines += [(f"{_P}{counter}_total{{{labels}}}", 0) for labels in each]
        lines.append((f'{_P}notifications_pending{{{vm},target="it"}}', 0))
        for severity in ("warning", "critical"):
            lines.append((f'{_P}hook_failures_total{{{vm},hook="it",severity="{severity}"}}', 0))
    for event, which in _storm_events(vms, events):
        started = event % 3 == 0
        phase = f'{which},event_source="Platform",instance_name="vm",{_STARTED if started else _SCHEDULED}'
        # Half of those that are announced are imminent.
        at = now - 60 if started else now + (200 if event % 2 else 3600)
        lines.append((f"{_P}event_phase_timestamp_seconds{{{phase}}}", at))
    return "".join(f"{series} {value}\n" for series, value in lines)


def _storm_events(vms: int, events: int) -> Iterator[tuple[int, str]]:
    """Yield the number of each event of a storm, and labels, for each of its VMs."""
    for event in range(events):
        event_id = uuid.uuid5(uuid.NAMESPACE_OID, str(event))
        for number in range(_STORM_VMS):
            vm, _ = _vm((event * _STORM_VMS + number) % vms)
            yield event, f'{vm},event_id="{event_id}",event_type="Reboot"'


def history(file: IO[str], vms: int, events: int, end: int) -> None:
    """Write what the recording rule has recorded of a storm's started events for hours, as OpenMetrics."""
    begun = (which for event, which in _storm_events(vms, events) if event % 3 == 0)
    for which in itertools.islice(begun, _LONG_STARTED):
        series = f'{_R}{{{which},event_source="Platform",instance_name="vm",{_STARTED}}}'
        file.writelines(f"{series} {end - _HISTORY} {at}\n" for at in range(end - _HISTORY, end, 5))
    file.write("# EOF\n")


def measure(vms: int) -> Iterator[Figure]:
    """Measure one fleet: the time of the rules, and the processor time of each dashboard's refresh."""
    for events in STORMS:
        text = storm(vms, events, int(time.time())).encode()
        with tempfile.TemporaryDirectory() as work, serving(functools.partial(_expose, text)) as fleet:
            scrape: dict[str, Any] = {"job_name": "storm", "honor_labels": True, "scrape_interval": "15s"}
            scrape["static_configs"] = [{"targets": [fleet.url.removeprefix("http://")]}]
            with _server(Path(work) / "without", {"scrape_configs": [scrape]}) as server:
                scraping = _evaluations(server, vms, 0)
            configuration = {"rule_files": [str(file) for file in RULE_FILES], "scrape_configs": [scrape]}
            if events:
                with _blocks(Path(work) / "with") as file:
                    history(file, vms, events, int(time.time()))
            with _server(Path(work) / "with", configuration) as server:
                yield from _rules(server, vms, events, scraping)
    with tempfile.TemporaryDirectory() as work:
        end = int(time.time())
        with _blocks(Path(work)) as file:
            write(file, vms, end)
        with _server(Path(work), {}) as server:
            for name in NAMES:
                yield from _refresh(server, name, vms, end)


def _expose(text: bytes, connection: Connection, _: Request) -> None:
    connection.send(answer(text, headers="Content-Type: text/plain\r\n"))


@contextlib.contextmanager
def _blocks(folder: Path) -> Iterator[IO[str]]:
    """Yield a file for OpenMetrics, and make it blocks of a Prometheus in this folder at the end."""
    folder.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=folder) as file:
        yield file
        file.flush()
        # Before Prometheus starts, which would not look for new blocks for a while.
        tool(*_BLOCKS, file.name, folder / "tsdb", timeout=1800)


@contextlib.contextmanager
def _server(folder: Path, configuration: dict[str, Any]) -> Iterator[str]:
    """Run a Prometheus with this configuration."""
    folder.mkdir(exist_ok=True)
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(configuration))
    flags = (f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}")
    with running("prometheus", free_port(), *flags) as server:
        yield server


def _rules(server: str, vms: int, events: int, scraping: float) -> Iterator[Figure]:
    cpu = _evaluations(server, vms, events) - scraping
    name = f"{vms} VMs, {events} events, all rules"
    yield Figure(f"{name}: CPU of Prometheus for each evaluation of 5 s", cpu, "s", _AIM.get(events))
    unwell = [rule for rule in _all_rules(server) if rule["health"] != "ok"]
    if unwell:
        raise RuntimeError(f"rules fail: {unwell[0]['name']}: {unwell[0]['lastError']}")


def _evaluations(server: str, vms: int, events: int) -> float:
    """Return the CPU seconds of 5 s, in a minute after the fleet was scraped and alerts fire."""
    eventually(lambda: query(server, f"count(azure_scheduled_events_up) == {vms}"))
    eventually(lambda: not events or query(server, "count(ALERTS)"))
    time.sleep(10)
    before = _cpu(server)
    time.sleep(_EVALUATIONS * 5)
    return (_cpu(server) - before) / _EVALUATIONS


def _all_rules(server: str) -> list[dict[str, Any]]:
    groups = json.loads(get(f"{server}/api/v1/rules"))["data"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _refresh(server: str, name: str, vms: int, end: int) -> Iterator[Figure]:
    """Ask what one refresh asks, three times, and take the cheapest."""
    asked = list(queries(load(name)))
    costs = [_cost(server, asks, name, end) for asks in asked]
    aim = 0.6 if name == "fleet" else None
    yield Figure(f"{vms} VMs, one refresh of {name}: {len(asked)} queries, CPU", sum(costs), "s", aim)
    dearest, asks = max(zip(costs, asked, strict=True), key=lambda pair: pair[0])
    yield Figure(f"{vms} VMs, {name}: its dearest query, of {asks.panel!r}", dearest, "s")


_AGAIN = 3


def _cost(server: str, asks: Asked, name: str, end: int) -> float:
    seconds = 3600 if name == "exporter" else DAY
    step = _COARSE_STEP if asks.coarse else _STEP
    instance = f"vm-{_SHOWN}" if name == "instance" else ".*"
    query = interpolate(asks.expression, spans(seconds, interval=step, scrape=15, instance=instance))
    period = {"time": end} if asks.instant else {"start": end - seconds, "end": end, "step": step}
    path = "query" if asks.instant else "query_range"
    url = f"{server}/api/v1/{path}?{urllib.parse.urlencode({'query': query, **period})}"
    get(url)
    before = _cpu(server)
    for _ in range(_AGAIN):
        get(url)
    return (_cpu(server) - before) / _AGAIN


def _cpu(server: str) -> float:
    return _values(server, "process_cpu_seconds_total")[""]


def _values(server: str, name: str) -> dict[str, float]:
    """Return the samples of one of Prometheus' own metrics, by the value of their only label."""
    found = {}
    for line in get(f"{server}/metrics").splitlines():
        if line.startswith((f"{name} ", f"{name}{{")):
            labels, _, value = line.rpartition(" ")
            found[labels.partition('="')[2].removesuffix('"}')] = float(value)
    return found


def main(sizes: Sequence[str]) -> None:
    """Measure fleets of these numbers of VMs."""
    print(f"{'':72}{'measured':>10}{'aim':>10}")
    for vms in map(int, sizes or ("500", "2000")):
        for figure in measure(vms):
            print(row(figure), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
