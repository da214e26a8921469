"""The golden files: the words of every message, to be read as the person on call reads them.

After a change of words, `make golden` writes them anew; read the difference before it is committed.
"""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from exporter.config import Templates
from exporter.model.events import EVENT_TYPES, Affected
from exporter.model.lifecycle import Change, Transition, TransitionRecord
from exporter.model.messages import AnyMessage, Message, Rendered, TextFormat, WatchChange, WatchMessage
from exporter.model.views import ApprovalView
from exporter.model.vm import VirtualMachine
from exporter.outputs.notifications.samples import samples, watch_sample
from tests.builders import FREEZE_ID, WEB_VM, message
from tests.clocks import NOW
from tests.outputs.notifications.sending import EXPORTER_URL, rendered

FOLDER = Path(__file__).parent / "golden"
FORMATS: dict[TextFormat, str] = {"markdown": "md", "text": "txt", "html": "html"}


# Notice in seconds, expected impact in seconds, and Azure's words, as each type has them in the field.
_TYPES: dict[str, tuple[int, int | None, str]] = {
    "Freeze": (
        900,
        5,
        "Virtual machine is being paused because of a memory-preserving Live Migration operation.",
    ),
    "Reboot": (900, 90, "The host is being repaired."),
    "Redeploy": (600, None, "The host is expected to fail."),
    "Preempt": (30, None, ""),
    "Terminate": (300, None, ""),
    "Evacuate": (3600, 0, ""),
}
# After which a late message is rendered; the others are at once.
_LATE = timedelta(minutes=40)
_FIRST_SEEN = NOW - timedelta(minutes=20)
_STARTED_AT = NOW - timedelta(seconds=607)
_FAILURE = "hook drain failed: exit status 3; output: draining / 2 pods are left"


def of(transition: Transition, event_type: str, **fields: Any) -> Message:
    """Return a message about an event as each type is in the field."""
    notice, impact, description = _TYPES[event_type]
    due = NOW + timedelta(seconds=notice)
    values: dict[str, Any] = {
        "id": FREEZE_ID,
        "type": event_type,
        "resources": ("web_0", "web_1"),
        "description": description,
        "duration_seconds": impact,
        "first_seen": _FIRST_SEEN,
    }
    if transition not in (Transition.STARTED, Transition.COMPLETED):
        values["not_before"] = due
    if transition is Transition.COMPLETED:
        values |= {"started": _STARTED_AT, "impact_seconds": 607.0}
    changes = (Change("not_before", due + timedelta(minutes=10), due),)
    return message(
        transition,
        instance="web_0",
        changes=changes if transition is Transition.UPDATED else (),
        detail=_FAILURE if transition is Transition.HOOK_FAILED else "",
        vm=WEB_VM,
        **(values | fields),
    )


def ordinary() -> Iterator[tuple[str, AnyMessage]]:
    """Return every transition of every type, with a heading."""
    for transition in Transition:
        for event_type in (*EVENT_TYPES, "Evacuate"):
            yield f"{event_type} {transition}", of(transition, event_type)


def _odd_events() -> Iterator[tuple[str, AnyMessage]]:
    reboot = of(Transition.SCHEDULED, "Reboot")
    yield (
        "Azure leaves everything out",
        of(Transition.SCHEDULED, "Reboot", not_before=None, duration_seconds=None, source="", resources=()),
    )
    yield (
        "NotBefore cannot be read",
        of(Transition.SCHEDULED, "Reboot", not_before=None, doubts=("NotBefore: 'soon'",)),
    )
    yield "late, and NotBefore has passed", reboot
    over = replace(
        reboot.event,
        started=NOW + timedelta(minutes=15),
        ended=NOW + timedelta(minutes=25),
        outcome=Transition.COMPLETED,
        impact_seconds=600.0,
    )
    yield "late, and the event is over", replace(reboot, event=over)
    yield "a week of notice", of(Transition.SCHEDULED, "Redeploy", not_before=NOW + timedelta(days=6.9))
    sudden = of(Transition.STARTED, "Reboot", transitions=(TransitionRecord(Transition.STARTED, NOW),))
    yield "no notice", sudden
    held = ApprovalView("hold", None, "no rule matches")
    yield "waits for an approval", replace(reboot, event=replace(reboot.event, approval=held))
    yield (
        "approved by a rule",
        of(Transition.APPROVED, "Freeze", approval=ApprovalView("approved", "short-freeze", "")),
    )
    yield "a user's event", of(Transition.SCHEDULED, "Reboot", source="User")
    yield "other VMs", of(Transition.STARTED, "Reboot", target=Affected.OTHER, resources=("web_1", "web_2"))
    yield "another VM, over", of(Transition.CANCELLED, "Reboot", target=Affected.OTHER, resources=("db_1",))
    yield "another type", of(Transition.CANCELLED, "Reboot", changed_to="Freeze")
    yield "this VM has no name yet", replace(reboot, instance=None, vm=VirtualMachine())
    yield "a long name", replace(reboot, instance="aks-nodepool1-12345678-vmss_000012")


