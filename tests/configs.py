"""Configurations as the commands read them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from exporter import app
from exporter.config.addresses import NotifyUrls
from exporter.config.loading import Loaded
from exporter.errors import Mistakes
from exporter.outputs.notifications.checking import opened
from exporter.outputs.notifications.planning import Plan


def checked(
    file: Path, environ: Mapping[str, str] | None = None, urls: Sequence[str] = ()
) -> tuple[Loaded, Plan]:
    """Return a configuration whose targets and templates were checked, and its plan; raise its mistakes."""
    mistakes, environ = Mistakes(), environ or {}
    loaded = app.read(app.Options(file, notify=NotifyUrls(urls)), environ, mistakes)
    with opened(loaded, environ, mistakes) as (plan, _):
        mistakes.check()
        loaded.warn()
        return loaded, plan
