"""`notify-test`: send a sample of each transition to every target, and report the results."""

import threading
from collections.abc import Iterator, Sequence

import click
import msgspec

from exporter.clock import Clock
from exporter.commands.table import aligned
from exporter.config import Config
from exporter.errors import ImdsError
from exporter.imds import ImdsClient, endpoint_of
from exporter.model.messages import Delivery, Sender
from exporter.notifications.notifier import Plan
from exporter.notifications.samples import samples
from exporter.notifications.worker import Writes

_HEAD = ("TARGET", "ADDRESS", "TRANSITION", "ARRIVED", "TOOK", "WHY NOT")
_NAME_SECONDS = 3.0


class Try(msgspec.Struct, frozen=True):
    """What became of one sample; ``seconds`` is how long it took to know."""

    target: str
    address: str
    transition: str
    delivery: Delivery
    seconds: float


def run(settings: Config, plan: Plan, clock: Clock) -> int:
    """Send the samples, print the results, and return the exit status: 0 only if all arrived."""
    if not plan.senders or plan.renderer is None:
        click.echo("There is no target: give --notify URL, or notifications.targets in a file.", err=True)
        return 1
    instance = settings.instance.name or _name(endpoint_of(settings.imds.endpoint), clock)
    click.echo(f"Sending a sample of each transition to {', '.join(plan.senders)} ...", err=True)
    tries = try_all(plan, instance, clock)
    for line in aligned([_HEAD, *map(_row, tries)]):
        click.echo(line)
    lost = sum(not one.delivery.delivered for one in tries)
    if lost:
        click.echo(f"{lost} of {len(tries)} messages did not arrive.", err=True)
    return 1 if lost else 0


def try_all(plan: Plan, instance: str | None, clock: Clock) -> list[Try]:
    """Send the samples to all targets at once, each target's in order; return the tries by target."""
    if plan.renderer is None:
        return []
    renderer = plan.renderer()
    found: dict[str, list[Try]] = {target: [] for target in plan.senders}

    def work(target: str) -> None:
        sender = plan.senders[target]()
        found[target].extend(_try_target(target, sender, renderer, instance, clock))

    threads = [threading.Thread(target=work, args=(target,), daemon=True) for target in plan.senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [one for tries in found.values() for one in tries]


def _try_target(
    target: str, sender: Sender, renderer: Writes, instance: str | None, clock: Clock
) -> Iterator[Try]:
    for sample in samples(instance, clock.now()):
        begun = clock.monotonic()
        message = msgspec.structs.replace(sample, target=target)
        rendered = renderer.render(message, clock.now(), limit=sender.body_limit)
        delivery = sender.send(rendered, sample.transition)
        seconds = clock.monotonic() - begun
        yield Try(target, sender.address, sample.transition.value, delivery, seconds)


def _row(one: Try) -> Sequence[str]:
    arrived = "yes" if one.delivery.delivered else "NO"
    return one.target, one.address, one.transition, arrived, f"{one.seconds:.2f}s", one.delivery.reason


def _name(endpoint: str, clock: Clock) -> str | None:
    """Ask IMDS for this VM's name; whoever tests on another machine shall not wait for it long."""
    client = ImdsClient(endpoint, timeout=_NAME_SECONDS, clock=clock)
    try:
        return client.instance().name or None
    except ImdsError as error:
        click.echo(f"this VM's name is not known ({error}); give --instance.name", err=True)
        return None
    finally:
        client.close()
