import json
import os
import re
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from exporter.clock import SystemClock
from exporter.commands import doctor
from exporter.commands.doctor import Asked
from exporter.config import Overrides
from exporter.config.addresses import NotifyUrls
from exporter.health import DegradedReason
from exporter.model.messages import Delivery
from exporter.model.views import TargetView
from exporter.model.wording import command_line
from exporter.outputs.kubernetes.desired import unmarking
from exporter.outputs.notifications import checking
from exporter.outputs.output import Diagnosis, Level
from exporter.simulator import Fault, Simulator, SimulatorServer
from tests.bench import Bench, Build
from tests.builders import raw_event
from tests.clocks import NOW, HandClock
from tests.end_to_end.program import command, eventually, exporter, free_port, get
from tests.http_server import Connection, Request, answer, serving
from tests.receivers import http_receiver

pytestmark = pytest.mark.usefixtures("checks_in_process")

PROJECT = Path(__file__).parent.parent.parent
OK, WARNING, FAILURE, NOTE = Level
ONCALL = "notifications: {targets: [{name: oncall, url: 'json://receiver.test/SeCrEt'}]}\n"
UNCOMPARED = "could not be compared with that of IMDS; see the output of timedatectl"
BEGAN = "2026-03-04T22:00:00Z"
SECOND = timedelta(seconds=1)
PARTS = "approval: {mode: dry_run}\nhooks: [{name: drain, command: [drain]}]\n"


def asked(imds: str, folder: Path, **fields: Any) -> Asked:
    """Return flags that name an IMDS, a directory for the state that is not there, and no exporter."""
    overrides = Overrides(imds_endpoint=imds, state_directory=str(fields.pop("state", folder / "state")))
    values: dict[str, Any] = {"overrides": overrides, "exporter_url": f"http://127.0.0.1:{free_port()}"}
    return Asked(**(values | fields))


def found(flags: Asked, clock: Any = None) -> dict[str, Diagnosis]:
    """Return what is found, by subject; of several on one subject the last."""
    answers = doctor.ask(flags.exporter_url)
    return {one.subject: one for one in doctor.findings(flags, *answers, clock or SystemClock())}


def look(bench: Bench, file: Path | None = None) -> dict[str, Diagnosis]:
    """Return what is found with no flag but the address of a running exporter, or a file, too."""
    return found(Asked(config_file=file, exporter_url=bench.app.url), bench.clock)


def ending(bench: Bench, capsys: pytest.CaptureFixture[str]) -> str:
    bench.advance(2)  # IMDS refuses more than 5 requests a second
    doctor.run(Asked(exporter_url=bench.app.url), bench.clock)
    return capsys.readouterr().out.splitlines()[-1]


def test_a_vm_without_an_exporter(tmp_path: Path) -> None:
    """IMDS, name, clock and directory are in order; what only a running exporter knows is a warning."""
    with SimulatorServer(Simulator()) as imds:
        result = found(asked(imds.url, tmp_path))
    warnings = {"exporter", "scheduled events"}
    assert {one for one, finding in result.items() if finding.level is WARNING} == warnings
    notes = {"targets", "spot", "terminate notifications", "other pollers"}
    assert {one for one, finding in result.items() if finding.level is NOTE} == notes
    assert {one for one, finding in result.items() if finding.level is OK} == result.keys() - warnings - notes
    assert {"configuration", "targets", "imds", "clock"} < result.keys()
    assert result["name"].message == "demo_0, from IMDS"
    assert "does not exist yet and can be created" in result["state"].message
    assert result["spot"].message == "not a Spot VM (priority Regular), so there will be no Preempt"
    (query,) = result["terminate notifications"].commands
    assert query.startswith("az vmss show --resource-group")
    assert result["exporter"].message.endswith("; start it, or pass its address as --exporter.url")
    assert result["imds"].message.endswith("; the exporter will use the newest API version that it knows")
    assert result["configuration"].message == "no file is specified; all keys have their defaults"
    assert result["targets"].message.startswith("none is configured; for messages, add notifications.targets")


