"""The sample configurations of docs/, examples/ and deploy/, at work."""

import re
from pathlib import Path

import pytest
import yaml

from exporter.config import Config
from tests.bench import Build
from tests.builders import raw_event
from tests.docs.pages import ROOT, blocks, sample
from tests.receivers import http_receiver

SECRETS = re.compile(r"/run/secrets/(\w+)|/etc/azure-scheduled-events-exporter/(\w+)")
ALERTMANAGER = re.compile(r"https://(alertmanager[\w-]*)\.example\.com:9093")
VARIABLE = re.compile(r"\$\{(\w+)\}")
EXAMPLES = sorted((ROOT / "examples").glob("*/exporter.yml"))
SAMPLES = {
    "deploy/exporter.yml": sample(),
    **{str(file.relative_to(ROOT)): file.read_text() for file in EXAMPLES},
    **{
        str(block): block.text
        for block in blocks("yaml")
        if set(next(yaml.safe_load_all(block.text))) <= set(Config.__struct_fields__)
    },
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The program follows an event with it to its end, without any problem, and can reload it."""
    text = SAMPLES[name]
    for found in VARIABLE.findall(text):
        is_webhook = f"webhook: ${{{found}}}" in text
        monkeypatch.setenv(found, f"{'https' if is_webhook else 'json'}://receiver.test")
    for found in SECRETS.finditer(text):
        (tmp_path / (found[1] or found[2])).write_text("json://receiver.test")
    text = SECRETS.sub(lambda found: str(tmp_path / (found[1] or found[2])), text)
    with http_receiver() as receiver:
        bench = build(ALERTMANAGER.sub(rf"http://{receiver.authority}/\1", text))
        event = raw_event(EventType="Reboot", DurationInSeconds=-1)
        bench.show(event, wait=120)
        bench.show(event | {"EventStatus": "Started", "NotBefore": ""}, wait=10)
        bench.show(wait=10)
        assert bench.reload() == 200
        assert bench.api("problems") == []
        (past,) = bench.api("past")
        assert past["outcome"] == "completed"
    urls = " ".join(yaml.safe_load(text).get("alertmanager", {}).get("urls", []))
    paths = {f"/{found}/api/v2/alerts" for found in ALERTMANAGER.findall(urls)}
    assert {request.path for request in receiver.requests} == paths
