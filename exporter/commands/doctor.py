"""`doctor`: find problems without changing or sending anything."""

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import click
import msgspec

from exporter import config
from exporter.clock import Clock
from exporter.commands import examine, terminal
from exporter.commands.events import NoExporterError, RunningExporter
from exporter.commands.examine import FAILURE, OK, WARNING, Diagnosis
from exporter.config import Config, Overrides, loading
from exporter.config.addresses import Address, NotifyUrls
from exporter.errors import ConfigurationError, ExporterError, Mistakes
from exporter.health import DegradedReason
from exporter.model.views import ConfigurationView, TargetView
from exporter.model.wording import printable
from exporter.notifications import planning
from exporter.timefmt import rfc3339
from exporter.web import webfile
from exporter.web.api import Status

_SCRAPE_SECONDS = 300.0
_SCRAPE_REMEDY = "add this VM to Prometheus' scrape_configs, and allow its port in the network security group"


class Asked(msgspec.Struct, frozen=True):
    config_file: Path | None
    web_config_file: Path | None
    overrides: Overrides
    notify: NotifyUrls
    exporter_url: str


def run(asked: Asked, clock: Clock) -> int:
    """Print each finding when it is made, then the next step; return the exit status, 1 if one failed."""
    found = []
    status, answers = ask(asked.exporter_url)
    for finding in findings(asked, status, answers, clock):
        click.echo(f"{finding.level:<8} {finding.subject}: {printable(finding.message)}")
        found.append(finding)
    click.echo(f"{'next':<8} {_next_step(found, status)}")
    return 1 if _has_failed(found) else 0


def findings(
    asked: Asked, status: Status | None, answers: Sequence[Diagnosis], clock: Clock
) -> Iterator[Diagnosis]:
    yield from answers
    in_use = status.configuration if status else None
    settings, targets, alertmanagers, files = _configuration(asked, in_use)
    yield from files
    if _has_failed(files) and not (status and status.targets):
        yield Diagnosis(WARNING, "targets", "unknown until the configuration is valid")
    else:
        yield from _targets(targets, alertmanagers, status, clock)
    if status is not None:
        yield _scraped(status, clock.now())
    endpoint, version = settings.imds.endpoint, settings.imds.api_version
    if status and asked.config_file is None and asked.overrides.imds_endpoint is None:
        endpoint = status.endpoint
    yield from examine.imds(endpoint, version, settings.instance.name, status, clock)
    unwritable = f"{DegradedReason.STATE_UNWRITABLE}:"
    if status is None or in_use is None:
        try:
            yield examine.state(config.state_directory(settings))
        except ConfigurationError as error:
            yield Diagnosis(FAILURE, "state", str(error))
    elif not any(problem.startswith(unwritable) for problem in status.problems):
        yield Diagnosis(OK, "state", f"the exporter writes to {in_use.state_directory}")
    if status is None or status.kubernetes is None:
        yield from examine.kubernetes(settings.kubernetes, os.environ)


def ask(url: str) -> tuple[Status | None, Sequence[Diagnosis]]:
    """Ask the running exporter; its problems with IMDS and with targets have lines of their own."""
    exporter = RunningExporter(url)
    try:
        status = exporter.status()
    except NoExporterError as error:
        text = f"{error}; start it, or pass its address as --exporter.url"
        return None, [Diagnosis(WARNING, "exporter", text)]
    except ExporterError as error:
        return None, [Diagnosis(WARNING, "exporter", str(error))]
    since = f", since {rfc3339(status.started)}" if status.started else ""
    found = [Diagnosis(OK, "exporter", f"version {status.version} runs at {exporter.url}{since}")]
    failing = [one.name for one in status.targets if one.delivers is False]
    of_targets = (f"{DegradedReason.NOTIFICATIONS_FAILING}: target {name} " for name in failing)
    of_polls = status.problems[:1] if status.last_error else ()
    elsewhere = (*of_polls, f"{DegradedReason.INSTANCE_NAME_DIFFERS}:", *of_targets)
    found += [
        Diagnosis(FAILURE, "exporter", f"is degraded: {problem}")
        for problem in status.problems
        if not problem.startswith(elsewhere)
    ]
    return status, found


