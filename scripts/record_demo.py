"""Record the demo's terminal as a moving picture: an SVG that shows each frame for a second.

python -m scripts.record_demo docs/images/demo.svg
"""

import html
import io
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from exporter.app import Options
from exporter.clock import SystemClock
from exporter.commands.demo import Demo, demonstrating, frame
from scripts.project import ROOT

RECORDING = ROOT / "docs" / "images" / "demo.svg"
SECONDS = 30
WIDTH, HEIGHT = 80, 24
# What rich puts its drawing of a terminal into (Console.export_svg, code_format).
_PICTURE = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>The demo on a terminal: simulated events, and the messages about them</title>
<style>
.frame {{ visibility: hidden; animation: show SECONDSs step-end infinite; }}
@keyframes show {{ 0% {{ visibility: visible; }} SHARE% {{ visibility: hidden; }} }}
text {{ font: {char_height}px monospace; white-space: pre; }}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#292929"/>
<g transform="translate({terminal_x}, {terminal_y})">
FRAMES
</g>
</svg>
"""
_FRAME = """\
<g class="frame" style="animation-delay: DELAYs"><style>{styles}</style><defs>{lines}</defs>{matrix}</g>
"""

_LINE = re.compile(r'<text class="f(\d+)-[^>]* y="([^"]+)"[^>]*>([^<]*)</text>')
_ID = re.compile(r"[0-9A-Fa-f]{8}-[0-9A-Fa-f-]{4,}")
_VARYING = re.compile(r"\d+\s?(min|[dhms])\b|\d+[dhms]?|[:\s]")


def screen(demo: Demo) -> Console:
    """Return a terminal that shows the demo as it is now."""
    console = Console(
        record=True, width=WIDTH, height=HEIGHT, file=io.StringIO(), force_terminal=True, highlight=False
    )
    drawn = frame(demo, HEIGHT)
    end = "\n" * (HEIGHT - len(drawn.split("\n")))
    console.print(drawn, end=end, no_wrap=True, overflow="ellipsis")
    return console


def picture(demo: Demo, seconds: int) -> str:
    """Return the picture of the next seconds of a demo."""
    frames = []
    whole = ""
    for number in range(seconds):
        console = screen(demo)
        whole = whole or console.export_svg(clear=False, code_format=_PICTURE, unique_id="demo")
        svg = console.export_svg(code_format=_FRAME, unique_id=f"f{number}")
        frames.append(svg.replace("DELAY", str(number)))
        time.sleep(1)
    for name, value in (("SECONDS", seconds), ("SHARE", f"{100 / seconds:.3f}"), ("FRAMES", "".join(frames))):
        whole = whole.replace(name, str(value))
    return whole


def problems() -> Iterator[str]:
    """Yield lines of the screen with the demo's first message that the recording does not show."""
    with demonstrating(Options(listen_address="127.0.0.1:0"), SystemClock()) as demo:
        until = time.monotonic() + SECONDS
        while not demo.messages.after(0)[0] and time.monotonic() < until:
            time.sleep(0.1)
        lines = screen(demo).export_text().splitlines()
    shown = {_gist(line) for line in lines} - {""}
    for line in shown - _recorded():
        yield f"{RECORDING.name}: the demo has changed, run make recording: {line}"


def _gist(line: str) -> str:
    """Return a line without what differs in each recording: ids, times, ports, and padding."""
    return _VARYING.sub("", _ID.sub("", line))


def _recorded() -> set[str]:
    lines: dict[tuple[str, str], str] = {}
    for number, place, text in _LINE.findall(RECORDING.read_text(encoding="utf-8")):
        lines[number, place] = lines.get((number, place), "") + html.unescape(text)
    return set(map(_gist, lines.values()))


def main(path: Path) -> None:
    """Write the picture to a file."""
    with demonstrating(Options(listen_address="127.0.0.1:9843"), SystemClock()) as demo:
        path.write_text(picture(demo, SECONDS), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
