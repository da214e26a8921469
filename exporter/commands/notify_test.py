"""`notify-test`: send samples of the routed messages to every target, and report the results."""

import threading
from collections.abc import Collection, Iterator, Sequence

import click
import msgspec

from exporter.clock import Clock
from exporter.commands.terminal import aligned
from exporter.config import Config, Route
from exporter.errors import ConfigurationError, ImdsError, quoted
from exporter.imds import ImdsClient, endpoint_of
from exporter.model.lifecycle import ENDINGS, Transition
from exporter.model.messages import Backlog, Delivery, Message
from exporter.model.vm import VirtualMachine
from exporter.notifications.planning import Plan
from exporter.notifications.templating import samples

_HEAD = ("TARGET", "ADDRESS", "TRANSITION", "ARRIVED", "TOOK", "WHY NOT")
_NAME_SECONDS = 3.0


class Try(msgspec.Struct, frozen=True):
    """One sample and its delivery, which took ``seconds``."""

    target: str
    address: str
    transition: str
    delivery: Delivery
    seconds: float


def run(
    settings: Config,
    plan: Plan,
    clock: Clock,
    *,
    target: str | None = None,
    transition: Transition | None = None,
    every: bool = False,
) -> int:
    """Send samples, print the results, and return the exit status: 0 only if all arrived.

    By default each target gets one sample; with ``every``, one of each transition.

    Raises:
        ConfigurationError: the chosen ``target`` does not exist.
    """
    if not plan.senders:
        click.echo("There is no target: give --notify URL, or notifications.targets in a file.", err=True)
        return 1
    if target is not None and target not in plan.senders:
        known = ", ".join(plan.senders)
        raise ConfigurationError(f"--target: {quoted(target)} is not a target; there are: {known}")
    vm = _vm(endpoint_of(settings.imds.endpoint), clock, settings.instance.name)
    chosen = {}
    for name in [target] if target else plan.senders:
        allowed = _allowed(plan.routes, name)
        click.echo(_introduction(name, allowed, transition), err=True)
        routes = allowed or {Transition.SCHEDULED: Route(targets=(name,))}
        wanted = _wanted([one for one in routes if transition in (None, one)], every=every)
        chosen[name] = [_sample(one, routes[one], name, vm, clock) for one in wanted]
    tries = try_all(plan, chosen, clock)
    for line in aligned([_HEAD, *map(_row, tries)]) if tries else ():
        click.echo(line)
    lost = sum(not one.delivery.delivered for one in tries)
    if lost or not tries:
        failed = f"{lost} of {len(tries)} messages did not arrive." if lost else "Nothing was sent."
        click.echo(failed, err=True)
    return 1 if lost or not tries else 0


def _allowed(routes: Sequence[Route], target: str) -> dict[Transition, Route]:
    """Return the transitions that a target gets, in their order, each with the first route that matches."""
    own = [route for route in routes if target in route.targets]
    found = {}
    for transition in Transition:
        leading = (r for r in own if r.match.transitions is None or transition in r.match.transitions)
        if route := next(leading, None):
            found[transition] = route
    return found


def _introduction(target: str, allowed: Collection[Transition], wanted: Transition | None) -> str:
    """Return a line about the messages that a target gets."""
    if not allowed:
        return f"warning: {target}: no route leads to it; it gets no messages about events"
    every = len(allowed) == len(Transition)
    refused = f"; {wanted} is not sent" if wanted is not None and wanted not in allowed else ""
    return f"{target}: its routes let through {'every transition' if every else ', '.join(allowed)}{refused}"


def _wanted(possible: list[Transition], *, every: bool) -> list[Transition]:
    """Return the transitions to send samples of."""
    if every:
        # A message after the end would reopen the incident.
        return sorted(possible, key=ENDINGS.__contains__)
    return [Transition.SCHEDULED] if Transition.SCHEDULED in possible else possible[:1]


def _sample(transition: Transition, route: Route, target: str, vm: VirtualMachine, clock: Clock) -> Message:
    """Return a message whose type and transition match the route."""
    event_type = (route.match.event_types or ("Reboot",))[0]
    found = next(one for one in samples(vm, clock.now(), event_type) if one.transition is transition)
    return msgspec.structs.replace(found, target=target)


def _end(message: Message, clock: Clock) -> Message:
    """Return the end of the event that a sample is about."""
    found = samples(message.vm, clock.now(), message.event.type)
    end = next(one for one in found if one.transition is Transition.COMPLETED)
    return msgspec.structs.replace(end, target=message.target)


def try_all(plan: Plan, chosen: dict[str, list[Message]], clock: Clock) -> list[Try]:
    """Send the messages to all targets at once, each target's in order; return the tries by target."""
    found: dict[str, list[Try]] = {target: [] for target in chosen}

    def work(target: str) -> None:
        found[target].extend(_try_target(plan, target, chosen[target], clock))

    threads = [threading.Thread(target=work, args=(target,), daemon=True) for target in chosen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [one for tries in found.values() for one in tries]


def _try_target(plan: Plan, target: str, messages: Sequence[Message], clock: Clock) -> Iterator[Try]:
    if not messages:
        return
    sender, renderer = plan.senders[target](), plan.renderer()
    if sender.backlog is not Backlog.DIGEST and not messages[-1].resolves:
        # For a service with incidents: a test must not leave one open.
        messages = [*messages, _end(messages[-1], clock)]
    for message in messages:
        begun = clock.monotonic()
        rendered = renderer.render(message, clock.now(), limit=sender.body_limit)
        delivery = sender.send(rendered.about(message))
        seconds = clock.monotonic() - begun
        yield Try(target, sender.address, message.transition.value, delivery, seconds)


def _row(one: Try) -> Sequence[str]:
    arrived, reason = "yes" if one.delivery.delivered else "NO", one.delivery.reason
    if one.delivery.skipped:
        arrived, reason = "-", "the service has no use for it, and was not asked"
    return one.target, one.address, one.transition, arrived, f"{one.seconds:.2f}s", reason


def _vm(endpoint: str, clock: Clock, name: str) -> VirtualMachine:
    """Return the facts about this VM from IMDS, with a short timeout for tests on other machines."""
    client = ImdsClient(endpoint, timeout=_NAME_SECONDS, clock=clock)
    try:
        vm = client.instance()
    except ImdsError as error:
        if not name:
            click.echo(f"this VM's name is not known ({error}); give --instance.name", err=True)
        return VirtualMachine(name=name)
    finally:
        client.close()
    return msgspec.structs.replace(vm, name=name) if name else vm
