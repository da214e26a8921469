"""Tests of `notify-test`: which samples go to which target, and what is said of it."""

from typing import Any

import pytest

from exporter.commands.notify_test import run
from exporter.config import Config, Endpoint, Imds, Instance, Route, Templates
from exporter.config.match import Match
from exporter.errors import ConfigurationError
from exporter.model.lifecycle import Transition
from exporter.model.messages import Backlog, Delivery
from exporter.notifications.planning import Plan
from exporter.notifications.rendering import Renderer
from exporter.notifications.templating import SAMPLE_ID
from tests.clocks import HandClock
from tests.notifications.workbench import REFUSED, ScriptedSender

ALL = Route(targets=("all",))
ENDS = Route(
    targets=("ends",),
    match=Match(event_types=("Freeze",), transitions=(Transition.CANCELLED, Transition.COMPLETED)),
)
# Nothing answers there; a name makes up for that.
SETTINGS = Config(imds=Imds(endpoint=Endpoint("http://127.0.0.1:9")), instance=Instance(name="vm_0"))


class Bench:
    """Three targets: one gets everything, one the ends of freezes, and one nothing."""

    def __init__(self) -> None:
        self.senders = {name: ScriptedSender() for name in ("all", "ends", "none")}
        self.plan = Plan(
            routes=(ENDS, ALL),
            senders={name: lambda sender=sender: sender for name, sender in self.senders.items()},  # type: ignore[misc]  # a default, not a parameter
            renderer=lambda: Renderer(Templates(title="{{ event.type }} {{ transition }}")),
        )

    def run(self, **choice: Any) -> int:
        """Run the command."""
        return run(SETTINGS, self.plan, HandClock(), **choice)

    def sent(self, name: str) -> list[str]:
        """Return what a target got, by type and transition."""
        return [rendered.title.removeprefix("(test) ") for rendered in self.senders[name].sent]


def test_every_target_gets_one_sample_that_its_routes_let_through(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is of `scheduled`, or else of the first; the output has what a target gets, or a warning."""
    bench = Bench()
    assert bench.run() == 0
    assert [bench.sent(name) for name in bench.senders] == [
        ["Reboot scheduled"],
        ["Freeze completed"],
        ["Reboot scheduled"],
    ]
    assert capsys.readouterr().err.splitlines() == [
        "all: its routes let through every transition",
        "ends: its routes let through completed, cancelled",
        "warning: none: no route leads to it; it gets no messages about events",
    ]


def test_all_sends_every_transition_that_the_routes_let_through() -> None:
    """In the order of a life, and no other."""
    bench = Bench()
    assert bench.run(every=True) == 0
    last = ["completed", "cancelled", "vanished"]
    first = [transition.value for transition in Transition if transition not in last]
    assert bench.sent("all") == [f"Reboot {transition}" for transition in (*first, *last)]
    assert bench.sent("ends") == ["Freeze completed", "Freeze cancelled"]


def test_a_target_and_a_transition_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is sent that no route lets through; it is a failure if nothing is left."""
    bench = Bench()
    assert bench.run(target="ends", transition=Transition.CANCELLED) == 0
    assert [bench.sent(name) for name in bench.senders] == [[], ["Freeze cancelled"], []]
    assert bench.run(target="ends", transition=Transition.STARTED) == 1
    assert "; started is not sent\nNothing was sent.\n" in capsys.readouterr().err
    assert bench.run(transition=Transition.STARTED) == 0
    assert bench.sent("all") == ["Reboot started"]


@pytest.mark.parametrize("backlog", [Backlog.EACH, Backlog.LAST])
def test_no_incident_of_a_test_stays_open(backlog: Backlog) -> None:
    """A service with incidents gets the end, too, under the same key."""
    bench = Bench()
    for sender in bench.senders.values():
        sender.backlog = backlog
    assert bench.run() == 0
    assert bench.sent("all") == ["Reboot scheduled", "Reboot completed"]
    assert bench.sent("ends") == ["Freeze completed"]
    opened, closed = bench.senders["all"].sent
    assert (opened.resolves, closed.resolves) == (False, True)
    assert opened.incident == closed.incident == f"{SAMPLE_ID}/vm_0"


def test_what_a_service_has_no_use_for_is_not_called_arrived(capsys: pytest.CaptureFixture[str]) -> None:
    """A service to which nothing was sent does not count as having received the message."""
    bench = Bench()
    bench.senders["all"].answer = lambda _: Delivery(delivered=True, skipped=True)
    assert bench.run(target="all") == 0
    assert "the service has no use for it, and was not asked" in capsys.readouterr().out


def test_an_unknown_target_is_a_mistake() -> None:
    """The error names those that there are."""
    with pytest.raises(
        ConfigurationError, match="--target: 'nobody' is not a target; there are: all, ends, none"
    ):
        Bench().run(target="nobody")


def test_one_that_does_not_arrive_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """The table has the reason, and the exit status is 1."""
    bench = Bench()
    bench.senders["ends"].answer = lambda _: REFUSED
    assert bench.run() == 1
    shown = capsys.readouterr()
    assert [line.split()[3] for line in shown.out.splitlines()[1:]] == ["yes", "NO", "yes"]
    assert "1 of 3 messages did not arrive." in shown.err
