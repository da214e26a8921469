"""Every key of the configuration, set in a file, changes something that users see.

The keys are those of the types in `exporter.config`: a new one fails here until it has a row.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec import inspect

from exporter.config import Config
from exporter.config.kubernetes import Kubernetes
from exporter.config.match import Match
from exporter.model.jobs import HookOutcome
from exporter.model.messages import Delivery
from exporter.outputs.hooks.command import CommandResult
from exporter.outputs.otlp.telemetry import Signal
from exporter.simulator import Fault, Simulator, SimulatorServer
from tests.bench import VM, Bench, Build
from tests.builders import FREEZE_ID, REBOOT_ID, raw_event
from tests.receivers import http_receiver

OTHER = "WestNO_1"
FREEZE = raw_event()
ONCALL = "targets: [{name: oncall, url: 'json://receiver.test'}]"
NOTIFY = f"notifications: {{{ONCALL}}}"
APPROVE = "approval: {mode: 'on', rules: [{name: all, action: approve}]}"
HOOK = "hooks: [{name: drain, command: [drain]}]"


class Row(NamedTuple):
    """What is seen without a key and with it: files and what `look` finds."""

    look: Callable[[Bench], object]
    without: str
    before: object
    text: str
    after: object


def keys(info: inspect.Type, name: str = "") -> Iterator[str]:
    """Return the names of all keys: those of `match`, which is the same everywhere, once."""
    if isinstance(info, inspect.UnionType):
        for part in info.types:
            yield from keys(part, name)
    elif isinstance(info, inspect.VarTupleType):
        yield from keys(
            info.item_type, f"{name}[]" if isinstance(info.item_type, inspect.StructType) else name
        )
    elif isinstance(info, inspect.StructType) and (info.cls is not Match or name == "match"):
        for field in info.fields:
            yield from keys(field.type, f"{name}.{field.encode_name}".removeprefix("."))
    elif not isinstance(info, inspect.NoneType):
        yield name


def told(bench: Bench) -> int:
    """Return how many messages there are about a Freeze of the first minute."""
    bench.show(FREEZE)
    return len(bench.sent())


def approved_after(*seconds: float) -> Callable[[Bench], list[int]]:
    """Return how many approvals there are so long after two Freezes appeared."""

    def look(bench: Bench) -> list[int]:
        bench.show(FREEZE, raw_event(EventId=REBOOT_ID), wait=1)
        found = []
        for later in seconds:
            bench.advance(later)
            found.append(len(bench.approved))
        return found

    return look


def hooked(bench: Bench) -> list[tuple[tuple[str, ...], float]]:
    """Return the commands that ran for a Freeze, with their time limits."""
    bench.show(FREEZE)
    return [(command.argv, command.timeout) for command in bench.commands]


def counted(name: str, **labels: str) -> Callable[[Bench], float | None]:
    """Return the value of a metric some time after a Freeze appeared."""

    def look(bench: Bench) -> float | None:
        bench.show(FREEZE, wait=10)
        return bench.metric(name, **labels)

    return look


def title(bench: Bench) -> str:
    bench.show(FREEZE)
    return bench.sent()[0].title


def body(bench: Bench) -> str:
    bench.show(FREEZE)
    return bench.sent()[0].body.splitlines()[0]


def text_format(bench: Bench) -> str:
    bench.show(FREEZE)
    return bench.sent()[0].format


def matching(condition: str, matches: int = 0) -> Row:
    """Return a row for a condition of a route, with the number of messages about a Freeze."""
    route = f"{{targets: [oncall], match: {{{condition}}}}}"
    return Row(told, NOTIFY, 1, f"notifications: {{{ONCALL}, routes: [{route}]}}", matches)


def edited(
    look: Callable[[Bench], object], text: str, before: object, edit: tuple[str, str], after: object
) -> Row:
    """Return a row for a file in which one text is replaced by another."""
    return Row(look, text, before, text.replace(*edit), after)


def duration(bench: Bench) -> object:
    """Return how long an event lasts, as the document of this version of the API says."""
    bench.simulator.start_scenario("live-migration")
    bench.advance(2)
    return bench.api("current")[0]["duration_seconds"]


def slow_polls(bench: Bench) -> bool:
    """Return whether a poll that is answered after a while took too long."""
    bench.simulator.set_fault(Fault("delay", seconds=0.5, count=1))
    bench.advance(1)
    return bench.metric("polls_total", outcome="timeout") != 0


def blind_after(*seconds: float) -> Callable[[Bench], list[int]]:
    """Return how many messages each of two targets got after outages of so many seconds."""

    def look(bench: Bench) -> list[int]:
        for lasting in seconds:
            bench.outage(lasting)
        return [len(bench.sent()), len(bench.sent("backup"))]

    return look


def given_up(bench: Bench) -> float | None:
    """Return how many messages are given up in five minutes of failures."""
    bench.sender().answer = lambda _: Delivery(delivered=False, reason="down")
    bench.show(FREEZE)
    bench.clock.pass_seconds(270)
    bench.advance(30)
    return bench.metric("notifications_total", outcome="expired")


def required(bench: Bench) -> list[str]:
    """Return what is approved after a hook has failed."""
    bench.command_result = lambda _: CommandResult(HookOutcome.FAILED, 1, 0.0, "")
    bench.show(FREEZE, wait=5)
    return bench.approved


def rule(text: str) -> str:
    return f"approval: {{mode: 'on', rules: [{{name: all, action: approve, {text}}}]}}"


def notify(text: str, targets: str = ONCALL) -> str:
    return f"notifications: {{{targets}, {text}}}"


def own_url(bench: Bench) -> bool:
    bench.show(FREEZE)
    return "https://vm.example.com/" in bench.sent()[0].body


def own_runbook(bench: Bench) -> bool:
    bench.show(FREEZE)
    return "https://wiki.example.com/runbooks/ScheduledEventPending" in bench.sent()[0].body


def in_service(bench: Bench) -> int:
    """Return the answer to a load balancer during a Freeze."""
    bench.show(FREEZE)
    return bench.request("/-/in-service")[0]


def tagged(bench: Bench) -> float | None:
    bench.advance(2)
    return bench.metric("instance_info", tag_Environment="demo", tag_cost_center="", priority="Regular")


def imminent(bench: Bench) -> float | None:
    """Return how often a Freeze became imminent in the first six of its fifteen minutes."""
    bench.show(FREEZE)
    bench.clock.pass_seconds(350)
    bench.advance(10)
    return bench.metric("transitions_total", transition="imminent", event_type="Freeze")


def told_first(bench: Bench) -> str:
    bench.show(FREEZE)
    return next(name for name, sender in bench.senders.targets.items() if sender.sent)


def own(bench: Bench) -> float | None:
    bench.show(FREEZE)
    return bench.metric("pending", target="self")


def traced(bench: Bench) -> bool:
    bench.show(FREEZE)
    bench.show(wait=10)
    return bool(bench.receiver.spans)


def exported(signal: Signal) -> Callable[[Bench], bool]:
    """Return whether a receiver of a signal gets anything about a Freeze."""

    def look(bench: Bench) -> bool:
        bench.show(FREEZE, wait=10)
        return bool(bench.receivers[signal].records or bench.receivers[signal].pushes)

    return look


TWO = "targets: [{name: oncall, url: 'json://a.test'}, {name: backup, url: 'json://b.test'}]"
EFFECT = "The VM pauses. CPU and network may be suspended; memory and open files are not affected."
OWN = NOTIFY.replace("'}", "', templates: {%s}}")
TITLE = "[INFO] Freeze scheduled: WestNO_0 at 22:15 UTC (15 min)"
SECOND = f"instance: {{name: {OTHER}}}\n"
RUN = (("drain",), 300)
ROWS = {
    "imds.api_version": Row(duration, "", 5, "imds: {api_version: 2019-08-01}", None),
    "imds.poll_interval": Row(counted("polls_total"), "", 11, "imds: {poll_interval: 5s}", 3),
    "imds.timeout": Row(slow_polls, "", False, "imds: {timeout: 100ms}", True),
    "instance.name": Row(own, "", 1, "instance: {name: web_7}", 0),
    "events.imminent": Row(imminent, "", 0, "events: {imminent: [10m]}", 1),
    "metrics.events": Row(
        counted("event_info"), "instance: {name: x}", None, "{instance: {name: x}, metrics: {events: all}}", 1
    ),
    "metrics.resources": Row(counted("event_resource_info"), "", None, "metrics: {resources: true}", 2),
    "metrics.tags": Row(tagged, "", None, "metrics: {tags: [Environment, cost-center]}", 1),
    "notifications.targets[].name": edited(told_first, NOTIFY, "oncall", ("oncall", "backup"), "backup"),
    "notifications.routes[].targets": Row(told, NOTIFY, 1, notify("routes: [{targets: [backup]}]", TWO), 0),
    "notifications.routes[].match": matching("event_types: [Reboot]"),
    "notifications.routes[].leader": Row(
        told, SECOND + NOTIFY, 1, SECOND + notify("routes: [{targets: [oncall], leader: first}]"), 0
    ),
    "notifications.watch.after": Row(blind_after(120), NOTIFY, [0, 0], notify("watch: {after: 1m}"), [1, 0]),
    "notifications.watch.targets": Row(
        blind_after(400),
        f"notifications: {{{TWO}}}",
        [1, 1],
        notify("watch: {targets: [backup]}", TWO),
        [0, 1],
    ),
    "notifications.templates.title": Row(title, NOTIFY, TITLE, notify("templates: {title: T}"), "T"),
    "notifications.templates.body": Row(
        body,
        NOTIFY,
        EFFECT,
        notify("templates: {body: 'B {{ vm.exporter_url }}'}") + "\nweb: {external_url: 'https://a.test/'}",
        "B https://a.test/",
    ),
    "notifications.templates.format": Row(
        text_format, NOTIFY, "markdown", notify("templates: {format: text}"), "text"
    ),
    "notifications.targets[].templates.title": Row(
        title, NOTIFY, TITLE, OWN % "title: '{{ severity }}'", "info"
    ),
    "notifications.targets[].templates.body": Row(
        body, NOTIFY, EFFECT, OWN % "body: '{{ time_left }}'", "899"
    ),
    "notifications.targets[].templates.format": Row(
        text_format, NOTIFY, "markdown", OWN % "format: html", "html"
    ),
    "notifications.timezone": Row(
        title, NOTIFY, TITLE, notify("timezone: Europe/Berlin"), TITLE.replace("22:15 UTC", "23:15 CET")
    ),
    "notifications.retry_for": Row(given_up, NOTIFY, 0, notify("retry_for: 1m"), 1),
    "approval.mode": Row(approved_after(5), "", [0], APPROVE, [2]),
    "approval.leader": edited(approved_after(5), SECOND + APPROVE, [0], ("rules", "leader: any, rules"), [2]),
    "approval.failover_after": edited(
        approved_after(15, 60), SECOND + APPROVE, [0, 2], ("rules", "failover_after: 10s, rules"), [2, 2]
    ),
    "approval.max_per_hour": edited(
        approved_after(5), APPROVE, [2], ("rules", "max_per_hour: 1, rules"), [1]
    ),
    "approval.rules[].name": edited(
        counted("approvals_total", rule="mine"), APPROVE, None, ("name: all", "name: mine"), 1
    ),
    "approval.rules[].action": edited(approved_after(5), APPROVE, [2], (": approve", ": hold"), [0]),
    "approval.rules[].match": Row(
        approved_after(5), APPROVE, [2], rule("match: {event_types: [Reboot]}"), [0]
    ),
    "approval.rules[].delay": Row(approved_after(5, 30), APPROVE, [2, 2], rule("delay: 20s"), [0, 2]),
    "approval.rules[].require_hooks": Row(
        required, f"{HOOK}\n{APPROVE}", [FREEZE_ID], f"{HOOK}\n{rule('require_hooks: [drain]')}", []
    ),
    "hooks[].name": edited(counted("hooks_total", hook="mine"), HOOK, None, ("name: drain", "name: mine"), 1),
    "hooks[].command": edited(hooked, HOOK, [RUN], ("[drain]", "[drain, -n]"), [(("drain", "-n"), 300)]),
    "hooks[].match": edited(hooked, HOOK, [RUN], ("[drain]", "[drain], match: {target: other}"), []),
    "hooks[].timeout": edited(hooked, HOOK, [RUN], ("[drain]", "[drain], timeout: 1m"), [(("drain",), 60)]),
    "in_service.match": Row(in_service, "", 200, "in_service: {match: {event_types: [Freeze]}}", 503),
    "otlp.metrics": Row(exported(Signal.METRICS), "", False, "otlp: {metrics: true}", True),
    "otlp.logs": Row(exported(Signal.LOGS), "", False, "otlp: {logs: true}", True),
    "tracing.enabled": Row(traced, "", False, "tracing: {enabled: true}", True),
    "web.external_url": Row(
        own_url, NOTIFY, False, f"web: {{external_url: 'https://vm.example.com/'}}\n{NOTIFY}", True
    ),
    "web.runbook_url": Row(
        own_runbook,
        NOTIFY,
        False,
        f"web: {{runbook_url: 'https://wiki.example.com/runbooks/'}}\n{NOTIFY}",
        True,
    ),
    "match.event_types": matching("event_types: [Reboot]"),
    "match.event_sources": matching("event_sources: [User]"),
    "match.statuses": matching("statuses: [Started]"),
    "match.transitions": matching("transitions: [started]"),
    "match.target": matching("target: other"),
    "match.resources": matching("resources: [web_*]"),
    "match.min_duration": matching("min_duration: 6s"),
    "match.max_duration": matching("max_duration: 4s"),
    "match.min_notice": matching("min_notice: 16m"),
    "match.max_notice": matching("max_notice: 14m"),
    # It is Wednesday, 22:00 in UTC.
    "match.windows[].days": matching("windows: [{days: [thu]}]"),
    "match.windows[].from": matching("windows: [{from: '22:30'}]"),
    "match.windows[].to": matching("windows: [{to: '21:30'}]"),
    "match.windows[].timezone": matching("windows: [{days: [wed], timezone: Asia/Tokyo}]"),
}
# What these lead to is outside of the bench: each has a test of its own below.
OUTSIDE = {
    "imds.endpoint",
    "state.directory",
    "notifications.apprise_config",
    "notifications.targets[].url",
    "notifications.targets[].url_file",
    "notifications.targets[].tag",
    "notifications.targets[].webhook",
    "notifications.targets[].headers",
    "notifications.targets[].templates.content_type",
    "alertmanager.urls",
    "alertmanager.headers",
    "alertmanager.match",
    "alertmanager.labels",
}


# Those of the Node have rows in tests/outputs/kubernetes/test_node.py, beside an API server.
ALL = {*keys(inspect.type_info(Config)), *keys(inspect.type_info(Match), "match")} - {
    f"kubernetes.{key}" for key in keys(inspect.type_info(Kubernetes))
}


@pytest.mark.parametrize("key", sorted(ALL - OUTSIDE))
def test_a_key(build: Build, key: str) -> None:
    """A file with the key has another effect than one without it."""
    row = ROWS[key]
    assert row.before != row.after
    assert row.look(build(row.without)) == row.before
    assert row.look(build(row.text)) == row.after


def test_there_are_no_rows_of_keys_that_are_gone() -> None:
    """Each row is about a key that there is."""
    assert {*ROWS, *OUTSIDE} <= ALL


def test_the_address_of_imds(build: Build) -> None:
    """The file has it where the flag does not; after a reload the facts about the VM are those told there."""
    with SimulatorServer(Simulator(idle=True, vm_name="WestNO_7")) as imds:
        bench = build(f"imds: {{endpoint: '{imds.url}/'}}", imds_endpoint=None)
        assert bench.metric("instance_info", instance_name="WestNO_7", computer_name="westno000007") == 1
    assert bench.reload(f"imds: {{endpoint: '{bench.imds.url}'}}") == 200
    assert bench.metric("instance_info", instance_name=VM, computer_name="westno000000") == 1


def test_the_directory_of_the_state(build: Build, tmp_path: Path) -> None:
    """It is where the file says, and cannot change while the exporter runs."""
    text = f"state: {{directory: '{tmp_path}/elsewhere'}}"
    bench = build(text, state_directory=None)
    assert (tmp_path / "elsewhere").is_dir()
    assert bench.reload(text.replace("elsewhere", "other")) == 500
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("key", ["url", "url_file", "tag"])
def test_the_address_of_a_target(build: Build, tmp_path: Path, key: str) -> None:
    """A message reaches the address, wherever the file says that it is written."""
    with http_receiver() as receiver:
        address = f"json://{receiver.authority}/"
        (tmp_path / "secret").write_text(address)
        (tmp_path / "apprise.yml").write_text(f"urls: [{{'{address}': [{{tag: night}}]}}]")
        value = {"url": address, "url_file": tmp_path / "secret", "tag": "night"}[key]
        target = f"{{name: oncall, {key}: '{value}'}}"
        text = f"notifications: {{apprise_config: '{tmp_path}/apprise.yml', targets: [{target}]}}"
        build(text, real_senders=True).show(FREEZE)
        assert [request.json["title"] for request in receiver.requests] == [TITLE]


def test_a_webhook(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the event with the headers of the file, whose variables are replaced."""
    monkeypatch.setenv("TOKEN", "abc")
    with http_receiver() as receiver:
        target = f"{{name: a, webhook: 'http://{receiver.authority}/x', headers: {{X-Token: '${{TOKEN}}'}}}}"
        build(f"notifications: {{targets: [{target}]}}", real_senders=True).show(FREEZE)
    (request,) = receiver.requests
    assert (request.path, request.headers["x-token"]) == ("/x", "abc")
    assert request.json["type"] == "scheduled_event.scheduled"


