"""A hook of MkDocs: pages of the site link to files outside of docs/ where the repository has them."""

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

# Warnings of MkDocs' own loggers fail a strict build.
log = logging.getLogger("mkdocs.hooks.site")

_ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"\]\((\.\./[^)#]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Return the text of a page with its links adapted; called by MkDocs for every page."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def adapted(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[1]))
        if path.startswith("docs/"):
            return link[0]
        if not (_ROOT / path).exists():
            log.warning("%s: %s does not exist", page.file.src_uri, path)
        kind = "tree" if (_ROOT / path).is_dir() else "blob"
        return f"]({config['repo_url']}/{kind}/main/{path}{link[2] or ''})"

    return _LINK.sub(adapted, markdown)
