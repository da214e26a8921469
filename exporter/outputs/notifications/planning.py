"""The plan of notifications from the configuration: which messages about what go where."""

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

import msgspec
from msgspec.structs import replace

from exporter.config import Route, Templates, state_directory
from exporter.config.addresses import Address
from exporter.config.loading import Loaded
from exporter.config.match import Match, Scope
from exporter.model.events import normal_name
from exporter.model.lifecycle import ENDINGS, Life, Occurrence
from exporter.model.messages import AnyMessage, Message, Outage, WatchChange, WatchMessage
from exporter.model.tracing import traceparent
from exporter.model.views import Snapshot, event_view
from exporter.model.vm import VirtualMachine
from exporter.outputs.notifications.protocol import Send, may_be_mail

_STORAGE = "apprise"
_NOTHING_SEEN = Snapshot()


class Plan(msgspec.Struct, frozen=True):
    """Which messages are sent to which targets, and how; mappings are by target."""

    routes: Sequence[Route] = ()
    addresses: Mapping[str, Address] = {}  # messages for other targets stay queued until they are too old
    templates: Mapping[str, Templates] = {}
    exporter_url: str = ""
    runbook_url: str = ""
    timezone: str = "UTC"
    storage: str = ""  # Apprise's directory
    node: str = ""  # this VM's name in Kubernetes
    retry_for: float = math.inf  # in seconds
    watch_targets: Sequence[str] = ()
    # Filled by the check of the addresses.
    incidents: dict[str, bool] = {}  # whether any service of a target has incidents
    mails: dict[str, bool] = {}  # whether any service of a target is a mail server
    services: dict[str, int] = {}  # the number of services with a target's tag

    def address(self, target: str) -> Address | None:
        """Return the address of a target, wherever in the file it stands; None if it is not configured."""
        address = self.addresses.get(target)
        return None if address is None else replace(address, keys=())

    def request(self, target: str, message: AnyMessage, now: datetime) -> Send:
        """Return the request to send a message, to which the caller adds the facts about the attempt."""
        return Send(
            self.addresses[target],
            message,
            now,
            templates=self.templates.get(target, Templates()),
            exporter_url=self.exporter_url,
            runbook_url=self.runbook_url,
            timezone=self.timezone,
            storage=self.storage,
            is_mail=self.mails.get(target, may_be_mail(self.addresses[target])),
        )

    def compose(
        self,
        occurrences: Sequence[Occurrence],
        instance: str | None,
        now: datetime,
        seen: Snapshot = _NOTHING_SEEN,
        opened: Mapping[str, Mapping[str, str]] = {},
    ) -> tuple[Message, ...]:
        """Return the messages about transitions: one for each target of the routes that match.

        ``seen`` has the facts about this VM. ``opened`` is what `Outbox.opened` says of
        the lives: incidents keep their keys, and the end of a life closes them, whatever the routes match by
        then.
        """
        vm, messages = self._known(seen.vm), list[Message]()
        for occurrence in occurrences:
            life, event = occurrence.life, event_view(occurrence.life)
            name, incidents = life.instance or instance, opened.get(life.key, {})
            routed = _routed(self.routes, occurrence, name, now)
            unrouted = self._unrouted(incidents, routed) if occurrence.transition in ENDINGS else ()
            messages += [
                Message(
                    target=target,
                    key=life.key,
                    sequence=len(life.transitions),
                    transition=occurrence.transition,
                    at=occurrence.at,
                    instance=name,
                    event=event,
                    changes=occurrence.changes,
                    detail=occurrence.detail,
                    vm=vm,
                    incident=incidents.get(target) or _incident(self.routes, target, life, name),
                    traceparent=traceparent(life, ("notify", target, str(len(life.transitions))), seen),
                    only_closes=target in unrouted,
                )
                for target in (*routed, *unrouted)
            ]
        return tuple(messages)

    def compose_watch(
        self,
        change: WatchChange,
        outage: Outage,
        at: datetime,
        snapshot: Snapshot,
        opened: Collection[str] = (),
    ) -> tuple[WatchMessage, ...]:
        """Return the messages about an outage, or its end; ``opened`` is what the outbox says of it."""
        ends = change is WatchChange.RECOVERED
        unrouted = self._unrouted(opened, self.watch_targets) if ends else ()
        return tuple(
            WatchMessage(
                target=target,
                key=outage.key,
                sequence=2 if ends else 1,
                transition=change,
                at=at,
                instance=snapshot.instance,
                since=outage.since,
                error=snapshot.last_error,
                vm=self._known(snapshot.vm),
                incident=outage.incident,
                only_closes=target in unrouted,
                never=outage.never,
            )
            for target in (*self.watch_targets, *unrouted)
        )

    def may_know_incidents(self, target: str) -> bool:
        """Return whether a target may have a service with incidents, which the check of addresses finds out.

        Until it has, and where it cannot, the sender process decides for each message.
        """
        address = self.addresses.get(target)
        return bool(address and not address.webhook) and self.incidents.get(target, True)

    def _unrouted(self, opened: Iterable[str], routed: Collection[str]) -> tuple[str, ...]:
        """Return the targets that may have an open incident to which no route leads its end."""
        return tuple(target for target in opened if target not in routed and self.may_know_incidents(target))

    def _known(self, vm: VirtualMachine | None) -> VirtualMachine:
        return replace(vm or VirtualMachine(), node=self.node)


