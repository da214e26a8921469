"""`doctor`: find problems without changing or sending anything."""

import contextlib
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from http import HTTPStatus
from pathlib import Path

from rich.console import Console
from rich.text import Text

from exporter import app, config
from exporter.clock import Clock
from exporter.commands import terminal
from exporter.commands.events import NoExporterError, RunningExporter
from exporter.config import AUTO, loading
from exporter.config.loading import Loaded
from exporter.config.yamlfile import YamlFile
from exporter.errors import ConfigurationError, ExporterError, ImdsError, Mistakes, PollOutcome
from exporter.health import DegradedReason
from exporter.imds.client import NEWEST_API_VERSION, ImdsClient, asked_again, endpoint_of
from exporter.model.events import normal_name
from exporter.model.views import ConfigurationView, TargetView
from exporter.model.vm import VirtualMachine
from exporter.model.wording import command_line, printable
from exporter.outputs.output import Diagnosis, Level
from exporter.state.disk import refuse_unsafe
from exporter.timefmt import rfc3339
from exporter.web import webfile
from exporter.web.api import Status

_IMDS_SECONDS = 5.0
_REACH = (
    "check imds.endpoint, allow 169.254.169.254 in firewalls, do not use a proxy, and run a container in the "
    "host's network"
)
_CLOCK_WARNING_SECONDS = 5.0
_CLOCK_FAILURE_SECONDS = 60.0
# The state of a VM takes a few hundred kilobytes; a disk with less than this is nearly full.
_LEAST_FREE_BYTES = 16 * 1024**2


OK, WARNING, FAILURE, NOTE = Level
_STYLES = {OK: "green", WARNING: "yellow", FAILURE: "bold red", NOTE: "cyan"}
_INDENT = " " * 9  # of the column with the level


def imds(
    endpoint: str, api_version: str, name: str, status: Status | None, clock: Clock
) -> Iterator[Diagnosis]:
    """Examine IMDS; ``api_version`` and ``name`` are configured, the exporter's ``status`` may be unknown."""
    try:
        endpoint = endpoint_of(endpoint)
    except ExporterError as error:
        yield Diagnosis(FAILURE, "imds", str(error))
        return
    # Not scheduledevents: a request for it switches Scheduled Events on.
    with contextlib.closing(ImdsClient(endpoint, timeout=_IMDS_SECONDS, clock=clock)) as client:
        vm: VirtualMachine | None = None
        try:
            vm = asked_again(client.instance, clock)
            used = status.api_version if status else api_version
            yield Diagnosis(
                OK, "imds", f"{endpoint} answers; {_version(used, is_running=status is not None)}"
            )
        except ImdsError as error:
            yield _unusable(error, status)
        yield _scheduled_events(status, clock.now())
        yield _name(name, status, vm)
        if vm is not None:
            yield _spot(vm)
            yield _terminate(vm)
            yield _pollers(status)
            yield _clock(client, clock)


def _unusable(error: ImdsError, status: Status | None) -> Diagnosis:
    """Describe a failure with its remedy, which the message of an HTTP status already contains."""
    if error.status == HTTPStatus.FORBIDDEN and status is not None and status.up:
        return Diagnosis(WARNING, "imds", f"it answers the exporter, but not this command: {error}")
    text = str(error)
    if error.reason is PollOutcome.INVALID_DOCUMENT:
        text += "; something else answers there: correct imds.endpoint, and do not use a proxy"
    elif not error.status:
        text += f"; IMDS exists on Azure VMs only: {_REACH}"
    return Diagnosis(FAILURE, "imds", text)


def _version(used: str, *, is_running: bool) -> str:
    if not is_running and used == AUTO:
        return "the exporter will use the newest API version that it knows"
    spot = "has" if used == NEWEST_API_VERSION else "does not have"
    return f"API version {used}, which {spot} rebalance recommendations for Spot VMs"