def test_nothing_is_changed(tmp_path: Path) -> None:
    """Scheduled Events stay off, nothing is approved, no directory is made, and no message is sent."""
    sent: list[Request] = []

    def receive(connection: Connection, request: Request) -> None:
        sent.append(request)
        connection.send(answer(b"{}"))

    with SimulatorServer(Simulator()) as imds, serving(receive) as target:
        result = found(asked(imds.url, tmp_path, notify=NotifyUrls([f"json://127.0.0.1:{target.port}/"])))
        state = json.loads(get(f"{imds.url}/api/v1/state"))
    assert result["target"].level is OK
    assert (state["service"], state["polls"], state["approvals"]) == ("off", 0, [])
    assert sent == []
    assert list(tmp_path.iterdir()) == []


def test_the_configuration_in_use(build: Build, tmp_path: Path) -> None:
    """Without flags it is that of the running exporter, with its IMDS, its file and its directory."""
    bench = build(f"{PARTS}\notlp: {{metrics: true, logs: true}}")
    bench.advance(30)
    result = look(bench)
    assert result["configuration"] == Diagnosis(
        OK, "configuration", f"{bench.file}; approvals: dry_run, hooks: drain, by OTLP: metrics, logs"
    )
    assert result["exporter"].message.endswith(", since 2026-03-04T22:00:00Z")
    assert result["imds"].message == (
        f"{bench.imds.url} answers; API version 2024-07-09, which has rebalance recommendations for Spot VMs"
    )
    assert result["state"] == Diagnosis(OK, "state", f"the exporter writes to {bench.state}")
    assert result["scheduled events"].message == (
        "switched on; the exporter has polled them since 2026-03-04T22:00:00Z, last success 0s ago"
    )
    other = tmp_path / "other.yml"
    other.write_text(f"{{imds: {{endpoint: '{bench.imds.url}'}}, instance: {{name: westno_0}}}}")
    assert look(bench, other)["name"] == Diagnosis(OK, "name", "westno_0, from instance.name")
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(other.read_text().replace("westno_0", "vm_9"))
    assert look(bench, wrong)["name"] == Diagnosis(
        FAILURE,
        "name",
        "instance.name is vm_9, IMDS returns WestNO_0: events that name WestNO_0 count as those of another "
        "VM; remove instance.name unless events name vm_9",
    )
    assert look(bench, other)["configuration"] == Diagnosis(
        WARNING,
        "configuration",
        f"the exporter uses {bench.file}, not {other}; restart it with --config.file {other}",
    )


