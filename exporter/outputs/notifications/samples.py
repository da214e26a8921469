"""Sample messages: what `notify-test` sends, and what templates are tried with."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec.structs import replace

from exporter.model.events import SCHEDULED, STARTED, Affected
from exporter.model.lifecycle import ENDINGS, Change, Transition, TransitionRecord
from exporter.model.messages import Message, WatchChange, WatchMessage
from exporter.model.views import EventView
from exporter.model.vm import VirtualMachine

SAMPLE_ID = "00000000-0000-0000-0000-000000000000"
_DAY = datetime.fromisoformat("2026-01-02T03:04:05Z")
_NOTICE = timedelta(minutes=15)


def samples(vm: VirtualMachine, now: datetime, event_type: str = "Reboot") -> tuple[Message, ...]:
    """Return one message of each transition, at ``now``, about this VM; the caller fills in ``target``."""
    return tuple(_sample(transition, vm, now, event_type) for transition in Transition)


def watch_sample(change: WatchChange, vm: VirtualMachine, now: datetime) -> WatchMessage:
    """Return a message about an outage of the watch of ten minutes; the caller fills in ``target``."""
    since, instance = now - timedelta(minutes=10), vm.name or None
    # The numbers after those of the other samples, from which a webhook's receiver has to tell it.
    incident, number = f"{SAMPLE_ID}/watch", len(Transition) + 1 + list(WatchChange).index(change)
    error = "This is a test message."
    return WatchMessage("", _key(now), number, change, now, instance, since, error, vm, incident)


def variants() -> Iterator[tuple[str, Message]]:
    """Return messages that cover all cases for a template, each with a description of its case."""
    for sample in (*samples(VirtualMachine(name="vm_0"), _DAY), *samples(VirtualMachine(), _DAY)):
        event = sample.event
        what = f"transition {sample.transition}{'' if sample.instance else ', instance not known'}"
        yield what, sample
        unknown = replace(event, not_before=None, duration_seconds=None, description="")
        yield f"{what}, no NotBefore and no duration", replace(sample, event=unknown)
        odd = replace(event, resources=(), source="", type="Evacuate")
        yield f"{what}, no resources, no source and an unknown type", replace(sample, event=odd)
        other = replace(event, target=Affected.OTHER, resources=("vm_1", "vm_2"))
        yield f"{what}, an event of other VMs", replace(sample, event=other)
        yield f"{what}, every field changed", replace(sample, changes=tuple(_changes(event, _DAY)))


def _key(now: datetime) -> str:
    """Return a key for a sample, unlike that of an earlier one, which a webhook's receiver may have kept."""
    return f"{SAMPLE_ID} {now.isoformat()}"


def _sample(transition: Transition, vm: VirtualMachine, now: datetime, event_type: str) -> Message:
    instance = vm.name or None
    ended = transition in ENDINGS
    begun = transition in (Transition.STARTED, Transition.COMPLETED)
    started = now - timedelta(minutes=10 if ended else 0) if begun else None
    first_seen = (started or now) - (_NOTICE if begun or ended else timedelta(0))
    announced = (TransitionRecord(Transition.SCHEDULED, first_seen),) if begun else ()
    status = "Advisory" if transition is Transition.ADVISED else SCHEDULED
    event = EventView(
        id=SAMPLE_ID,
        ids=(SAMPLE_ID,),
        type=event_type,
        source="notify-test",
        status=STARTED if begun else status,
        target=Affected.SELF,
        resources=(instance,) if instance else (),
        description="This is a test message.",
        not_before=None if begun else now + _NOTICE,
        duration_seconds=9,
        first_seen=first_seen,
        started=started,
        ended=now if ended else None,
        outcome=transition if ended else None,
        transitions=(*announced, TransitionRecord(transition, now)),
    )
    changes = tuple(_changes(event, now))[:1] if transition is Transition.UPDATED else ()
    detail = "hook sample failed: exit status 1" if transition is Transition.HOOK_FAILED else ""
    number = list(Transition).index(transition) + 1
    incident = f"{SAMPLE_ID}/{instance or 'test'}"
    return Message("", _key(now), number, transition, now, instance, event, changes, detail, vm, incident)


def _changes(event: EventView, now: datetime) -> Iterator[Change]:
    yield Change("not_before", now + timedelta(minutes=10), event.not_before)
    yield Change("duration_seconds", None, event.duration_seconds)
    yield Change("resources", ("vm_1",), event.resources)
    yield Change("description", "", event.description)
