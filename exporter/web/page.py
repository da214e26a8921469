"""``/``: the landing page, for a person at night; one answer, nothing fetched from elsewhere."""

import base64
import hashlib
from collections.abc import Callable
from datetime import datetime
from functools import cache
from html import escape
from importlib import resources
from string import Template
from urllib.parse import quote

from exporter import __version__
from exporter.events import Target
from exporter.health import Health
from exporter.lifecycle import TrackedEvent
from exporter.snapshot import Snapshot
from exporter.views import ApprovalView
from exporter.web import words
from exporter.web.http import HTML, Response
from exporter.web.sections import Mood, by_urgency, main, mood

_DASH = " \N{EN DASH} "

# The tab's icon in each mood: shape and colour both tell.
_ICONS = {
    Mood.OK: ("#1a7f37", "M4 9l3 3 5-7"),
    Mood.WARN: ("#9a6700", "M8 3v6M8 11v2"),
    Mood.ALARM: ("#b42318", "M4 4l8 8M12 4l-8 8"),
}


def landing(
    snapshot: Snapshot, health: Health, now: datetime, approval: Callable[[TrackedEvent], ApprovalView]
) -> Response:
    """Render the page as of ``now``; nothing that comes from Azure is markup in it."""
    template, style, script = _files()
    state = mood(snapshot, health, now)
    body = Template(template).substitute(
        title=escape(title(snapshot, now)),
        icon=_icon(state),
        style=style,
        script=script,
        build=_digest(template + style + script),
        main=main(snapshot, health, now, approval),
        version=escape(__version__),
    )
    headers = (("content-security-policy", _policy(style, script)), ("referrer-policy", "no-referrer"))
    return Response(body.encode(errors="replace"), HTML, headers=headers)


def title(snapshot: Snapshot, now: datetime) -> str:
    """Give the tab's title, which tells the gist: ``1 pending: Reboot in 12 min - vm-1``."""
    own = [t.event for t in by_urgency(snapshot.current, now) if t.target is Target.SELF]
    about = f"{len(own)} pending: {words.gist(own[0], now)}" if own else "Nothing pending"
    if not snapshot.up or snapshot.stands_still(now):
        state = "BLIND" if snapshot.ready else "Waiting for Azure"
        about = f"{state}{_DASH}{about}" if own else state
    return f"{about}{_DASH}{snapshot.instance or 'Azure scheduled events'}"


@cache
def _files() -> tuple[str, str, str]:
    folder = resources.files("exporter.web")
    html, css, js = (
        folder.joinpath(f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js")
    )
    return html, css, js


def _policy(style: str, script: str) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src 'sha256-{_digest(style)}'",
            f"script-src 'sha256-{_digest(script)}'",
            "connect-src 'self'",
            "img-src data:",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


@cache
def _digest(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _icon(state: Mood) -> str:
    colour, path = _ICONS[state]
    picture = (
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'>"
        f"<circle cx='8' cy='8' r='8' fill='{colour}'/>"
        f"<path d='{path}' stroke='white' stroke-width='2' fill='none'/></svg>"
    )
    return f"data:image/svg+xml,{quote(picture)}"
