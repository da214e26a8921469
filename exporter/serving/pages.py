"""HTML pages rendered from Jinja2 templates, with a style and a script of their own and no other."""

import base64
import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources

from exporter.model.wording import printable
from exporter.serving.http import HTML, Response


def html_page(package: str, **values: object) -> Response:
    """Render the template ``page.html`` of a package. Values are escaped; no script but ``page.js`` may run.

    Besides ``values``, the template gets ``style`` (``page.css``) and ``script`` (``page.js``), which are
    included unescaped, and ``build``, a digest of all three files.
    """
    template, headers = _load(package)
    return Response(template(values).encode(), HTML, headers=headers)


@cache
def _load(package: str) -> tuple[Callable[..., str], Mapping[str, str]]:
    # Imported on first use: most VMs' pages are never viewed.
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
    headers = {"content-security-policy": policy, "referrer-policy": "no-referrer"}
    return environment.from_string(html, globals=own).render, headers


def _visible(value: object) -> object:
    """Return text on one line, with control characters and bidirectional marks replaced by ``?``.

    A bidirectional mark can affect the surrounding text, even outside its own element.
    """
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return printable(" ".join(value.split()))
    return value


def _digest(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
