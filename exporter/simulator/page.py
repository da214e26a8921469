"""``/``: the simulator's control page; one answer, nothing fetched from elsewhere, the same at every request.

What is going on reaches it through the API, and is written as text by its script: nothing is markup.
"""

from functools import cache

from exporter.web import html
from exporter.web.http import Response


@cache
def page() -> Response:
    """Give the page, which allows its own style and script, and requests to its own server."""
    return html.render("exporter.simulator")
