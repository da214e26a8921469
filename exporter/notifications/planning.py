"""The plan of notifications from the configuration, and the checks of targets and templates."""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from exporter import files as secret_files
from exporter.config import Config, Overrides, Route, Templates, loading, state_directory
from exporter.config.match import Whom
from exporter.config.yamlfile import Locate
from exporter.errors import ConfigurationError, Mistakes
from exporter.model.events import normal_name
from exporter.model.lifecycle import Occurrence
from exporter.model.messages import Message, Outage, Sender, WatchChange, WatchMessage, Writer
from exporter.model.views import Snapshot, event_view
from exporter.model.vm import VirtualMachine
from exporter.notifications import addresses
from exporter.notifications.addresses import Address
from exporter.notifications.sending import AppriseSender
from exporter.notifications.services import Checker

_STORAGE = "apprise"


def _lazy_renderer(templates: Templates, exporter_url: str) -> Callable[[], Writer]:
    """Return a factory that creates one renderer for all targets on first use."""

    @cache
    def renderer() -> Writer:
        from exporter.notifications.rendering import Renderer

        return Renderer(templates, exporter_url)

    return renderer


class Plan(NamedTuple):
    """Which messages are sent to which targets, and how; ``retry_for`` and ``watch_after`` are in seconds.

    The factories are called on the workers' threads, at the first message of a target, so that nothing heavy
    is imported before it is needed. Messages for a target without a sender, which is no longer configured,
    stay queued until they are too old.
    """

    routes: Sequence[Route] = ()
    senders: Mapping[str, Callable[[], Sender]] = {}
    renderer: Callable[[], Writer] = _lazy_renderer(Templates(), "")
    retry_for: float = 86400.0
    watch_after: float = 300.0
    watch_targets: Sequence[str] = ()

    @property
    def blind_after(self) -> float:
        """The seconds without a valid document after which messages are sent; infinite for never."""
        return self.watch_after if self.watch_targets else math.inf

    def compose(
        self,
        occurrences: Sequence[Occurrence],
        instance: str | None,
        now: datetime,
        vm: VirtualMachine | None = None,
    ) -> tuple[Message, ...]:
        """Return the messages about transitions: one for each target of the routes that match.

        ``vm`` has the facts about this VM, None while they are unknown.
        """
        return tuple(
            _message(target, occurrence, instance, vm or VirtualMachine(), shared=shared)
            for occurrence in occurrences
            for target, shared in _targets(self.routes, occurrence, instance, now).items()
        )

    def compose_watch(
        self, change: WatchChange, outage: Outage, at: datetime, snapshot: Snapshot
    ) -> tuple[WatchMessage, ...]:
        """Return the messages about an outage of the watch, or about its end."""
        return tuple(
            WatchMessage(
                target=target,
                key=outage.key,
                sequence=1 if change is WatchChange.BLIND else 2,
                transition=change,
                at=at,
                instance=snapshot.instance,
                since=outage.since,
                error=snapshot.last_error,
                vm=snapshot.vm or VirtualMachine(),
                incident=outage.incident,
            )
            for target in self.watch_targets
        )


def _targets(
    routes: Sequence[Route], occurrence: Occurrence, instance: str | None, now: datetime
) -> dict[str, bool]:
    """Return the targets, each with whether a route for other VMs selects it: its incidents are shared."""
    found: dict[str, bool] = {}
    tracked = occurrence.tracked
    for route in routes:
        if route.leader == "first" and not _is_first(tracked.event.resources, instance):
            continue
        if route.match.holds(tracked.event, target=tracked.target, now=now, transition=occurrence.transition):
            for target in route.targets:
                found[target] = found.get(target, False) or route.match.target is not Whom.SELF
    return found


def _is_first(resources: Sequence[str], instance: str | None) -> bool:
    """Return whether this VM is the first of an event's resources, or may be."""
    return instance is None or not resources or normal_name(resources[0]) == normal_name(instance)


def _message(
    target: str, occurrence: Occurrence, instance: str | None, vm: VirtualMachine, *, shared: bool
) -> Message:
    tracked = occurrence.tracked
    # Every VM that sees the event can close a shared incident, also for a VM that is gone. The key stays the
    # same for the whole life.
    alone = shared or tracked.nameless or instance is None
    incident = tracked.ids[0] if alone else f"{tracked.ids[0]}/{instance}"
    return Message(
        target=target,
        key=tracked.key,
        sequence=len(tracked.transitions),
        transition=occurrence.transition,
        at=occurrence.at,
        instance=instance,
        event=event_view(tracked),
        changes=occurrence.changes,
        detail=occurrence.detail,
        incident=incident,
        vm=vm,
    )


