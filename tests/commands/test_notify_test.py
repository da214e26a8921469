from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from exporter.cli import main
from exporter.commands.notify_test import Trial
from exporter.config import Alertmanager, Config, Imds, Instance, Route, Templates
from exporter.config.addresses import Address
from exporter.config.match import Match
from exporter.errors import ConfigurationError
from exporter.model.lifecycle import Transition
from exporter.model.messages import Delivery, WatchChange
from exporter.outputs.notifications.planning import Plan
from exporter.outputs.notifications.samples import SAMPLE_ID
from exporter.simulator import Simulator, SimulatorServer
from tests.bench.senders import MemorySender
from tests.clocks import HandClock
from tests.receivers import http_receiver

ALL = Route(targets=("all",))
ENDS = Route(
    targets=("ends",),
    match=Match(event_types=("Freeze",), transitions=(Transition.CANCELLED, Transition.COMPLETED)),
)
# Nothing answers there; a name makes up for that.
SETTINGS = Config(imds=Imds(endpoint="http://127.0.0.1:9"), instance=Instance(name="vm_0"))


class Bench:
    """Three targets: one gets everything, one the ends of freezes, and one nothing."""

    def __init__(self, *, incidents: bool = False) -> None:
        names = ("all", "ends", "none")
        self.sender, self.clock = MemorySender(), HandClock()
        self.senders = {name: self.sender.target(name) for name in names}
        for target in self.senders.values():
            target.incidents = incidents
        self.plan = Plan(
            routes=(ENDS, ALL),
            addresses={name: Address(name, url="json://h.test/") for name in names},
            templates=dict.fromkeys(names, Templates(title="{{ event.type }} {{ transition }}")),
            incidents=dict.fromkeys(names, incidents),
        )

    def run(self, **choice: Any) -> int:
        return Trial(SETTINGS, self.plan, self.sender, self.clock).run(**choice)

    def sent(self, name: str) -> list[str]:
        return [title.removeprefix("(test) ") for title in self.senders[name].titles]


def test_every_target_gets_one_sample_that_its_routes_let_through(capsys: pytest.CaptureFixture[str]) -> None:
    """It is of `scheduled`, or else of the first transition; the output lists what a target gets."""
    bench = Bench()
    assert bench.run() == 0
    assert [bench.sent(name) for name in bench.senders] == [
        ["Reboot scheduled"],
        ["Freeze completed"],
        ["Reboot scheduled"],
    ]
    assert capsys.readouterr().err.splitlines() == [
        "all: gets every transition",
        "ends: gets completed, cancelled of the events that its routes match",
        "warning: none: no route leads to it; it gets no messages about events",
    ]


@pytest.mark.parametrize(
    ("match", "titles"),
    [
        (Match(statuses=("Started",)), ["Reboot started"]),
        (Match(event_types=("SpotRebalanceRecommendation",)), ["SpotRebalanceRecommendation advised"]),
    ],
)
def test_some_transitions_never_have_what_a_route_asks_for(
    match: Match, titles: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What has started is not scheduled any more, and a recommendation never is."""
    bench = Bench()
    bench.plan = replace(bench.plan, routes=(Route(("all",), match),))
    assert bench.run(target="all") == 0
    assert bench.sent("all") == titles
    assert " of the events that its routes match" in capsys.readouterr().err


def test_all_sends_every_transition_that_the_routes_let_through() -> None:
    """They come in the order of an event's life."""
    bench = Bench()
    assert bench.run(every=True) == 0
    last = ["completed", "cancelled", "vanished"]
    first = [transition.value for transition in Transition if transition not in last]
    assert bench.sent("all") == [f"Reboot {transition}" for transition in (*first, *last)]
    assert bench.sent("ends") == ["Freeze completed", "Freeze cancelled"]


def test_a_target_and_a_transition_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    """Only transitions that a route matches are sent; if there are none, the command fails."""
    bench = Bench()
    assert bench.run(target="ends", transition=Transition.CANCELLED) == 0
    assert [bench.sent(name) for name in bench.senders] == [[], ["Freeze cancelled"], []]
    assert bench.run(target="ends", transition=Transition.STARTED) == 1
    assert "; started is not sent\nNothing was sent.\n" in capsys.readouterr().err
    assert bench.run(transition=Transition.STARTED) == 0
    assert bench.sent("all") == ["Reboot started"]


def test_no_incident_of_a_test_stays_open() -> None:
    """A service with incidents gets the end, too, under the same key."""
    bench = Bench(incidents=True)
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
    reason = "the service has no use for it, and was not asked"
    assert capsys.readouterr().out.splitlines() == [
        "ARRIVED  TOOK    TRANSITION   TARGET",
        f"-        0.00s   scheduled    all at json://h.test: {reason}",
    ]


@pytest.mark.parametrize(("name", "shown"), [("", "web_3"), ("mine", "mine")])
def test_the_name_of_this_vm(name: str, shown: str) -> None:
    """It is that of IMDS unless another one is configured."""
    bench = Bench()
    title = "{{ instance }} {{ vm.location }} {{ vm.node }}"
    bench.plan = replace(bench.plan, templates={"all": Templates(title=title)}, node="node-1")
    with SimulatorServer(Simulator(vm_name="web_3")) as imds:
        settings = Config(imds=Imds(endpoint=imds.url), instance=Instance(name=name))
        assert Trial(settings, bench.plan, bench.sender, bench.clock).run(target="all") == 0
    assert bench.sent("all") == [f"{shown} westeurope node-1"]


def test_an_unknown_target_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """The error lists the valid ones, or how to add one."""
    bench = Bench()
    with pytest.raises(
        ConfigurationError, match="--target: nobody is not a target; must be one of: all, ends, none"
    ):
        bench.run(target="nobody")
    bench.plan = Plan()
    assert bench.run() == 1
    assert capsys.readouterr().err.startswith("There is no target: pass --notify URL, or set ")


def test_one_that_does_not_arrive_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """The table has the reason, and the exit status is 1."""
    bench = Bench()
    bench.senders["ends"].answer = lambda _: Delivery(delivered=False, reason="refused")
    assert bench.run() == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1:] == [
        "yes      0.00s   scheduled    all at json://h.test",
        "NO       0.00s   completed    ends at json://h.test: refused",
        "yes      0.00s   scheduled    none at json://h.test",
    ]
    assert "1 of 3 messages did not arrive." in shown.err