def test_a_webhook_with_a_body_of_its_own(build: Build) -> None:
    """The template writes it, and names its type; templates for messages do not concern a webhook."""
    with http_receiver() as receiver:
        own = "templates: {body: 'is {{ event.type }}', content_type: text/plain}"
        targets = [
            f"{{name: {name}, webhook: 'http://{receiver.authority}/{name}', {text}}}"
            for name, text in (("own", own), ("event", "headers: {}"))
        ]
        text = f"notifications: {{templates: {{body: x}}, targets: [{', '.join(targets)}]}}"
        build(text, real_senders=True).show(FREEZE)
    found = {request.path: request for request in receiver.requests}
    assert found["/own"].body == b"is Freeze"
    assert found["/own"].headers["content-type"] == "text/plain"
    assert found["/event"].json["type"] == "scheduled_event.scheduled"


def test_a_webhook_whose_template_fails(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """It gets the CloudEvent, and the log says so."""
    with http_receiver() as receiver:
        body = "{{ 1 // (event.type != 'Freeze') }}"
        target = f'{{name: a, webhook: "http://{receiver.authority}/", templates: {{body: "{body}"}}}}'
        build(f"notifications: {{targets: [{target}]}}", real_senders=True).show(FREEZE)
    assert receiver.requests[0].json["type"] == "scheduled_event.scheduled"
    assert "template failed; the CloudEvent is sent" in caplog.messages


def test_an_alertmanager(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alerts about matching events go to the URL, with the headers and labels of the file."""
    monkeypatch.setenv("TOKEN", "abc")
    with http_receiver() as receiver:
        url = f"urls: ['http://{receiver.authority}/am/'], headers: {{Authorization: 'Bearer ${{TOKEN}}'}}"
        more = "labels: {team: red}, match: {event_types: [Freeze]}"
        reboot = raw_event(EventId=REBOOT_ID, EventType="Reboot")
        build(f"alertmanager: {{{url}, {more}}}").show(FREEZE, reboot, wait=2)
    (request,) = receiver.requests
    assert (request.path, request.headers["authorization"]) == ("/am/api/v2/alerts", "Bearer abc")
    assert [(one["labels"]["event_type"], one["labels"]["team"]) for one in request.json] == [
        ("Freeze", "red")
    ]
