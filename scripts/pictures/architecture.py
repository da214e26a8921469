"""The picture of what the exporter talks to: ``python -m scripts.pictures.architecture [FILE]``.

One SVG for light and dark: browsers apply its `prefers-color-scheme` also where it is an image. It has a
ground of its own, because a page can be light while the browser prefers dark.
"""

import html
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.project import ROOT

_WIDTH, _HEIGHT = 900, 450
_STYLE = """
text { font: 14px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; text-anchor: middle }
.small { font-size: 12px; fill: #59636e }
.name { font-weight: 600 }
.ground { fill: #fff }
.box { fill: #f6f8fa; stroke: #818b98; stroke-width: 1.2 }
.own { fill: #ddf4ff; stroke: #0969da }
.vm { fill: none; stroke: #818b98; stroke-dasharray: 6 5 }
.arrow { fill: none; stroke: #59636e; stroke-width: 1.4; marker-end: url(#head) }
.head { fill: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 }
  .ground { fill: #0d1117 }
  .box { fill: #151b23; stroke: #656c76 } .own { fill: #121d2f; stroke: #4493f8 }
  .vm { stroke: #656c76 } .arrow { stroke: #9198a1 } .head { fill: #9198a1 }
}
"""


@dataclass(frozen=True)
class Box:
    """A rectangle with a name, and lines below it; positions in pixels from the top left."""

    left: int
    top: int
    width: int
    height: int
    name: str
    lines: tuple[str, ...] = ()
    own: bool = False

    @property
    def right(self) -> int:
        return self.left + self.width

    @property
    def middle(self) -> int:
        return self.top + self.height // 2

    @property
    def center(self) -> int:
        return self.left + self.width // 2

    @property
    def bottom(self) -> int:
        return self.top + self.height


_IMDS = Box(20, 190, 140, 66, "Azure IMDS", ("Scheduled Events",))
_EXPORTER = Box(320, 130, 190, 186, "Exporter", ("state on disk", "page, API, health check"), own=True)
_HOOKS = Box(330, 360, 170, 46, "Hooks", ("your commands",))
_RIGHT = 700
_PROMETHEUS = Box(_RIGHT, 20, 180, 46, "Prometheus", ("alerts, Grafana",))
_ALERTMANAGER = Box(_RIGHT, 104, 180, 46, "Alertmanager", ("one message per event",))
_APPRISE = Box(_RIGHT, 184, 180, 66, "Apprise, webhooks", ("chat, email, pagers,", "automation"))
_OTLP = Box(_RIGHT, 284, 180, 46, "OTLP receiver", ("traces, metrics, logs",))
_KUBERNETES = Box(_RIGHT, 368, 180, 46, "Kubernetes API", ("conditions, drain",))
_BOXES = (_IMDS, _EXPORTER, _HOOKS, _PROMETHEUS, _ALERTMANAGER, _APPRISE, _OTLP, _KUBERNETES)


_DESCRIPTION = (
    "The exporter on each VM polls Azure IMDS once a second and approves events there. Prometheus scrapes it "
    "and alerts through Alertmanager, or the exporter posts alerts there itself. It sends messages through "
    "Apprise and webhooks, exports over OTLP, runs hooks, and marks and drains the Node through the "
    "Kubernetes API."
)
_BEGIN = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}"
 height="{_HEIGHT}" role="img" aria-label="{_DESCRIPTION}">
<style>{_STYLE}</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
<path class="head" d="M0 0 8 4 0 8z"/></marker></defs>
<rect class="ground" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>
<rect class="vm" x="300" y="84" width="230" height="{_HEIGHT - 100}" rx="10"/>"""


def picture() -> str:
    """Return the SVG."""
    parts = [_BEGIN, _text(415, 106, "each VM or Node", "small")]
    for box in _BOXES:
        parts.extend(_box(box))
    return "\n".join((*parts, *_arrows(), "</svg>", ""))


def _box(box: Box) -> Iterator[str]:
    kind = "box own" if box.own else "box"
    place = f'x="{box.left}" y="{box.top}" width="{box.width}" height="{box.height}"'
    yield f'<rect class="{kind}" {place} rx="7"/>'
    top = box.middle - 9 * len(box.lines) + 5
    yield _text(box.center, top, box.name, "name")
    for number, line in enumerate(box.lines, 1):
        yield _text(box.center, top + 17 * number, line, "small")


def _arrows() -> Iterator[str]:
    own = _EXPORTER
    yield _line(own.left, 212, _IMDS.right, 212)
    yield _text(230, 204, "polls every second", "small")
    yield _line(own.left, 238, _IMDS.right, 238)
    yield _text(230, 256, "approves", "small")
    yield _line(own.center, own.bottom, own.center, _HOOKS.top)
    # Prometheus comes to the exporter; all others are sent to.
    yield _curve(_PROMETHEUS.left, _PROMETHEUS.middle, own.right, 158)
    yield _text(600, 62, "scrapes", "small")
    yield _line(_PROMETHEUS.center, _PROMETHEUS.bottom, _PROMETHEUS.center, _ALERTMANAGER.top)
    yield _text(_PROMETHEUS.center + 32, 90, "alerts", "small")
    yield _curve(own.right, 188, _ALERTMANAGER.left, _ALERTMANAGER.middle)
    yield _text(658, 170, "or posts alerts", "small")
    yield _curve(own.right, 217, _APPRISE.left, _APPRISE.middle)
    yield _text(610, 210, "sends", "small")
    yield _curve(own.right, 252, _OTLP.left, _OTLP.middle)
    yield _text(634, 270, "exports", "small")
    yield _curve(own.right, 286, _KUBERNETES.left, _KUBERNETES.middle)
    yield _text(580, 374, "marks, drains", "small")


def _line(x1: int, y1: int, x2: int, y2: int) -> str:
    return f'<path class="arrow" d="M{x1} {y1} {x2} {y2}"/>'


def _curve(x1: int, y1: int, x2: int, y2: int) -> str:
    half = (x1 + x2) // 2
    return f'<path class="arrow" d="M{x1} {y1}C{half} {y1} {half} {y2} {x2} {y2}"/>'


def _text(x: int, y: int, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{html.escape(text)}</text>'


def main() -> None:
    """Write the picture."""
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images" / "architecture.svg"
    file.write_text(picture())


if __name__ == "__main__":
    main()