def _scheduled_events(status: Status | None, now: datetime) -> Diagnosis:
    subject = "scheduled events"
    if status is None:
        text = "unknown without the exporter, because any other request for them would switch them on"
        return Diagnosis(WARNING, subject, text)
    since = rfc3339(status.started) if status.started else "its start"
    if status.up and status.last_success is not None:
        ago = terminal.span((now - status.last_success).total_seconds())
        return Diagnosis(
            OK, subject, f"switched on; the exporter has polled them since {since}, last success {ago} ago"
        )
    if not status.last_error:
        text = f"the exporter waits for the first response since {since}; Azure takes up to two minutes"
        return Diagnosis(WARNING, subject, text)
    last = f"since {rfc3339(status.last_success)}" if status.last_success else "yet"
    text = f"the exporter has had no valid response {last}: {status.last_error}"
    return Diagnosis(FAILURE, subject, text if status.last_status else f"{text}; {_REACH}")


def _name(configured: str, status: Status | None, vm: VirtualMachine | None) -> Diagnosis:
    used = configured or (status.instance if status else "") or ""
    returned = vm.name if vm is not None else ""
    if used and returned and normal_name(used) != normal_name(returned):
        text = (
            f"instance.name is {used}, IMDS returns {returned}: events that name {returned} count as those "
            f"of another VM; remove instance.name unless events name {used}"
        )
        return Diagnosis(FAILURE, "name", text)
    if used or returned:
        return Diagnosis(OK, "name", f"{used or returned}, from {'instance.name' if configured else 'IMDS'}")
    text = (
        "unknown until IMDS answers; until then, no event is approved and no hook runs; or set instance.name"
    )
    return Diagnosis(FAILURE, "name", text)


def _spot(vm: VirtualMachine) -> Diagnosis:
    if vm.priority == "Spot":
        text = "a Spot VM, which Azure can evict (Preempt) with a notice of 30 seconds or less"
    elif vm.priority:
        text = f"not a Spot VM (priority {vm.priority}), so there will be no Preempt"
    else:
        text = "IMDS does not report whether this is a Spot VM"
    return Diagnosis(NOTE, "spot", text)


def _terminate(vm: VirtualMachine) -> Diagnosis:
    """Name the command that shows which events Azure announces only on request; IMDS does not report that."""
    profile, kind = "scheduledEventsProfile", "vm"
    if vm.scale_set:
        profile, kind = f"virtualMachineProfile.{profile}", "vmss"
    command = command_line(
        *("az", kind, "show", "--resource-group", vm.resource_group or "GROUP"),
        *("--name", vm.scale_set or vm.name or "NAME", "--query", f"[{profile},scheduledEventsPolicy]"),
    )
    text = (
        "off unless the VM or its scale set enables them, as are those of OS image upgrades; events that "
        "users request come without notice if scheduledEventsPolicy approves them automatically. IMDS does "
        "not report these settings; check with:"
    )
    return Diagnosis(NOTE, "terminate notifications", text, (command,))


def _pollers(status: Status | None) -> Diagnosis:
    """Name the programs of Microsoft that are known to poll as well; IMDS does not list its clients."""
    text = (
        "all programs on the VM share five requests to IMDS a second; Microsoft's VmssRuntimeAgent and "
        "CycleCloud's jetpack poll, too, and jetpack approves every event for which no script is set"
    )
    if status is None or status.last_status != HTTPStatus.TOO_MANY_REQUESTS:
        return Diagnosis(NOTE, "other pollers", text)
    return Diagnosis(WARNING, "other pollers", f"IMDS throttles the exporter (429): {text}; stop one of them")


def _clock(client: ImdsClient, clock: Clock) -> Diagnosis:
    try:
        theirs = asked_again(client.date, clock)
    except ImdsError:
        return Diagnosis(
            WARNING, "clock", "could not be compared with that of IMDS; see the output of timedatectl"
        )
    off = (clock.now() - theirs).total_seconds()
    if abs(off) <= _CLOCK_WARNING_SECONDS:
        return Diagnosis(OK, "clock", "agrees with that of IMDS")
    level = FAILURE if abs(off) > _CLOCK_FAILURE_SECONDS else WARNING
    text = f"{terminal.span(off)} {'ahead of' if off > 0 else 'behind'} that of IMDS"
    return Diagnosis(level, "clock", f"{text}; times and notice are off by as much: set up NTP or chrony")