def test_targets_in_use(
    build: Build, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether messages arrive is known from the exporter, and decides what to do next; no URL is shown."""
    bench = build(ONCALL)
    bench.advance(30)
    assert look(bench)["target"] == Diagnosis(
        OK, "target", "oncall: no message yet; notify-test sends a sample"
    )
    assert ending(bench, capsys).startswith(
        "next     send a sample message to every target, if you have not yet: notify-test"
    )
    bench.sender().answer = lambda _: Delivery(delivered=False, reason="connection refused")
    bench.show(raw_event(), wait=5)
    assert "s ago, failed, 1 waiting: connection refused; correct" in look(bench)["target"].message
    assert (look(bench)["exporter"].level, "targets" in look(bench)) == (OK, False)
    assert ending(bench, capsys) == "next     correct the failures above, then run doctor again"
    assert "SeCrEt" not in bench.request("/api/v1/status")[1]
    bench.sender().answer = lambda _: Delivery(delivered=True)
    bench.advance(60)
    assert look(bench)["target"].level is OK
    monkeypatch.setattr(checking, "SenderProcess", lambda *_: bench.senders)
    assert look(bench, bench.file)["target"].message.startswith("oncall: the last message arrived ")
    assert ending(bench, capsys).startswith("next     nothing to correct")


def test_a_program_that_no_allowlist_names(build: Build) -> None:
    """Only the exporter's own refusal is a failure; it and this command may be other users."""
    bench = build()
    bench.advance(5)
    bench.simulator.set_fault(Fault("forbidden", endpoint="instance"))
    assert look(bench)["imds"].level is WARNING
    assert look(bench)["imds"].message.startswith("it answers the exporter, but not this command: GET ")
    bench.simulator.set_fault(Fault("forbidden"))
    bench.advance(5)
    result = look(bench)
    for subject in ("imds", "scheduled events"):
        assert result[subject].level is FAILURE
        assert "allow /metadata/scheduledevents and /metadata/instance to the exec" in result[subject].message
        assert "firewall" not in result[subject].message
    assert result["exporter"].level is OK


@pytest.mark.parametrize(
    ("text", "pod", "node"),
    [
        ("", False, None),
        ("", True, "NAME"),
        ("{node: '', conditions: false}", False, "NAME"),
        ("{node: vmss00, conditions: false, service_account: /nowhere}", False, "vmss00"),
        ("{node: vmss00}", True, None),
    ],
)
def test_marks_of_a_node_that_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, node: str | None, *, pod: bool
) -> None:
    """Where no exporter can remove them, the commands for it are shown; documentation has the same."""
    monkeypatch.delenv("NODE_NAME", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if pod:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    file = tmp_path / "exporter.yml"
    file.write_text(f"kubernetes: {text}")
    with SimulatorServer(Simulator()) as imds:
        result = found(asked(imds.url, tmp_path, config_file=file)).get("kubernetes")
    assert (result is not None) is (node is not None)
    if result is not None:
        commands = unmarking(node or "")
        assert (result.level, result.commands) == (NOTE, tuple(commands))
        documented = "".join((PROJECT / "docs" / "kubernetes.md").read_text().replace("\\\n", "").split())
        assert all("".join(one.replace(node or "", "NAME").split()) in documented for one in commands)


def test_an_exporter_that_does_not_work(build: Build) -> None:
    """Blindness is one failure, and each other problem is one more."""
    bench = build()
    bench.advance(5)
    bench.simulator.set_fault(Fault("error", endpoint="scheduledevents"))
    bench.file.write_text("a: b")
    bench.reload()
    bench.advance(60)
    assert look(bench)["state"].level is OK
    bench.app.health.report(DegradedReason.STATE_UNWRITABLE, "disk full")
    result = look(bench)
    assert "state" not in result
    assert result["exporter"] == Diagnosis(FAILURE, "exporter", "is degraded: state_unwritable: disk full")
    blind = "the exporter has had no valid response since 2026-03-04T22:00:"
    assert result["scheduled events"].message.startswith(blind)
    assert "status 500" in result["scheduled events"].message
    bench.simulator.set_fault(Fault("throttle"))
    assert "more than the 5 requests a second" in look(bench)["imds"].message
    bench.simulator.set_fault(Fault("throttle", endpoint="scheduledevents"))
    assert look(bench)["other pollers"].level is NOTE
    bench.advance(60)
    throttled = look(bench)["other pollers"]
    assert throttled.level is WARNING
    assert "VmssRuntimeAgent" in throttled.message
    bench.simulator.set_fault(Fault("throttle", count=3))
    assert look(bench)["imds"].level is OK


BLIND = {"up": False, "last_success": None}
LATE = {"last_scrape": NOW - 301 * SECOND}
ARRIVED = TargetView("a", 2, delivers=True, last_delivery=NOW - 9 * SECOND)
UNSCRAPED = "/metrics has not been requested since the exporter started, and there is no target: nobody is"
LOST = TargetView("a", delivers=False, last_error="refused")


@pytest.mark.parametrize(
    ("fields", "subject", "level", "message"),
    [
        (BLIND, "scheduled events", WARNING, f"the exporter waits for the first response since {BEGAN}; "),
        (
            BLIND | {"last_error": "refused"},
            *("scheduled events", FAILURE, "the exporter has had no valid response yet: refused; check imds"),
        ),
        ({}, "scrape", WARNING, UNSCRAPED),
        ({"targets": (LOST,)}, "scrape", OK, "Prometheus does not scrape /metrics; messages do not need it"),
        ({"last_scrape": NOW - 300 * SECOND}, "scrape", OK, "/metrics was last requested 5m ago"),
        (
            LATE,
            "scrape",
            WARNING,
            "/metrics was last requested 5m1s ago; add this VM to Prometheus' scrape_c",
        ),
        (
            LATE | {"targets": (ARRIVED,)},
            *("scrape", OK, "/metrics was last requested 5m1s ago; messages do not need it"),
        ),
        ({"targets": (ARRIVED,)}, "target", OK, "a: the last message arrived 9s ago, 2 waiting"),
        (
            {"targets": (LOST,)},
            *("target", FAILURE, "a: the last attempt, earlier, failed: refused; correct it, then try"),
        ),
    ],
)
def test_what_the_exporter_reports(
    build: Build, fields: dict[str, Any], subject: str, level: Level, message: str
) -> None:
    """Its last response, its last scrape and its targets are described with the remedy."""
    bench = build()
    status, _ = doctor.ask(bench.app.url)
    assert status is not None
    flags = Asked(exporter_url=bench.app.url)
    seen = doctor.findings(flags, replace(status, configuration=None, **fields), (), bench.clock)
    (found,) = (one for one in seen if one.subject == subject)
    assert (found.level, found.message[: len(message)]) == (level, message)


def test_without_imds(tmp_path: Path) -> None:
    """The line has the reason and the usual remedy; without a name nothing acts."""
    result = found(asked(f"http://127.0.0.1:{free_port()}", tmp_path))
    assert result["imds"].level is FAILURE
    assert "Connection refused; IMDS exists on Azure VMs only" in result["imds"].message
    assert result["name"].level is FAILURE
    assert "unknown until IMDS answers; until then, no event is approved" in result["name"].message
    assert "clock" not in result


def test_what_is_not_imds(tmp_path: Path) -> None:
    """An answer that is no document of IMDS is told as what it is, not as a VM outside of Azure."""
    with serving(answer(b'{"compute": {"name": "\xff"}}')) as other:
        result = found(asked(other.url, tmp_path))
    assert result["imds"] == Diagnosis(
        FAILURE,
        "imds",
        "not a valid document about this VM: it is not UTF-8 text: invalid start byte at byte 0; "
        "something else answers there: correct imds.endpoint, and do not use a proxy",
    )


def test_the_next_step_after_a_password_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The warning names the remedy; starting another exporter would be none."""
    with SimulatorServer(Simulator()) as imds, serving(answer(status="401 Unauthorized")) as protected:
        assert doctor.run(asked(imds.url, tmp_path, exporter_url=protected.url), SystemClock()) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"warning  exporter: {protected.url} requires a user name and password: pass ")
    assert last == "next     resolve the warning about the exporter above, then run doctor again"


@pytest.mark.parametrize(
    ("date", "seconds", "level", "words"),
    [
        ("Wed, 04 Mar 2026 22:00:00 GMT", 5, OK, "agrees with that of IMDS"),
        ("Wed, 04 Mar 2026 22:00:00 GMT", 60, WARNING, "1m ahead of that of IMDS; times and notice are off"),
        ("Wed, 04 Mar 2026 22:00:00 GMT", -90, FAILURE, "1m30s behind that of IMDS; times and notice"),
        *(("", 0, WARNING, UNCOMPARED), ("soon", 0, WARNING, UNCOMPARED)),
        ("Wed, 04 Mar 2026 22:00:00 -0000", 0, WARNING, UNCOMPARED),
    ],
)
def test_the_clock(tmp_path: Path, date: str, seconds: int, level: Level, words: str) -> None:
    """The finding has the difference to the clock of IMDS, and the remedy; the VM is described, too."""
    vm = b'{"compute": {"name": "a", "priority": "Spot", "resourceGroupName": "g;sh"}}'
    with serving(answer(vm if date else b"{}", headers=f"Date: {date}\r\n" * bool(date))) as imds:
        clock = HandClock(NOW + timedelta(seconds=seconds))
        result = found(asked(imds.url, tmp_path), clock)
    assert result["clock"].level is level
    assert result["clock"].message.startswith(words)
    spot, query = (
        "IMDS does not report whether this is a Spot VM",
        "--resource-group GROUP --name NAME",
    )
    if date:
        spot, query = (
            "a Spot VM, which Azure can evict (Preempt)",
            f"--resource-group {command_line('g;sh')} --name a",
        )
    assert result["spot"].message.startswith(spot)
    asked_for = command_line("--query", "[scheduledEventsProfile,scheduledEventsPolicy]")
    assert result["terminate notifications"].commands == (f"az vm show {query} {asked_for}",)


def test_a_bad_configuration_does_not_hide_the_rest(tmp_path: Path) -> None:
    """Its mistake and that of the web configuration are separate lines; all else is examined as it says."""
    file, web = tmp_path / "exporter.yml", tmp_path / "web.yml"
    web.write_text("basic_auth_users: {a: b}\n")
    with SimulatorServer(Simulator()) as imds:
        file.write_text(
            f"imds: {{timeout: soon, endpoint: '{imds.url}', api_version: 2019-08-01}}\n"
            f"notifications: {{targets: [{{name: a, url: 'json://localhost'}}]}}\n"
            f"state: {{directory: {tmp_path}}}\n"
        )
        result = found(
            asked(imds.url, tmp_path, config_file=file, web_config_file=web, overrides=Overrides())
        )
    assert result["configuration"].level is FAILURE
    assert result["configuration"].message.startswith(f"{file}:1: imds.timeout: ")
    assert result["web configuration"].level is FAILURE
    assert "is not a bcrypt hash" in result["web configuration"].message
    version = "API version 2019-08-01, which does not have rebalance recommendations for Spot VMs"
    assert result["imds"].message == f"{imds.url} answers; {version}"
    assert result["state"].message == f"{tmp_path} can be written"
    assert result["targets"].level is WARNING


def test_a_state_directory_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file at its path, and a directory of another user, are failures; little room is a warning."""
    (tmp_path / "file").write_text("")
    with SimulatorServer(Simulator()) as imds:
        flags = asked(imds.url, tmp_path, state=tmp_path / "file" / "state")
        assert "is not a directory" in found(flags)["state"].message
        with monkeypatch.context() as patch:
            patch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=15 * 2**20))
            full = found(asked(imds.url, tmp_path))["state"]
        assert full == Diagnosis(WARNING, "state", f"{tmp_path} has 15 MiB free; make room")
        monkeypatch.setattr(os, "access", lambda *_: False)
        result = found(asked(imds.url, tmp_path, state=tmp_path))["state"]
    assert result.level is FAILURE
    assert f"{tmp_path} cannot be written by uid {os.geteuid()}" in result.message


