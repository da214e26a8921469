"""Shell completion of event ids, scenarios and targets; a source that fails completes nothing."""

import os
from collections.abc import Iterable

import click

from exporter.config import Overrides, loading
from exporter.errors import ExporterError


def event_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from exporter.commands.events import RunningExporter

    exporter = RunningExporter(os.environ.get("SCHEDULED_EVENTS_EXPORTER_URL", "http://127.0.0.1:9843"))
    try:
        listed = [event.id for event in exporter.events().current]
    except ExporterError:
        return []
    given = ctx.params.get("event_ids") or ()
    return _matching((one for one in listed if one not in given), incomplete)


def scenarios(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from exporter.simulator import load_scenarios

    return _matching((scenario.name for scenario in load_scenarios()), incomplete)


def targets(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    try:
        settings = loading.load(ctx.params.get("config_file"), Overrides())
    except ExporterError:
        return []
    return _matching((target.name for target in settings.notifications.targets), incomplete)


def _matching(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.lower().startswith(incomplete.lower())]