def _routed(
    routes: Sequence[Route], occurrence: Occurrence, instance: str | None, now: datetime
) -> tuple[str, ...]:
    life = occurrence.life
    first = next(iter(life.event.resources), None)
    is_first = instance is None or first is None or normal_name(first) == normal_name(instance)
    holds = partial(Match.holds, event=life.event, target=life.target, now=now)
    targets: list[str] = []
    for route in routes:
        if (is_first or route.leader != "first") and holds(route.match, transition=occurrence.transition):
            targets += route.targets
    return tuple(dict.fromkeys(targets))


def _incident(routes: Sequence[Route], target: str, life: Life, instance: str | None) -> str:
    """Return the key of the incident that a message opens.

    Every VM that sees the event can close an incident that is shared, also for a VM that is gone. It is if a
    route about other VMs leads to the target, whichever transitions the route is for: all messages of a life
    have one key.
    """
    matches = (route.match for route in routes if target in route.targets)
    is_shared = any(
        Match(match.event_types, match.event_sources, target=match.target).holds(
            life.event, target=life.target, now=life.first_seen
        )
        for match in matches
        if match.target is not Scope.SELF
    )
    alone = is_shared or life.name_was_unknown or instance is None
    return life.ids[0] if alone else f"{life.ids[0]}/{instance}"


def webhook_templates(own: Templates | None) -> Templates:
    """Return the templates of a webhook: at most a body, in which data stand as they are."""
    return Templates(body=own.body if own else "", format="text")


def plan_of(loaded: Loaded, *, local: Sequence[str] = (), keep_state: bool = False) -> Plan:
    """Return the plan for a configuration; targets ``local`` to this process get everything.

    With ``keep_state``, what services with incidents need to keep is in the state directory.
    """
    settings, notifications = loaded.config, loaded.config.notifications
    addresses = {address.target: address for address in loaded.addresses["notifications"]}
    # What is not in the file is of --notify.
    extra = [name for name, address in addresses.items() if not address.keys]
    addresses |= {name: Address(name) for name in local}
    own = {
        target.name: webhook_templates(target.templates) if target.webhook else target.templates
        for target in notifications.targets
    }
    everything = [*([] if notifications.routes else own), *extra, *local]
    watch = notifications.watch
    return Plan(
        routes=(*notifications.routes, *([Route(targets=tuple(everything))] if everything else [])),
        addresses=addresses,
        templates={name: own.get(name) or notifications.templates for name in addresses}
        | {name: replace(notifications.templates, format="text") for name in local},
        exporter_url=settings.web.external_url,
        runbook_url=settings.web.runbook_url,
        timezone=notifications.timezone,
        storage=str(state_directory(settings) / _STORAGE) if keep_state else "",
        node=settings.kubernetes.node_name(os.environ),
        retry_for=notifications.retry_for,
        watch_targets=tuple(addresses) if watch.targets is None else watch.targets,
    )