def test_root_asks_for_a_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of a service belongs to its user, which is not a problem, but is one for other users."""
    if os.geteuid() == 0:
        os.chown(tmp_path, 65534, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with SimulatorServer(Simulator()) as imds:
        assert found(asked(imds.url, tmp_path, state=tmp_path))["state"].level is OK
        monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
        result = found(asked(imds.url, tmp_path, state=tmp_path))["state"]
    assert result.level is FAILURE
    assert "belongs to another user" in result.message


@pytest.mark.parametrize(
    ("url", "level", "words"),
    [
        ("json://127.0.0.1/x", OK, "127.0.0.1 resolves"),
        ("json://no-such-host.invalid/token", FAILURE, "no-such-host.invalid cannot be resolved"),
        (f"mailto://u:p@a.test?smtp={'a' * 64}.test", FAILURE, "cannot be resolved: not a valid host name; "),
        ("slack://TokenA/TokenB/TokenC", OK, "notify-1 (slack://...) is a valid address"),
        ("mailto://u:secret@a.invalid?smtp=b.invalid&smtp=127.0.0.1", OK, "127.0.0.1 resolves"),
    ],
)
def test_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, level: Level, words: str) -> None:
    """A host that cannot be resolved is a failure, without a proxy; no secret of a URL is shown."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with SimulatorServer(Simulator()) as imds:
        flags = asked(imds.url, tmp_path, notify=NotifyUrls([url]))
        result = found(flags)["target"]
        monkeypatch.setenv("https_proxy", "http://proxy.invalid")
        assert found(flags)["target"].level is (OK if level is OK else WARNING)
    assert result.level is level
    assert words in result.message
    assert not {"secret", "token", "TokenA"} & set(result.message.replace("/", " ").split())


