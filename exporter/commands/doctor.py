"""`doctor` and `check-config`: find problems without changing or sending anything."""

import os
import shutil
import socket
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import click
import msgspec
import urllib3

from exporter import config
from exporter.clock import Clock
from exporter.commands import terminal
from exporter.commands.events import NoExporterError, RunningExporter
from exporter.config import Config, Overrides, loading
from exporter.config.checks import advice
from exporter.config.yamlfile import error_without_file
from exporter.errors import ConfigurationError, ExporterError, Mistakes
from exporter.imds import ImdsClient, endpoint_of
from exporter.model.vm import VirtualMachine
from exporter.model.wording import printable
from exporter.notifications import addresses, planning
from exporter.notifications.addresses import Address, NotifyUrls
from exporter.state.directory import refuse_unsafe
from exporter.timefmt import rfc3339
from exporter.web.api import Status
from exporter.web.settings import WebSettings

_IMDS_SECONDS = 5.0
_SCRAPE_SECONDS = 300.0
_CLOCK_WARNING_SECONDS = 5.0
_CLOCK_FAILURE_SECONDS = 60.0
# The state of a VM takes a few hundred kilobytes; a disk with less than this is nearly full.
_LEAST_FREE_BYTES = 16 * 1024**2


def check_files(files: Sequence[Path], web_config_file: Path | None) -> int:
    """Print every mistake in the files, and settings without effect; return the exit status."""
    mistakes = Mistakes()
    for file in files:
        with mistakes:
            settings, _ = planning.load(file, Overrides(), (), os.environ)
            _, locate = loading.load_located(file, Overrides(), Mistakes())
            for keys, text in advice(settings):
                click.echo(f"warning: {locate(keys, text)}", err=True)
            click.echo(f"{file}: ok")
    if web_config_file is not None:
        with mistakes:
            WebSettings.load(web_config_file)
            click.echo(f"{web_config_file}: ok")
    for problem in mistakes.problems:
        click.echo(problem, err=True)
    return 1 if mistakes.problems else 0