def _configuration(
    asked: Asked, in_use: ConfigurationView | None
) -> tuple[Config, Sequence[Address], Sequence[Address], Sequence[Diagnosis]]:
    """Read the configuration as `run` does, or what is valid of it, unless the exporter's is examined."""
    found = [] if in_use is None else [_in_use(asked, in_use)]
    settings = loading.load(None, asked.overrides)
    targets: Sequence[Address] = ()
    alertmanagers: Sequence[Address] = ()
    if in_use is None or asked.config_file is not None or asked.notify:
        try:
            loaded, _ = planning.load(asked.config_file, asked.overrides, asked.notify, os.environ)
            settings, targets, alertmanagers = loaded.config, loaded.addresses, loaded.alertmanagers
            if in_use is None:
                name = str(asked.config_file or "no file is specified; all keys have their defaults")
                found.append(Diagnosis(OK, "configuration", name))
        except ConfigurationError as error:
            found += [Diagnosis(FAILURE, "configuration", line) for line in error.problems]
            with Mistakes():
                settings, _ = loading.load_parsed(asked.config_file, asked.overrides, Mistakes())
    if asked.web_config_file is not None:
        try:
            webfile.load(asked.web_config_file)
            found.append(Diagnosis(OK, "web configuration", str(asked.web_config_file)))
        except ConfigurationError as error:
            found += [Diagnosis(FAILURE, "web configuration", line) for line in error.problems]
    return settings, targets, alertmanagers, found


def _in_use(asked: Asked, in_use: ConfigurationView) -> Diagnosis:
    """Show the configuration of the running exporter, and whether another one is examined."""
    given = str(asked.config_file.absolute()) if asked.config_file else None
    if given is not None and given != in_use.file:
        text = f"the exporter uses {in_use.file or 'no file'}, not {given}"
        return Diagnosis(WARNING, "configuration", f"{text}; restart it with --config.file {given}")
    hooks = ", ".join(in_use.hooks) or "none"
    exported = ", ".join(in_use.otlp) or "nothing"
    name = in_use.file or "no file, all keys have their defaults"
    return Diagnosis(
        OK, "configuration", f"{name}; approvals: {in_use.approval}, hooks: {hooks}, by OTLP: {exported}"
    )


def _targets(
    addresses: Sequence[Address], alertmanagers: Sequence[Address], status: Status | None, clock: Clock
) -> Iterator[Diagnosis]:
    running = {target.name: target for target in status.targets} if status else {}
    configured = {address.target for address in (*addresses, *alertmanagers)}
    for view in running.values():
        if view.delivers is not None or view.name not in configured:
            yield _delivery(view, clock.now())
    for address in addresses:
        if address.target not in running or running[address.target].delivers is None:
            yield examine.host(address)
    for address in alertmanagers:
        if address.target not in running or running[address.target].delivers is None:
            yield examine.alertmanager(address, clock)
    if not running and not configured:
        text = (
            "none is configured; for messages, add notifications.targets, alertmanager.urls or --notify URL"
        )
        yield Diagnosis(OK, "targets", text)


def _delivery(view: TargetView, now: datetime) -> Diagnosis:
    def ago(at: datetime | None) -> str:
        return f"{terminal.span((now - at).total_seconds())} ago" if at else "earlier"

    waiting = f", {view.pending} waiting" if view.pending else ""
    if view.delivers:
        return Diagnosis(
            OK, "target", f"{view.name}: the last message arrived {ago(view.last_delivery)}{waiting}"
        )
    if view.delivers is None:
        text = f"{view.name}: no message yet{waiting}"
        return Diagnosis(OK, "target", f"{text}; notify-test sends a sample")
    text = f"{view.name}: the last attempt, {ago(view.last_failure)}, failed{waiting}: {view.last_error}"
    return Diagnosis(FAILURE, "target", f"{text}; correct it, then try notify-test --target {view.name}")


def _scraped(status: Status, now: datetime) -> Diagnosis:
    if status.last_scrape is None:
        if status.targets:
            return Diagnosis(OK, "scrape", "Prometheus does not scrape /metrics; messages do not need it")
        text = "/metrics has not been requested since the exporter started, and there is no target"
        return Diagnosis(WARNING, "scrape", f"{text}: nobody is notified; add a target, or {_SCRAPE_REMEDY}")
    ago = (now - status.last_scrape).total_seconds()
    if ago > _SCRAPE_SECONDS:
        text = f"/metrics was last requested {terminal.span(ago)} ago"
        if status.targets:
            return Diagnosis(OK, "scrape", f"{text}; messages do not need it")
        return Diagnosis(WARNING, "scrape", f"{text}; {_SCRAPE_REMEDY}")
    return Diagnosis(OK, "scrape", f"/metrics was last requested {terminal.span(ago)} ago")


def _has_failed(found: Iterable[Diagnosis]) -> bool:
    return any(finding.level is FAILURE for finding in found)


def _next_step(found: Sequence[Diagnosis], status: Status | None) -> str:
    if _has_failed(found):
        return "correct the failures above, then run doctor again"
    if status is None:
        return "start the exporter, or correct --exporter.url, then run doctor again"
    if any(target.delivers is None for target in status.targets):
        return "send a sample message to every target, if you have not yet: notify-test, with these flags"
    if any(finding.level is WARNING for finding in found):
        return "read the warnings above"
    return "nothing to correct; for a real event, restart a test VM from Azure's portal"
