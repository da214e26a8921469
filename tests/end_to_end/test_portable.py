"""The running exporter with nothing around it that only POSIX has: CI runs this on Windows, too."""

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exporter.simulator import Simulator, SimulatorServer
from tests.builders import body, raw_event
from tests.end_to_end.program import eventually, exporter, get

NAME = "demo_0"


@contextlib.contextmanager
def exporter_at(imds: str, folder: Path, config: dict[str, Any]) -> Iterator[str]:
    """Run the exporter on a port that it chooses, until the end of the block; yield the URL that it logs."""
    file, log = folder / "exporter.yml", folder / "log"
    file.write_text(json.dumps(config), encoding="utf-8")
    log.unlink(missing_ok=True)
    flags = ("--config.file", str(file), "--log.format", "json")
    with exporter(imds, folder / "state", 0, *flags, log=log):
        lines = eventually(lambda: re.findall(r'^.*"url".*\n', log.read_text(encoding="utf-8"), re.MULTILINE))
        url: str = json.loads(lines[0])["url"]
        eventually(lambda: get(f"{url}/-/ready"))
        yield url


def hook(name: str, code: str, timeout: str = "30s") -> dict[str, Any]:
    return {"name": name, "command": [sys.executable, "-c", code], "timeout": timeout}


def test_events_are_served_and_run_hooks(tmp_path: Path) -> None:
    """An event is on every page, a hook runs, a hanging one is ended, and a restart keeps all of that."""
    note = tmp_path / "note"
    write = f"import os, pathlib; pathlib.Path({str(note)!r}).write_text(os.environ['EVENT_ID'])"
    hooks = [hook("note", write), hook("hang", "import time; time.sleep(600)", timeout="1s")]
    config = {"imds": {"poll_interval": "200ms"}, "hooks": hooks}
    listed = raw_event(Resources=[NAME])
    simulator = Simulator(vm_name=NAME, requests_per_second=0)
    with SimulatorServer(simulator) as imds:
        with exporter_at(imds.url, tmp_path, config) as url:
            simulator.set_document(body(listed))
            eventually(lambda: 'hooks_total{hook="note",outcome="succeeded"} 1.0' in get(f"{url}/metrics"))
            eventually(lambda: 'hooks_total{hook="hang",outcome="timed_out"} 1.0' in get(f"{url}/metrics"))
            assert note.read_text() == listed["EventId"]
            assert listed["EventId"] in get(f"{url}/")
            (first,) = json.loads(get(f"{url}/api/v1/events"))["current"]
        with exporter_at(imds.url, tmp_path, config) as url:
            (again,) = json.loads(get(f"{url}/api/v1/events"))["current"]
    assert (again["id"], again["first_seen"]) == (first["id"], first["first_seen"])