@pytest.mark.parametrize(
    ("mood", "level", "words"),
    [
        (200, OK, "answers; notify-test posts an alert to it"),
        (401, FAILURE, "status 401; check alertmanager.urls, the credentials and the network"),
    ],
)
def test_an_alertmanager(tmp_path: Path, mood: int, level: Level, words: str) -> None:
    """Its API is asked with the credentials of the file, and nothing is posted."""
    with http_receiver(mood) as receiver, SimulatorServer(Simulator(idle=True)) as imds:
        receiver.answer = b""
        file = tmp_path / "exporter.yml"
        file.write_text(f"alertmanager: {{urls: ['http://ann:hunter2@{receiver.authority}/am']}}")
        file.chmod(0o600)
        finding = found(asked(imds.url, tmp_path, config_file=file))["target"]
    shown = "alertmanager (http://127.0.0.1)"
    assert finding == Diagnosis(level, "target", f"{shown}: {words}" if mood == 401 else f"{shown} {words}")
    assert [(one.method, one.path) for one in receiver.requests] in ([], [("GET", "/am/api/v2/status")])


def test_the_command(tmp_path: Path) -> None:
    """Checks begin with their level, then notes and the next step; the status is 1 with a failure, else 0."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with SimulatorServer(Simulator()) as imds, exporter(imds.url, tmp_path / "state", port):
        eventually(lambda: get(f"{url}/-/ready"))
        done = command("doctor", "--exporter.url", url)
    assert done.returncode == 0, done.stdout
    *lines, last = done.stdout.splitlines()
    words = [line.split()[0] for line in lines if not line.startswith(" ")]
    first = words.index("note")
    assert ({*words[:first]}, {*words[first:]}) == ({"ok", "warning"}, {"note"})
    assert "\x1b" not in done.stdout
    assert [line.split()[:3] for line in lines if line.startswith(" ")] == [["az", "vmss", "show"]]
    assert f"ok       state: the exporter writes to {tmp_path / 'state'}" in lines
    assert last == "next     read the warnings above"
    failed = command("doctor", "--imds.endpoint", f"http://127.0.0.1:{free_port()}", "--exporter.url", url)
    assert failed.returncode == 1
    assert "\nfailure  imds: " in failed.stdout
    assert failed.stderr == ""


@pytest.mark.parametrize("plain", [False, True])
def test_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, plain: bool
) -> None:
    """Levels have a colour, unless NO_COLOR is set; lines go on between words, and commands stay whole."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if plain:
        monkeypatch.setenv("NO_COLOR", "1")
    words = "a-word-with-hyphens-that-is-longer-than-a-line is not broken, and the text goes on below"
    command = f"kubectl {'x' * 60}; true"
    results = [
        Diagnosis(OK, "clock", words, (command,)),
        Diagnosis(NOTE, "spot", "it"),
        Diagnosis(FAILURE, "state", "it"),
    ]
    monkeypatch.setattr(doctor, "findings", lambda *_: results)
    asked = Asked(exporter_url=f"http://127.0.0.1:{free_port()}")
    assert doctor.run(asked, SystemClock()) == 1
    output = capsys.readouterr().out
    assert ("\x1b[32mok\x1b[0m" in output, "\x1b[1;31mfailure\x1b[0m" in output) == (not plain, not plain)
    assert re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines() == [
        "ok       clock:",
        "         a-word-with-hyphens-that-is-longer-than-a-line",
        "         is not broken, and the text",
        "         goes on below",
        f"         {command}",
        "failure  state: it",
        "note     spot: it",
        "next     correct the failures above,",
        "         then run doctor again",
    ]