def test_no_two_samples_are_taken_for_one() -> None:
    """Each has an id of its own for the receiver of a webhook, which may leave out repetitions."""
    bench = Bench()
    bench.plan = replace(bench.plan, watch_targets=("all",))
    for _ in range(2):
        bench.run(every=True, target="all")
        bench.clock.pass_seconds(60)
    messages = [request.message for request in bench.senders["all"].requests]
    assert len({(one.key, one.sequence) for one in messages}) == len(messages)
    assert sorted(one.sequence for one in messages) == sorted([*range(1, 13)] * 2)


@pytest.mark.parametrize("choice", [{"transition": WatchChange.BLIND}, {"every": True, "target": "all"}])
def test_messages_about_the_watch(choice: dict[str, Any]) -> None:
    """The targets of `watch` get samples of outages, and a service with incidents gets the ends, too."""
    bench = Bench(incidents=True)
    only = Match(transitions=(Transition.SCHEDULED,))
    bench.plan = replace(bench.plan, routes=(Route(("all",), only),), watch_targets=("all",))
    assert bench.run(**choice) == 0
    titles = [title.removeprefix("(test) ").split(": ")[0] for title in bench.senders["all"].titles]
    assert [title for title in titles if "]" in title] == ["[CRITICAL] Blind", "[SUCCESS] Recovered"]
    assert all({one.incident: one.resolves for one in bench.senders["all"].sent}.values())


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It sends to the targets of file and flags, and ends with status 1 as nothing arrived."""
    monkeypatch.setattr("exporter.logs.configure", lambda *_: None)
    file = tmp_path / "exporter.yml"
    file.write_text("notifications: {targets: [{name: oncall, webhook: 'http://127.0.0.1:9/'}]}")
    words = ["notify-test", "--config.file", str(file), "--notify", "json://127.0.0.1:9"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--imds.endpoint", "http://127.0.0.1:9"])
    assert ended.value.code == 1
    shown = capsys.readouterr()
    assert [line.split()[3] for line in shown.out.splitlines()] == ["TARGET", "oncall", "notify-1"]
    assert "; pass --instance.name\n" in shown.err


def test_an_alertmanager_gets_an_alert_that_ends_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """It has the labels of a real one, is marked as a test, and ends after a minute."""
    with http_receiver() as receiver:
        address = Address("alertmanager", url=f"http://{receiver.authority}")
        bench = Bench()
        settings = replace(SETTINGS, alertmanager=Alertmanager(labels={"team": "red"}))
        trial = Trial(settings, bench.plan, bench.sender, bench.clock, [address])
        assert trial.run(target="alertmanager") == 0
        ((alert,),) = (request.json for request in receiver.requests)
        assert {"alertname": "ScheduledEventPending", "team": "red"}.items() <= alert["labels"].items()
        assert alert["annotations"]["summary"] == "(test) Reboot of vm_0 scheduled"
        begins, ends = (datetime.fromisoformat(alert[name]) for name in ("startsAt", "endsAt"))
        assert (begins, ends - begins) == (bench.clock.now(), timedelta(minutes=1))
        receiver.mood = 500
        assert trial.run(transition=Transition.STARTED) == 1
        assert trial.run(target="alertmanager", transition=Transition.COMPLETED) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("yes ")
    assert lines[1].endswith(" scheduled    alertmanager at http://127.0.0.1")
    (failed,) = (line for line in lines if line.startswith("NO "))
    assert " started      alertmanager at http://127.0.0.1: " in failed
    assert bench.sent("all") == ["Reboot started"]
