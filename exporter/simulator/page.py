"""``/``: the simulator's control page, the same for every request.

Its script fetches the state from the API and inserts it as text, never as markup.
"""

from functools import cache

from exporter.web import html
from exporter.web.http import Response


@cache
def page() -> Response:
    """Return the page."""
    return html.render("exporter.simulator")