def effective_routes(routes: Sequence[Route], configured: Sequence[str], extra: Sequence[str]) -> list[Route]:
    """Return the effective routes: ``extra`` targets, and all if there are no routes, get everything."""
    everything = [*([] if routes else configured), *extra]
    return [*routes, *([Route(targets=tuple(everything))] if everything else [])]


Check = Callable[[Checker], None]


def load(
    file: Path | None, overrides: Overrides, urls: Sequence[str], environ: Mapping[str, str]
) -> tuple[Config, Plan]:
    """Load a configuration file, and check targets and templates.

    Raises:
        ConfigurationError: something is wrong; with file and line where there is one.
    """
    mistakes = Mistakes()
    settings, plan, check = _read(file, overrides, urls, environ, mistakes)
    with mistakes:
        check(Checker())
    mistakes.check()
    return settings, plan


def read(
    file: Path | None,
    overrides: Overrides,
    urls: Sequence[str],
    environ: Mapping[str, str],
    *,
    senders: Mapping[str, Sender] | None = None,
) -> tuple[Config, Plan, Check]:
    """Load a configuration file; log warnings about possible mistakes.

    The returned function checks targets and templates, which takes seconds on a slow VM; it raises a
    `ConfigurationError` if a template is invalid, or Apprise does not accept an address.
    ``urls`` are those of ``--notify``; ``senders`` are targets that need no address. Both get everything. The
    data that services with incidents need to keep is in the state directory.

    Raises:
        ConfigurationError: something is wrong; with file and line where there is one.
    """
    mistakes = Mistakes()
    result = _read(file, overrides, urls, environ, mistakes, senders=senders, keep_state=True)
    mistakes.check()
    return result


def _read(  # noqa: PLR0913  # the arguments of `read`, and the mistakes
    file: Path | None,
    overrides: Overrides,
    urls: Sequence[str],
    environ: Mapping[str, str],
    mistakes: Mistakes,
    *,
    senders: Mapping[str, Sender] | None = None,
    keep_state: bool = False,
) -> tuple[Config, Plan, Check]:
    """Do as `read`; add errors to ``mistakes`` and leave out the faulty parts."""
    settings, locate = loading.load_located(file, overrides, mistakes)
    notifications = settings.notifications
    found = addresses.resolve(notifications, urls, locate, environ, mistakes)
    loading.warn(settings, locate)
    secret_files.warn(addresses.secret_files(notifications, file))
    storage = state_directory(settings) / _STORAGE if keep_state else None
    checked = threading.Event()
    ways: dict[str, Callable[[], Sender]] = {
        address.target: partial(AppriseSender, address, storage=storage, checked=checked) for address in found
    }
    given = senders or {}
    ways |= {name: partial(_same, sender) for name, sender in given.items()}
    extra = (*addresses.names_of_extra(urls), *given)
    plan = Plan(
        routes=effective_routes(
            notifications.routes, [target.name for target in notifications.targets], extra
        ),
        senders=ways,
        renderer=_lazy_renderer(notifications.templates, settings.web.external_url),
        retry_for=notifications.retry_for,
        watch_after=notifications.watch.after,
        watch_targets=tuple(ways) if notifications.watch.targets is None else notifications.watch.targets,
    )

    def check_targets(checker: Checker) -> None:
        try:
            refused = checker.refused(found)
        finally:
            checked.set()
        check(notifications.templates, refused, locate)

    return settings, plan, check_targets


def check(templates: Templates, refused: Sequence[tuple[Address, str]], locate: Locate) -> None:
    """Check the templates, and report the addresses that Apprise does not accept.

    Raises:
        ConfigurationError: a template is invalid, or an address was refused.
    """
    mistakes = Mistakes()
    if templates != Templates():
        from exporter.notifications import templating

        with mistakes:
            templating.check(templates, locate)
    for address, problem in refused:
        with mistakes:
            if address.keys:
                raise locate(address.keys, problem)
            raise ConfigurationError(f"--notify: URL {address.target.removeprefix('notify-')}: {problem}")
    mistakes.check()


def _same(sender: Sender) -> Sender:
    return sender
