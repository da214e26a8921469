"""Hooks of MkDocs: alerts and runbooks are pages, too, and links lead to where the site has each file."""

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

# Warnings of MkDocs' own loggers fail a strict build.
log = logging.getLogger("mkdocs.hooks.site")

_ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"\]\((\.\./[^)#]+)(#[^)]*)?\)")
# Pages outside of docs/, as the repository has them.
_ALERTS = [_ROOT / "alerts" / "README.md", *sorted((_ROOT / "alerts" / "runbooks").glob("*.md"))]
_MORE = {page.relative_to(_ROOT).as_posix(): page for page in _ALERTS}


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages about alerts; called by MkDocs once."""
    # Its class, as MkDocs is installed only where the site is built.
    file_type = type(next(iter(files)))
    for path, page in _MORE.items():
        files.append(file_type.generated(config, path, abs_src_path=str(page)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Return the text of a page with its links adapted; called by MkDocs for every page."""
    here = page.file.src_uri
    folder = posixpath.dirname(here if here in _MORE else f"docs/{here}")

    def adapted(link: re.Match[str]) -> str:
        path, fragment = posixpath.normpath(posixpath.join(folder, link[1])), link[2] or ""
        if path in _MORE or path.startswith("docs/"):
            shown = posixpath.relpath(path.removeprefix("docs/"), posixpath.dirname(here) or ".")
            return f"]({shown}{fragment})"
        if not (_ROOT / path).exists():
            log.warning("%s: %s does not exist", here, path)
        kind = "tree" if (_ROOT / path).is_dir() else "blob"
        return f"]({config['repo_url']}/{kind}/main/{path}{fragment})"

    return _LINK.sub(adapted, markdown)