def state(directory: Path) -> Diagnosis:
    """Examine the state directory, without creating or writing anything."""
    present = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not present.is_dir():
        return Diagnosis(FAILURE, "state", f"{present} is not a directory; remove it, or set state.directory")
    try:
        # Root asks for a service that runs as the owner of its directory.
        as_root = sys.platform != "win32" and os.geteuid() == 0
        refuse_unsafe(directory, present.stat().st_uid if as_root else None)
    except ConfigurationError as error:
        return Diagnosis(FAILURE, "state", str(error))
    if not os.access(present, os.W_OK | os.X_OK):
        user = "this user"
        if sys.platform != "win32":
            user = f"uid {os.geteuid()}, as which this command runs"
        remedy = "change its owner, or run this as the exporter's user"
        return Diagnosis(FAILURE, "state", f"{present} cannot be written by {user}; {remedy}")
    free = shutil.disk_usage(present).free
    if free < _LEAST_FREE_BYTES:
        return Diagnosis(WARNING, "state", f"{present} has {free // 1024**2} MiB free; make room")
    text = "can be written" if present == directory else "does not exist yet and can be created"
    return Diagnosis(OK, "state", f"{directory} {text}")


_SCRAPE_SECONDS = 300.0
_SCRAPE_REMEDY = "add this VM to Prometheus' scrape_configs, and allow its port in the network security group"


class Asked(app.Options, frozen=True, kw_only=True):
    exporter_url: str


def run(asked: Asked, clock: Clock) -> int:
    """Print each check when it is made, then notes and the next step; return 1 if one failed, else 0."""
    console = Console()
    results, notes = [], []
    status, answers = ask(asked.exporter_url)
    for finding in findings(asked, status, answers, clock):
        if finding.level is NOTE:
            notes.append(finding)
        else:
            _print(console, finding)
            results.append(finding)
    for note in notes:
        _print(console, note)
    console.print(_lines(console, "next", _next_step(results, status)), soft_wrap=True)
    return 1 if _has_failed(results) else 0


def _print(console: Console, finding: Diagnosis) -> None:
    text = _lines(console, finding.level, f"{finding.subject}: {printable(finding.message)}")
    text.stylize(_STYLES[finding.level], 0, len(finding.level))
    # To be copied, each is one line.
    text.append("".join(f"\n{_INDENT}{printable(command)}" for command in finding.commands))
    console.print(text, soft_wrap=True)


