"""The incarnation, with plans, approvals and switch-offs that nobody would think of."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.simulator import EventChange, EventPlan, Simulator
from tests.simulator.support import HandClock, change, document, plan, scenario

SECONDS = 60
contents = st.fixed_dictionaries(
    {},
    optional={
        "vms": st.sampled_from([("vm_0",), ("vm_0", "vm_1"), ()]),
        "notice": st.integers(0, 15),
        "description": st.sampled_from(["", "Soon."]),
        "duration_in_seconds": st.sampled_from([-1, 5]),
    },
)


@st.composite
def plans(draw: st.DrawFn) -> EventPlan:
    """Make plans as files may have them."""
    advisory, notice, impact = (
        draw(st.sampled_from([0, 0, 7])),
        draw(st.integers(0, 15)),
        draw(st.integers(1, 9)),
    )
    starts = advisory + notice
    changes: list[EventChange] = []
    for after in sorted(draw(st.sets(st.integers(1, 30), max_size=3))):
        content: dict[str, Any] = draw(contents)
        if not advisory <= after < starts:
            content.pop("notice", None)
        starts = after + content.get("notice", starts - after)
        changes.append(change(after, **content))
    return plan(
        advisory=advisory,
        notice=notice,
        impact=impact,
        changes=tuple(changes),
        after=draw(st.sampled_from([0, 0, 4])),
        cancelled_after=draw(st.none() | st.integers(1, 15)),
        returns_after=draw(st.none() | st.integers(1, 15)),
        renews_id=draw(st.booleans()),
    )


actions = st.tuples(
    st.integers(0, SECONDS), st.sampled_from(["approve", "cancel", "clear", "switch off", "switch off"])
)


def act(simulator: Simulator, action: str) -> None:
    """Do one of the things that a client or a person can do."""
    ids = [event.event_id for event in simulator.picture().events]
    if action == "approve":
        simulator.approve(ids)
    elif action == "cancel" and ids:
        simulator.cancel(ids[0])
    elif action == "clear":
        simulator.clear()


@settings(deadline=None, max_examples=200)
@given(st.lists(plans(), max_size=3), st.lists(actions, max_size=4), st.sampled_from([0, 6]))
def test_it_grows_by_one_whenever_the_document_changes(
    events: list[EventPlan], todo: list[tuple[int, str]], empty: int
) -> None:
    """And never otherwise; a switch-on begins at 0, or at 1 if events are listed at once."""
    clock = HandClock()
    simulator = Simulator([scenario(*events)] if events else [], vm_name="vm_0", clock=clock)
    simulator.first_call_wait()
    known = document(simulator)
    assert known["DocumentIncarnation"] == bool(known["Events"])
    for clock.passed in range(SECONDS):
        for action in ("", *(action for at, action in todo if at == clock.passed)):
            act(simulator, action)
            if action == "switch off":
                simulator.switch_off(empty)
                simulator.first_call_wait()
                known = {"DocumentIncarnation": 0, "Events": []}
            found = document(simulator)
            changed = found["Events"] != known["Events"]
            assert found["DocumentIncarnation"] == known["DocumentIncarnation"] + changed
            known = found
