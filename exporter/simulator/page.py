"""``/``: the simulator's control page; one answer, nothing fetched from elsewhere, the same at every request.

What is going on reaches it through the API, and is written as text by its script: nothing is markup.
"""

import base64
import hashlib
from functools import cache
from importlib import resources
from string import Template

from exporter.web.http import HTML, Response


@cache
def page() -> Response:
    """Give the page, which allows its own style and script, and requests to its own server."""
    folder = resources.files("exporter.simulator")
    html, css, js = (
        folder.joinpath(f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js")
    )
    policy = (
        f"default-src 'none'; style-src 'sha256-{_digest(css)}'; script-src 'sha256-{_digest(js)}'; "
        "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
    headers = (("content-security-policy", policy), ("referrer-policy", "no-referrer"))
    return Response(Template(html).substitute(style=css, script=js).encode(), HTML, headers=headers)


def _digest(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