def _lines(console: Console, word: str, text: str) -> Text:
    """Return a line, which on a terminal goes on below itself between words."""
    line = f"{word:<8} {text}"
    if console.is_terminal:
        line = textwrap.fill(
            line,
            max(console.width, 2 * len(_INDENT)),
            subsequent_indent=_INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return Text(line)


def findings(
    asked: Asked, status: Status | None, answers: Sequence[Diagnosis], clock: Clock
) -> Iterator[Diagnosis]:
    yield from answers
    in_use = status.configuration if status else None
    loaded, files = _configuration(asked, in_use)
    settings = loaded.config
    yield from files
    if _has_failed(files) and not (status and status.targets):
        yield Diagnosis(WARNING, "targets", "unknown until the configuration is valid")
    else:
        yield from _targets(loaded, status, clock)
    if status is not None:
        yield _scraped(status, clock.now())
    endpoint, version = settings.imds.endpoint, settings.imds.api_version
    if status and asked.config_file is None and asked.overrides.imds_endpoint is None:
        endpoint = status.endpoint
    yield from imds(endpoint, version, settings.instance.name, status, clock)
    unwritable = f"{DegradedReason.STATE_UNWRITABLE}:"
    if status is None or in_use is None:
        try:
            yield state(config.state_directory(settings))
        except ConfigurationError as error:
            yield Diagnosis(FAILURE, "state", str(error))
    elif not any(problem.startswith(unwritable) for problem in status.problems):
        yield Diagnosis(OK, "state", f"the exporter writes to {in_use.state_directory}")
    for output in app.OUTPUTS:
        yield from output.section.notes(settings, os.environ, status.kubernetes if status else None)


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
    answers = [Diagnosis(OK, "exporter", f"version {status.version} runs at {exporter.url}{since}")]
    failing = [target.name for target in status.targets if target.delivers is False]
    of_targets = (f"{DegradedReason.NOTIFICATIONS_FAILING}: target {name} " for name in failing)
    of_polls = status.problems[:1] if status.last_error else ()
    elsewhere = (*of_polls, f"{DegradedReason.INSTANCE_NAME_DIFFERS}:", *of_targets)
    answers += [
        Diagnosis(FAILURE, "exporter", f"is degraded: {problem}")
        for problem in status.problems
        if not problem.startswith(elsewhere)
    ]
    return status, answers


def _configuration(asked: Asked, in_use: ConfigurationView | None) -> tuple[Loaded, Sequence[Diagnosis]]:
    """Read the configuration as `run` does, or what is valid of it, unless the exporter's is examined."""
    files = [] if in_use is None else [_in_use(asked, in_use)]
    loaded = Loaded(loading.load(None, asked.overrides), YamlFile())
    if in_use is None or asked.config_file is not None or asked.notify:
        mistakes = Mistakes()
        with mistakes:
            loaded, _ = app.checked(asked, os.environ, mistakes)
            if mistakes.problems:
                # The addresses may be wrong.
                loaded = loaded._replace(addresses={})
            else:
                loaded.warn()
        name = str(asked.config_file or "no file is specified; all keys have their defaults")
        if mistakes.problems or in_use is None:
            files += _read("configuration", name, mistakes)
    if asked.web_config_file is not None:
        mistakes = Mistakes()
        with mistakes:
            webfile.load(asked.web_config_file).warn()
        files += _read("web configuration", str(asked.web_config_file), mistakes)
    return loaded, files


def _read(subject: str, name: str, mistakes: Mistakes) -> Sequence[Diagnosis]:
    """Return what was found in a file."""
    failures = [Diagnosis(FAILURE, subject, line) for line in mistakes.in_order()]
    return failures or [Diagnosis(OK, subject, name)]


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


def _targets(loaded: Loaded, status: Status | None, clock: Clock) -> Iterator[Diagnosis]:
    running = {target.name: target for target in status.targets} if status else {}
    configured = {address.target for several in loaded.addresses.values() for address in several}
    for view in running.values():
        if view.delivers is not None or view.name not in configured:
            yield _delivery(view, clock.now())
    for output in app.OUTPUTS:
        for address in loaded.addresses.get(output.name, ()):
            if address.target not in running or running[address.target].delivers is None:
                yield output.section.probe(address, clock)
    if not running and not configured:
        text = (
            "none is configured; for messages, add notifications.targets, alertmanager.urls or --notify URL"
        )
        yield Diagnosis(NOTE, "targets", text)


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


def _has_failed(findings: Iterable[Diagnosis]) -> bool:
    return any(finding.level is FAILURE for finding in findings)


def _next_step(findings: Sequence[Diagnosis], status: Status | None) -> str:
    if _has_failed(findings):
        return "correct the failures above, then run doctor again"
    if status is None:
        return "resolve the warning about the exporter above, then run doctor again"
    if any(target.delivers is None for target in status.targets):
        return "send a sample message to every target, if you have not yet: notify-test, with these flags"
    if any(finding.level is WARNING for finding in findings):
        return "read the warnings above"
    return "nothing to correct; for a real event, restart a test VM from Azure's portal"