def _odd_ends() -> Iterator[tuple[str, AnyMessage]]:
    noticed = (TransitionRecord(Transition.STARTED, _STARTED_AT),)
    failed = of(Transition.HOOK_FAILED, "Reboot")
    over = replace(failed.event, outcome=Transition.COMPLETED, ended=NOW, started=_STARTED_AT)
    yield "a hook that failed after the end", replace(failed, event=over)
    yield "a pause that was observed", of(Transition.COMPLETED, "Freeze", paused_seconds=4.9)
    yield (
        "a start that was not watched",
        of(Transition.STARTED, "Redeploy", started=None, transitions=noticed),
    )
    yield (
        "an end that was not watched",
        of(Transition.COMPLETED, "Reboot", started=None, impact_seconds=None, transitions=noticed),
    )
    for heading, seconds in (("postponed", -23), ("moved up", 86_400)):
        later = NOW + timedelta(days=2)
        changes = (Change("not_before", later + timedelta(seconds=seconds), later),)
        yield heading, replace(of(Transition.UPDATED, "Redeploy", not_before=later), changes=changes)
    for field, old, new in (
        ("duration_seconds", None, 90),
        ("resources", ("web_0",), ("web_0", "web_1")),
        ("description", "", "The host is being repaired."),
    ):
        changed = replace(of(Transition.UPDATED, "Reboot"), changes=(Change(field, old, new),))
        yield f"another {field}", changed
    yield (
        "everything changed",
        replace(
            of(Transition.UPDATED, "Reboot"),
            changes=(
                Change("not_before", None, NOW + timedelta(minutes=15)),
                Change("duration_seconds", None, 90),
                Change("resources", (), ("web_0", "web_1")),
                Change("description", "", "The host is being repaired."),
            ),
        ),
    )


def _outage() -> Iterator[tuple[str, AnyMessage]]:
    blind = WatchMessage(
        "oncall", "watch", 1, WatchChange.BLIND, NOW, "web_0", NOW - timedelta(minutes=5), "timed out", WEB_VM
    )
    yield "the watch is blind", blind
    yield (
        "the watch recovered",
        replace(blind, transition=WatchChange.RECOVERED, at=NOW + timedelta(minutes=7)),
    )


def sampled() -> Iterator[tuple[str, AnyMessage]]:
    found: list[AnyMessage] = [*samples(WEB_VM, NOW)]
    for sample in found + [watch_sample(change, WEB_VM, NOW) for change in WatchChange]:
        yield f"a sample of notify-test: {sample.transition}", sample


def written(heading: str, found: Rendered) -> str:
    return f"======== {heading}\n{found.title}\n\n{found.body}\n"


def messages(text_format: TextFormat) -> Iterator[str]:
    """Return every message as text, and the first of each transition in the other formats."""
    fields: dict[str, Any] = {"templates": Templates(format=text_format), "exporter_url": EXPORTER_URL}
    cases = [*ordinary(), *_odd_events(), *_odd_ends(), *_outage(), *sampled()]
    if text_format != "text":
        firsts = {case[1].transition: case for case in reversed(cases)}
        cases = [firsts[transition] for transition in (*Transition, *WatchChange)]
    for heading, told in cases:
        delay = _LATE if heading.startswith("late,") else timedelta()
        yield written(heading, rendered(told, told.at + delay, **fields))


@pytest.mark.parametrize(("text_format", "ending"), FORMATS.items())
def test_the_words_are_those_of_the_golden_file(text_format: TextFormat, ending: str) -> None:
    """Every message reads as it has been read, and in every format each transition does."""
    file = FOLDER / f"messages.{ending}"
    found = "\n".join(messages(text_format))
    if os.environ.get("GOLDEN_WRITE"):
        file.write_text(found, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == found
