import html
import re
from pathlib import Path

from exporter.app import Options
from exporter.clock import SystemClock
from exporter.commands.demo import Demo, demonstrating
from scripts.record_demo import screen
from tests.docs.pages import ROOT
from tests.end_to_end.program import eventually

RECORDING = ROOT / "docs/images/demo.svg"
LINE = re.compile(r'<text class="f(\d+)-[^>]* y="([^"]+)"[^>]*>([^<]*)</text>')
# Ids, times and ports differ in each recording, and with the digits the padding of columns.
ID = re.compile(r"[0-9A-Fa-f]{8}-[0-9A-Fa-f-]{4,}")
VARYING = re.compile(r"\d+\s?(min|[dhms])\b|\d+[dhms]?|[:\s]")


def gist(line: str) -> str:
    """Return a line without what differs in each recording."""
    return VARYING.sub("", ID.sub("", line))


def recorded(path: Path) -> set[str]:
    lines: dict[tuple[str, str], str] = {}
    for number, place, text in LINE.findall(path.read_text(encoding="utf-8")):
        lines[number, place] = lines.get((number, place), "") + html.unescape(text)
    return set(map(gist, lines.values()))


def shown(demo: Demo) -> set[str]:
    """Return the gist of each line of the screen once it shows the first message."""
    eventually(demo.messages.newest)
    return set(map(gist, screen(demo).export_text().splitlines())) - {""}


def test_the_recording_is_current(tmp_path: Path) -> None:
    """It has the screen that the demo shows with its first message; `make recording` renews it."""
    options = Options(listen_address="127.0.0.1:0")
    with demonstrating(options, SystemClock()) as demo:
        missing = shown(demo) - recorded(RECORDING)
    assert not missing, "the demo has changed: make recording"
    stale = tmp_path / "stale.svg"
    stale.write_text(RECORDING.read_text(encoding="utf-8").replace("Expected", "Likely"), encoding="utf-8")
    assert "-Expectedimpactabout" in recorded(RECORDING) - recorded(stale)
