"""HTML pages from Jinja2 templates: values are escaped, and only the page's own style and script apply."""

import base64
import hashlib
from collections.abc import Callable
from functools import cache
from importlib import resources

from exporter.model.wording import printable
from exporter.web.http import HTML, Response


def render(package: str, **values: object) -> Response:
    """Render the template ``page.html`` of a package.

    Beside ``values`` the template gets ``style`` (``page.css``), ``script`` (``page.js``), to be included as
    they are, and ``build``, a digest of all three files.
    """
    template, headers = _load(package)
    return Response(template(values).encode(), HTML, headers=headers)


@cache
def _load(package: str) -> tuple[Callable[..., str], tuple[tuple[str, str], ...]]:
    # Imported at the first view: few ever look at a VM's page.
    from jinja2 import Environment, StrictUndefined

    folder = resources.files(package)
    html, style, script = (
        folder.joinpath(f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js")
    )
    environment = Environment(
        autoescape=True, finalize=_visible, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    own = {"style": style, "script": script, "build": _digest(html + style + script)}
    policy = (
        f"default-src 'none'; style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'; "
        "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
    headers = (("content-security-policy", policy), ("referrer-policy", "no-referrer"))
    return environment.from_string(html, globals=own).render, headers


def _visible(value: object) -> object:
    """Return text on one line, with ``?`` for control characters and for marks that reorder text.

    A bidirectional mark would also affect what is around it: it can end the isolation of its own element.
    """
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return printable(" ".join(value.split()))
    return value


def _digest(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
