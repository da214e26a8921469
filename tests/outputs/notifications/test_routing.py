import pytest

from exporter import config
from exporter.config import Config, Notifications, Route
from exporter.config.addresses import Address
from exporter.config.loading import Loaded
from exporter.config.match import Match, Scope
from exporter.config.yamlfile import YamlFile
from exporter.model.lifecycle import ENDINGS
from exporter.outputs.notifications.planning import Plan, plan_of
from tests.builders import FREEZE_ID, REBOOT_ID, scheduled
from tests.lives import Story

FREEZES = Route(targets=("chat",), match=Match(event_types=("Freeze",)))
ALL = Route(targets=("log", "chat"), match=Match(target=Scope.ANY))


def composed(routes: list[Route], instance: str | None = "WestNO_0") -> list[tuple[str, str]]:
    """Return target and event type of the messages about a freeze of this VM and a reboot of another."""
    life = Story(instance)
    step = life.feed(scheduled(), scheduled(event_id=REBOOT_ID, event_type="Reboot", resources=("WestNO_9",)))
    messages = Plan(routes).compose(step.occurrences, instance=instance, now=life.now)
    return [(message.target, message.event.type) for message in messages]


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        ([FREEZES], [("chat", "Freeze")]),
        ([ALL], [("log", "Reboot"), ("chat", "Reboot"), ("log", "Freeze"), ("chat", "Freeze")]),
        ([FREEZES, ALL], [("log", "Reboot"), ("chat", "Reboot"), ("chat", "Freeze"), ("log", "Freeze")]),
        ([Route(("a",), Match(target=Scope.OTHER))], [("a", "Reboot")]),
    ],
)
def test_every_route_that_matches_delivers(routes: list[Route], expected: list[tuple[str, str]]) -> None:
    """A target gets a transition once, however many routes lead to it."""
    assert composed(routes) == expected


@pytest.mark.parametrize(
    ("routes", "configured", "extra", "expected"),
    [
        ([FREEZES], ["a", "chat"], [], [("chat",)]),
        ([], ["a"], ["notify-1"], [("a", "notify-1")]),
        ([FREEZES], ["chat"], ["notify-1", "notify-2"], [("chat",), ("notify-1", "notify-2")]),
    ],
)
def test_what_holds_without_routes(
    routes: list[Route], configured: list[str], extra: list[str], expected: list[tuple[str, ...]]
) -> None:
    """Targets without any route get everything about this VM; so does --notify, whatever the routes."""
    targets = tuple(config.Target(name, url="json://h/") for name in configured)
    settings = Config(notifications=Notifications(targets=targets, routes=tuple(routes)))
    addresses = [Address(name, url="json://h/") for name in extra]
    plan = plan_of(Loaded(settings, YamlFile(), (), {"notifications": addresses}))
    assert [route.targets for route in plan.routes] == expected


@pytest.mark.parametrize(
    ("matches", "instance", "incident"),
    [
        ([Match()], "WestNO_0", f"{FREEZE_ID}/WestNO_0"),
        ([Match()], None, FREEZE_ID),
        ([Match(), Match(target=Scope.ANY, transitions=ENDINGS)], "WestNO_0", FREEZE_ID),
        ([Match(), Match(("Reboot",), target=Scope.ANY)], "WestNO_0", f"{FREEZE_ID}/WestNO_0"),
    ],
)
def test_incidents_are_this_vms_unless_a_route_is_about_others(
    matches: list[Match], instance: str | None, incident: str
) -> None:
    """Any VM that sees an event can close its incident, by whichever route, also once it knows its name."""
    life, plan = Story(instance), Plan([Route(("a",), match) for match in matches])
    step = life.feed(scheduled())
    (message,) = plan.compose(step.occurrences, instance=instance, now=life.now)
    assert message.incident == incident
    assert not message.resolves
    life.instance = instance or "WestNO_0"
    step = life.feed()
    (message,) = plan.compose(step.occurrences, instance=life.instance, now=life.now)
    assert (message.incident, message.resolves) == (incident, True)


@pytest.mark.parametrize(
    ("instance", "resources", "told"),
    [
        ("westno_0", ("WestNO_0", "WestNO_1"), True),
        ("WestNO_1", ("WestNO_0", "WestNO_1"), False),
        ("WestNO_1", (), True),
        (None, ("WestNO_0", "WestNO_1"), True),
    ],
)
def test_the_first_vm_tells_for_all(instance: str | None, resources: tuple[str, ...], told: bool) -> None:
    """With ``leader: first`` twenty VMs send one message; in doubt each sends its own."""
    life = Story(instance)
    step = life.feed(scheduled(resources=resources))
    route = Route(("a",), leader="first")
    assert bool(Plan([route]).compose(step.occurrences, instance=instance, now=life.now)) is told