class Level(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


class Finding(msgspec.Struct, frozen=True):
    """One line of output: the part, the finding and the remedy."""

    level: Level
    subject: str
    message: str


OK, WARNING, FAILURE = Level


class Asked(msgspec.Struct, frozen=True):
    """The flags of the exporter that is examined, and its address."""

    config_file: Path | None
    web_config_file: Path | None
    overrides: Overrides
    notify: NotifyUrls
    exporter_url: str


def run(asked: Asked, clock: Clock) -> int:
    """Print each finding when it is made; return the exit status, 1 if there is a failure."""
    failed = False
    for finding in findings(asked, clock):
        click.echo(f"{finding.level:<8} {finding.subject}: {printable(finding.message)}")
        failed = failed or finding.level is FAILURE
    return 1 if failed else 0


def findings(asked: Asked, clock: Clock) -> Iterator[Finding]:
    """Examine each part in turn."""
    settings, targets, mistakes = _configuration(asked)
    yield from mistakes
    status, answers = _exporter(asked.exporter_url)
    yield from answers
    if status is not None:
        yield _scraped(status, clock.now())
    yield from _imds(settings, status, clock)
    yield _state(settings)
    for address in targets:
        yield _target(address)


def _configuration(asked: Asked) -> tuple[Config, Sequence[Address], Sequence[Finding]]:
    """Read the configuration as `run` does; if it is invalid, the rest is examined with the defaults."""
    found = []
    targets: Sequence[Address] = ()
    try:
        settings, _ = planning.load(asked.config_file, asked.overrides, asked.notify, os.environ)
        targets = addresses.resolve(
            settings.notifications, asked.notify, error_without_file, os.environ, Mistakes()
        )
        name = str(asked.config_file or "no file is given; all keys have their defaults")
        found.append(Finding(OK, "configuration", name))
        if not targets:
            text = "none is configured; add notifications.targets, or --notify URL, if people should be told"
            found.append(Finding(OK, "targets", text))
    except ConfigurationError as error:
        settings = loading.load(None, asked.overrides)
        found += [Finding(FAILURE, "configuration", line) for line in error.problems]
    if asked.web_config_file is not None:
        try:
            WebSettings.load(asked.web_config_file)
            found.append(Finding(OK, "web configuration", str(asked.web_config_file)))
        except ConfigurationError as error:
            found += [Finding(FAILURE, "web configuration", line) for line in error.problems]
    return settings, targets, found


def _exporter(url: str) -> tuple[Status | None, Sequence[Finding]]:
    exporter = RunningExporter(url)
    try:
        status = exporter.status()
    except NoExporterError as error:
        text = f"{error}; start it, or name its address by --exporter.url"
        return None, [Finding(WARNING, "exporter", text)]
    except ExporterError as error:
        return None, [Finding(WARNING, "exporter", str(error))]
    finally:
        exporter.close()
    since = f", since {rfc3339(status.started)}" if status.started else ""
    found = [Finding(OK, "exporter", f"version {status.version} runs at {exporter.url}{since}")]
    found += [Finding(FAILURE, "exporter", f"is degraded: {problem}") for problem in status.problems]
    return status, found


def _scraped(status: Status, now: datetime) -> Finding:
    remedy = "add this VM to Prometheus' scrape_configs, and allow its port in the network security group"
    if status.last_scrape is None:
        return Finding(WARNING, "scrape", f"/metrics was not asked for since the exporter started; {remedy}")
    ago = (now - status.last_scrape).total_seconds()
    if ago > _SCRAPE_SECONDS:
        return Finding(WARNING, "scrape", f"/metrics was last asked for {terminal.span(ago)} ago; {remedy}")
    return Finding(OK, "scrape", f"/metrics was last asked for {terminal.span(ago)} ago")


def _imds(settings: Config, status: Status | None, clock: Clock) -> Iterator[Finding]:
    try:
        endpoint = endpoint_of(settings.imds.endpoint)
    except ExporterError as error:
        yield Finding(FAILURE, "imds", str(error))
        return
    # Not scheduledevents: a request for it switches Scheduled Events on.
    client = ImdsClient(endpoint, timeout=_IMDS_SECONDS, clock=clock)
    vm: VirtualMachine | None = None
    try:
        vm = client.instance()
        yield Finding(OK, "imds", f"{endpoint} answers")
    except ExporterError as error:
        yield Finding(
            FAILURE,
            "imds",
            f"{error}; it answers on Azure VMs only: allow 169.254.169.254 in firewalls, do not use a proxy, "
            "and run a container in the host's network",
        )
    finally:
        client.close()
    yield _scheduled_events(status, clock.now())
    yield _name(settings, vm)
    if vm is not None:
        yield _clock(endpoint, clock)


def _scheduled_events(status: Status | None, now: datetime) -> Finding:
    subject = "scheduled events"
    if status is None:
        text = "unknown; only a request that switches them on would tell, so start the exporter"
        return Finding(WARNING, subject, text)
    since = rfc3339(status.started) if status.started else "its start"
    if status.up and status.last_success is not None:
        ago = terminal.span((now - status.last_success).total_seconds())
        return Finding(
            OK, subject, f"switched on; the exporter polls since {since}, last with success {ago} ago"
        )
    if not status.last_error:
        text = f"the exporter waits for the first response since {since}; Azure takes up to two minutes"
        return Finding(WARNING, subject, text)
    last = f"since {rfc3339(status.last_success)}" if status.last_success else "yet"
    return Finding(FAILURE, subject, f"the exporter had no valid response {last}: {status.last_error}")


def _name(settings: Config, vm: VirtualMachine | None) -> Finding:
    given = settings.instance.name
    known = vm.name if vm is not None else ""
    if given and known and given.lower() != known.lower():
        text = f"instance.name is {given}, IMDS says {known}; remove instance.name unless events name {given}"
        return Finding(WARNING, "name", text)
    if given or known:
        return Finding(OK, "name", f"{given or known}, from {'instance.name' if given else 'IMDS'}")
    text = "unknown: nothing is approved and no hook runs until IMDS gives it; or set instance.name"
    return Finding(FAILURE, "name", text)


def _clock(endpoint: str, clock: Clock) -> Finding:
    """Compare the clock with the Date header of IMDS."""
    try:
        answer = urllib3.PoolManager(timeout=_IMDS_SECONDS, retries=False).request(
            "GET", f"{endpoint}/metadata/versions", headers={"Metadata": "true"}
        )
        theirs = parsedate_to_datetime(answer.headers["Date"])
        off = (clock.now() - theirs).total_seconds()
    except (urllib3.exceptions.HTTPError, KeyError, ValueError, TypeError):
        return Finding(WARNING, "clock", "could not be compared with that of IMDS; look at: timedatectl")
    if abs(off) <= _CLOCK_WARNING_SECONDS:
        return Finding(OK, "clock", "in step with that of IMDS")
    level = FAILURE if abs(off) > _CLOCK_FAILURE_SECONDS else WARNING
    text = f"{terminal.span(off)} {'ahead of' if off > 0 else 'behind'} that of IMDS"
    return Finding(level, "clock", f"{text}; times and notice are off by as much: set up NTP or chrony")


def _state(settings: Config) -> Finding:
    """Examine the state directory, without creating or writing anything."""
    directory = config.state_directory(settings)
    present = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not present.is_dir():
        return Finding(FAILURE, "state", f"{present} is not a directory; remove it, or set state.directory")
    try:
        refuse_unsafe(directory)
    except ConfigurationError as error:
        return Finding(FAILURE, "state", str(error))
    if not os.access(present, os.W_OK | os.X_OK):
        user = "this user"
        if sys.platform != "win32":
            user = f"uid {os.geteuid()}, as which this command runs"
        remedy = "change its owner, or run this as the exporter's user"
        return Finding(FAILURE, "state", f"{present} cannot be written by {user}; {remedy}")
    free = shutil.disk_usage(present).free
    if free < _LEAST_FREE_BYTES:
        return Finding(WARNING, "state", f"{present} has {free // 1024**2} MiB free; make room")
    text = "can be written" if present == directory else "does not exist yet and can be created"
    return Finding(OK, "state", f"{directory} {text}")


def _target(address: Address) -> Finding:
    """Resolve a target's host; `notify-test` is for delivery."""
    host = _host(address)
    shown = f"{address.target} ({address.label})"
    if not host:
        return Finding(OK, "target", f"{shown} is a valid address; notify-test sends a message to it")
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a valid host name"
        # A proxy resolves the names itself.
        level = WARNING if urllib.request.getproxies() else FAILURE
        return Finding(
            level, "target", f"{shown}: {host} cannot be resolved: {reason}; check the URL and DNS"
        )
    return Finding(OK, "target", f"{shown}: {host} resolves; notify-test sends a message to it")


def _host(address: Address) -> str:
    """Return the host of a target's URL; "" if that part is a token."""
    shown = urlsplit(address.label).hostname if "://" in address.label else None
    if not shown or shown == "...":
        return ""
    return parse_qs(urlsplit(address.url).query).get("smtp", [shown])[0]
