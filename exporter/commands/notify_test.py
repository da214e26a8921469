"""`notify-test`: send samples of the routed messages to every target, and report the results."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import click
import msgspec
from msgspec.structs import replace

from exporter.clock import Clock
from exporter.config import Config, Route
from exporter.config.addresses import Address
from exporter.config.match import Match
from exporter.errors import ConfigurationError, ImdsError, did_you_mean
from exporter.imds.client import ImdsClient, asked_again, endpoint_of
from exporter.model.lifecycle import ENDINGS, Transition
from exporter.model.messages import AnyMessage, Delivery, Message, WatchChange, WatchMessage
from exporter.model.vm import VirtualMachine
from exporter.model.wording import printable
from exporter.outputs.alertmanager.alerts import sample
from exporter.outputs.alertmanager.client import AlertmanagerError, Client
from exporter.outputs.notifications.planning import Plan
from exporter.outputs.notifications.samples import SAMPLE_ID, samples, watch_sample
from exporter.outputs.notifications.sender import SenderProcess

_ROW = "{:<7}  {:<6}  {:<11}  {}"  # what can be of any length comes last, so that nothing is cut
_HEAD = _ROW.format("ARRIVED", "TOOK", "TRANSITION", "TARGET")
_NAME_SECONDS = 3.0

Chosen = Transition | WatchChange
_TEST_SECONDS = 60.0  # how long a test alert is active
# No alert begins with these; without any, that of scheduled is posted.
_NO_ALERT = {*Transition, *WatchChange} - {Transition.ADVISED, Transition.SCHEDULED, Transition.STARTED}


class Try(msgspec.Struct, frozen=True):
    target: str
    address: str
    transition: str
    delivery: Delivery
    seconds: float


class Trial(NamedTuple):
    settings: Config
    plan: Plan
    sender: SenderProcess
    clock: Clock
    alertmanagers: Sequence[Address] = ()

    def run(self, *, target: str | None = None, transition: Chosen | None = None, every: bool = False) -> int:
        """Send one or every sample to each target, and return the exit status: 0 if all arrived."""
        names = [*self.plan.addresses, *(address.target for address in self.alertmanagers)]
        if not names:
            remedy = "pass --notify URL, or set notifications.targets or alertmanager.urls in a file"
            missing = f"There is no target: {remedy}."
            click.echo(missing, err=True)
            return 1
        if target is not None and target not in names:
            raise ConfigurationError(f"--target: {target} is not a target; {did_you_mean(target, names)}")
        vm = _vm(endpoint_of(self.settings.imds.endpoint), self.clock, self.settings.instance.name)
        vm = replace(vm, node=self.plan.node)
        chosen: dict[str, list[AnyMessage]] = {}
        for name in [name for name in self.plan.addresses if target in (None, name)]:
            allowed = _allowed(self.plan.routes, name)
            about_watch = [
                change
                for change in WatchChange
                if name in self.plan.watch_targets and (transition is change or (every and not transition))
            ]
            click.echo(_introduction(name, allowed, None if about_watch else transition), err=True)
            routes = allowed or {Transition.SCHEDULED: Route(targets=(name,))}
            wanted = _wanted([moment for moment in routes if transition in (None, moment)], every=every)
            chosen[name] = [_sample(moment, routes[moment], name, vm, self.clock) for moment in wanted]
            chosen[name] += [_about_watch(change, name, vm, self.clock) for change in about_watch]
        posted = self._post_alerts(target, transition, vm.name) if transition not in _NO_ALERT else []
        tries = [*(self._try_all(chosen) if chosen else ()), *posted]
        for line in [_HEAD, *map(_row, tries)] if tries else ():
            click.echo(line)
        lost = sum(not attempt.delivery.delivered for attempt in tries)
        if lost or not tries:
            failed = f"{lost} of {len(tries)} messages did not arrive." if lost else "Nothing was sent."
            click.echo(failed, err=True)
        return 1 if lost or not tries else 0

    def _try_all(self, chosen: Mapping[str, list[AnyMessage]]) -> list[Try]:
        """Send the messages to all targets at once, each target's in order; return the tries by target."""
        with ThreadPoolExecutor(len(chosen)) as pool:
            results = pool.map(lambda name: list(self._try_target(name, chosen[name])), chosen)
            return [attempt for tries in results for attempt in tries]

    def _post_alerts(self, target: str | None, transition: Chosen | None, name: str) -> list[Try]:
        """Post an alert that ends after a minute to each Alertmanager, or the one that is wanted."""
        phase = transition if isinstance(transition, Transition) else Transition.SCHEDULED
        event_type = (self.settings.alertmanager.match.event_types or ("Reboot",))[0]
        tries = []
        for address in self.alertmanagers:
            if target in (None, address.target):
                now, begun = self.clock.now(), self.clock.monotonic()
                alert = sample(phase, event_type, SAMPLE_ID, name, now)
                alert = replace(alert, labels=self.settings.alertmanager.labels | alert.labels)
                client, delivery = Client(address, self.clock), Delivery(delivered=True)
                try:
                    client.post([alert.body(now, self.settings.web.external_url, _TEST_SECONDS)])
                except AlertmanagerError as error:
                    delivery = Delivery(delivered=False, reason=str(error))
                finally:
                    client.close()
                seconds = self.clock.monotonic() - begun
                tries.append(Try(address.target, client.label, phase.value, delivery, seconds))
        return tries

    def _try_target(self, target: str, messages: Sequence[AnyMessage]) -> Iterator[Try]:
        address = self.plan.addresses[target]
        if self.plan.may_know_incidents(target):
            # A test must not leave one open, whether about an event or about the watch.
            last = {message.incident: message for message in messages}.values()
            messages = [*messages, *(_end(message, self.clock) for message in last if not message.resolves)]
        for message in messages:
            begun = self.clock.monotonic()
            result = self.sender.ask(self.plan.request(target, message, self.clock.now()))
            seconds = self.clock.monotonic() - begun
            if isinstance(result, Delivery):
                yield Try(target, address.label, message.transition.value, result, seconds)


