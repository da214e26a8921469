"""The demo's traces in a real backend, Phoenix, read back by its API.

Not among the tests that pytest finds by itself: Phoenix is heavy. ``make test-phoenix`` installs and runs it.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exporter.model.events import trace_id
from tests.end_to_end.program import eventually, free_port, get

FACT = "azure.scheduled_event."


@contextlib.contextmanager
def phoenix(folder: Path) -> Iterator[str]:
    port = free_port()
    environ = {
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    program = os.environ["PHOENIX"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "serve"], env=os.environ | environ, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: get(f"{url}/healthz") is not None, within=90)
        yield url
    finally:
        process.terminate()
        process.wait()


def stored(url: str) -> list[dict[str, Any]]:
    answer = json.loads(get(f"{url}/v1/projects/default/spans?limit=1000"))
    found: list[dict[str, Any]] = answer["data"]
    return found


def test_the_demo_in_phoenix(tmp_path: Path) -> None:
    """A whole life arrives: one trace with the EventId's id, a root, and phases and messages below it."""
    with phoenix(tmp_path) as url:
        command = [sys.executable, "-m", "exporter", "demo"]
        environ = os.environ | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{url}/v1/traces"}
        demo = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            roots = eventually(
                lambda: [
                    span
                    for span in stored(url)
                    if not span["parent_id"] and span["attributes"][f"{FACT}outcome"] == "completed"
                ],
                within=90,
                every=1.0,
            )
        finally:
            demo.terminate()
            demo.wait()
        root = roots[0]
        spans = [s for s in stored(url) if s["context"]["trace_id"] == root["context"]["trace_id"]]
    parents = {span["parent_id"] for span in spans if span["id"] != root["id"]}
    below = {span["name"] for span in spans if span["id"] != root["id"]}
    assert root["name"] == f"scheduled_event {root['attributes'][f'{FACT}type']}"
    assert root["context"]["trace_id"] == trace_id(root["attributes"][f"{FACT}id"])
    assert {"started", "notify terminal"} <= below
    assert parents == {root["context"]["span_id"]}
