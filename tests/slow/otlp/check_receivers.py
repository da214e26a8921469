"""Metrics in real receivers of OTLP: a Collector and Prometheus show what `/metrics` shows.

Not among the tests that pytest finds by itself: ``make test-otlp`` builds both programs by Go.
"""

import contextlib
import json
import os
import subprocess
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporter.model.events import trace_id
from exporter.simulator import Simulator, SimulatorServer
from tests.end_to_end.program import eventually, free_port, get
from tests.end_to_end.vm import EVENT, NAME, Vm, event

TOOLS = Path(os.environ.get("TOOLS", ".tools"))
PREFIX = "azure_scheduled_events_"
# These differ between two moments; that they are there is compared.
_MOVING = (
    "seconds_to_not_before",
    "poll",
    "last_success",
    "process_",
    "metric_pushes",
    "log_records",
    "spans",
)
# What receivers add: the resource and the scope.
_ADDED = ("job", "instance", "otel_scope_", "telemetry_", "__name__")

Series = tuple[str, frozenset[tuple[str, str]]]

COLLECTOR = """
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{otlp}"}}}}}}}}
exporters:
  prometheus: {{endpoint: "127.0.0.1:{page}", enable_open_metrics: true}}
  debug: {{verbosity: detailed}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    metrics: {{receivers: [otlp], exporters: [prometheus]}}
    logs: {{receivers: [otlp], exporters: [debug]}}
    traces: {{receivers: [otlp], exporters: [debug]}}
"""


@contextlib.contextmanager
def running(log: Path, *command: str | Path) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def series(name: str, labels: Mapping[str, str]) -> Series:
    """Return what identifies a series; bounds of buckets are written in different ways."""
    kept = {key: text for key, text in labels.items() if text and not key.startswith(_ADDED)}
    if "le" in kept:
        kept["le"] = str(float(kept["le"]))
    return name, frozenset(kept.items())


def page(text: str) -> dict[Series, float]:
    return {
        series(sample.name, sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def compare(found: dict[Series, float], shown: dict[Series, float]) -> None:
    """Compare what a receiver has with the page of the exporter."""
    ours = {one: value for one, value in found.items() if one[0].startswith((PREFIX, "process_"))}
    assert sorted(map(str, shown.keys() - ours.keys())) == []
    assert sorted(map(str, ours.keys() - shown.keys())) == []
    still = {one for one in shown if not any(part in one[0] for part in _MOVING)}
    assert {one: ours[one] for one in still} == {one: shown[one] for one in still}


@pytest.fixture
def vm(tmp_path: Path) -> Iterator[Vm]:
    simulator = Simulator(vm_name=NAME, requests_per_second=0)
    with SimulatorServer(simulator) as imds:
        found = Vm(tmp_path / "vm", imds)
        found.configure()
        yield found


def started(vm: Vm) -> None:
    vm.tell(event())
    vm.tell(event(status="Started", NotBefore=""))


def test_a_collector(vm: Vm, tmp_path: Path) -> None:
    """Its page has each series, with name, labels and value; its log has the records and the spans."""
    otlp, exposed = free_port(), free_port()
    (tmp_path / "config.yaml").write_text(COLLECTOR.format(otlp=otlp, page=exposed))
    log = tmp_path / "log"
    url = f"http://127.0.0.1:{exposed}/metrics"
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{otlp}",
        "OTEL_METRIC_EXPORT_INTERVAL": "1000",
    }
    with running(log, TOOLS / "otelcol", "--config", tmp_path / "config.yaml"), vm.running(**environ):
        eventually(lambda: f"{PREFIX}up" in get(url))
        started(vm)
        counted = f'{PREFIX}transitions_total{{event_type="Reboot"'
        eventually(lambda: counted in get(url))
        eventually(lambda: _matches(page(get(url)), vm), within=20)
        compare(page(get(url)), page(get(f"{vm.url}/metrics")))
        vm.tell()
        eventually(lambda: "azure.scheduled_event.completed" in log.read_text())
        eventually(lambda: "scheduled_event Reboot" in log.read_text())
    text = log.read_text()
    assert "EventName: azure.scheduled_event.started" in text
    assert f"Trace ID: {trace_id(EVENT)}" in text
    assert "log.record.uid" in text


def test_prometheus(vm: Vm, tmp_path: Path) -> None:
    """Its OTLP receiver stores each series of ours, with name, labels, value and exemplar."""
    port = free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text("scrape_configs: []\n")
    url = f"http://127.0.0.1:{port}"
    flags = ["--web.enable-otlp-receiver", "--enable-feature=exemplar-storage"]
    flags += [f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    environ = {
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{url}/api/v1/otlp/v1/metrics",
        "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        "OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=vm-0",
    }
    with running(tmp_path / "log", TOOLS / "prometheus3", f"--web.listen-address=127.0.0.1:{port}", *flags):
        eventually(lambda: get(f"{url}/-/ready"))
        with vm.running(**environ):
            started(vm)
            eventually(lambda: _matches(stored(url), vm), within=20)
            compare(stored(url), page(get(f"{vm.url}/metrics")))
        query = urllib.parse.urlencode({"query": f"{PREFIX}transitions_total", "start": "0", "end": "9e9"})
        found, *_ = json.loads(get(f"{url}/api/v1/query_exemplars?{query}"))["data"]
        assert found["exemplars"][0]["labels"]["trace_id"] == trace_id(EVENT)
        assert found["seriesLabels"]["instance"] == "vm-0"


def stored(url: str) -> dict[Series, float]:
    # By default a series that is not pushed any more, as that of a former status, is shown for 5 minutes.
    asked = {"query": f'{{__name__=~"{PREFIX}.+|process_.+"}}', "lookback_delta": "3s"}
    query = urllib.parse.urlencode(asked)
    found = json.loads(get(f"{url}/api/v1/query?{query}"))["data"]["result"]
    return {series(one["metric"]["__name__"], one["metric"]): float(one["value"][1]) for one in found}


def _matches(found: dict[Series, float], vm: Vm) -> bool:
    compare(found, page(get(f"{vm.url}/metrics")))
    return True