def _allowed(routes: Sequence[Route], target: str) -> dict[Transition, Route]:
    """Return the transitions that a target gets, in their order, each with the first route that matches."""
    own = [route for route in routes if target in route.targets]
    allowed = {}
    for transition in Transition:
        if route := next((candidate for candidate in own if candidate.match.may_hold(transition)), None):
            allowed[transition] = route
    return allowed


def _introduction(target: str, allowed: Mapping[Transition, Route], wanted: Chosen | None) -> str:
    if not allowed:
        return f"warning: {target}: no route leads to it; it gets no messages about events"
    every = len(allowed) == len(Transition)
    refused = f"; {wanted} is not sent" if wanted is not None and wanted not in allowed else ""
    is_partial = any(replace(route.match, transitions=None) != Match() for route in allowed.values())
    which = " of the events that its routes match" if is_partial else ""
    return f"{target}: gets {'every transition' if every else ', '.join(allowed)}{which}{refused}"


def _wanted(possible: list[Transition], *, every: bool) -> list[Transition]:
    if every:
        # A message after the end would reopen the incident.
        return sorted(possible, key=ENDINGS.__contains__)
    return [Transition.SCHEDULED] if Transition.SCHEDULED in possible else possible[:1]


def _sample(transition: Transition, route: Route, target: str, vm: VirtualMachine, clock: Clock) -> Message:
    """Return a message whose type and transition match the route."""
    event_type = (route.match.event_types or ("Reboot",))[0]
    message = next(
        sample for sample in samples(vm, clock.now(), event_type) if sample.transition is transition
    )
    return replace(message, target=target)


def _about_watch(change: WatchChange, target: str, vm: VirtualMachine, clock: Clock) -> WatchMessage:
    return replace(watch_sample(change, vm, clock.now()), target=target)


def _end(message: AnyMessage, clock: Clock) -> AnyMessage:
    """Return the end of the incident that a sample opens, for the services that know incidents."""
    if isinstance(message, WatchMessage):
        end: AnyMessage = _about_watch(WatchChange.RECOVERED, message.target, message.vm, clock)
    else:
        messages = samples(message.vm, clock.now(), message.event.type)
        end = next(sample for sample in messages if sample.transition is Transition.COMPLETED)
    return replace(end, target=message.target, only_closes=True)


def _row(attempt: Try) -> str:
    arrived, reason = "yes" if attempt.delivery.delivered else "NO", attempt.delivery.reason
    if attempt.delivery.skipped:
        arrived, reason = "-", "the service has no use for it, and was not asked"
    whom = f"{attempt.target} at {attempt.address}{reason and f': {reason}'}"
    return printable(_ROW.format(arrived, f"{attempt.seconds:.2f}s", attempt.transition, whom))


def _vm(endpoint: str, clock: Clock, name: str) -> VirtualMachine:
    """Return the facts about this VM from IMDS, with a short timeout for tests on other machines."""
    client = ImdsClient(endpoint, timeout=_NAME_SECONDS, clock=clock)
    try:
        vm = asked_again(client.instance, clock)
    except ImdsError as error:
        if not name:
            click.echo(f"this VM's name is not known ({error}); pass --instance.name", err=True)
        return VirtualMachine(name=name)
    finally:
        client.close()
    return replace(vm, name=name) if name else vm
