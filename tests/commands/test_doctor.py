"""Tests of `doctor`: each part is looked at, its remedy is named, and nothing is changed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from exporter.clock import SystemClock
from exporter.commands import doctor
from exporter.commands.doctor import Asked, Finding, Level
from exporter.config import Endpoint, Overrides
from exporter.health import DegradedReason, Health
from exporter.notifications.addresses import NotifyUrls
from exporter.simulator import Simulator, SimulatorServer
from exporter.web.app import WebApp
from exporter.web.site import Site
from tests.clocks import NOW, HandClock
from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.http_server import Connection, Request, answer, serving
from tests.web.support import ask, served, site, snapshot

OK, WARNING, FAILURE = Level


def asked(imds: str, folder: Path, **fields: Any) -> Asked:
    """Return flags that name an IMDS, a directory for the state that is not there, and no exporter."""
    overrides = Overrides(
        imds_endpoint=Endpoint(imds),
        state_directory=str(fields.pop("state", folder / "state")),
        instance_name=fields.pop("name", None),
    )
    values: dict[str, Any] = {
        "config_file": None,
        "web_config_file": None,
        "overrides": overrides,
        "notify": NotifyUrls(),
        "exporter_url": f"http://127.0.0.1:{free_port()}",
    }
    return Asked(**(values | fields))


def found(flags: Asked, clock: Any = None) -> dict[str, Finding]:
    """Return what is found, by subject; of several on one subject the last."""
    return {one.subject: one for one in doctor.findings(flags, clock or SystemClock())}


@contextmanager
def running(where: Site) -> Iterator[dict[str, str]]:
    """Serve an exporter; return the flag that names it."""
    with served(where) as port:
        yield {"exporter_url": f"http://127.0.0.1:{port}"}


def test_a_vm_without_an_exporter(tmp_path: Path) -> None:
    """IMDS, name, clock and directory are in order; what only a running exporter knows is a warning."""
    simulator = Simulator()
    with SimulatorServer(simulator) as imds:
        result = found(asked(imds.url, tmp_path))
    assert {subject: one.level for subject, one in result.items()} == {
        "configuration": OK,
        "targets": OK,
        "exporter": WARNING,
        "imds": OK,
        "scheduled events": WARNING,
        "name": OK,
        "clock": OK,
        "state": OK,
    }
    assert result["name"].message == "demo_0, from IMDS"
    assert "does not exist yet and can be created" in result["state"].message


def test_nothing_is_changed(tmp_path: Path) -> None:
    """Scheduled Events stay off, nothing is approved, no directory is made, and no message is sent."""
    simulator = Simulator()
    sent: list[Request] = []

    def receive(connection: Connection, request: Request) -> None:
        sent.append(request)
        connection.send(answer(b"{}"))

    with SimulatorServer(simulator) as imds, serving(receive) as target:
        result = found(asked(imds.url, tmp_path, notify=NotifyUrls([f"json://127.0.0.1:{target.port}/"])))
        state = json.loads(get(f"{imds.url}/api/v1/state"))
    assert result["target"].level is OK
    assert (state["service"], state["polls"], state["approvals"]) == ("off", 0, [])
    assert sent == []
    assert list(tmp_path.iterdir()) == []


def test_an_exporter_that_works(tmp_path: Path) -> None:
    """The output has the start of polling, the last answer and the last scrape."""
    clock = HandClock()
    where = site(snapshot(), clock=clock)
    with SimulatorServer(Simulator()) as imds, running(where) as flags:
        assert found(asked(imds.url, tmp_path, **flags), clock)["scrape"].level is WARNING
        get(f"{flags['exporter_url']}/metrics")
        clock.pass_seconds(9)
        result = found(asked(imds.url, tmp_path, **flags), clock)
        clock.pass_seconds(3591)
        late = found(asked(imds.url, tmp_path, **flags), clock)["scrape"]
    assert result["exporter"].level is OK
    assert result["scheduled events"] == Finding(
        OK,
        "scheduled events",
        "switched on; the exporter polls since 2026-03-04T22:00:00Z, last with success 10s ago",
    )
    assert result["scrape"] == Finding(OK, "scrape", "/metrics was last asked for 9s ago")
    assert late.level is WARNING
    assert "last asked for 1h ago; add this VM to Prometheus" in late.message


def test_an_exporter_that_does_not(tmp_path: Path) -> None:
    """That it is blind, and each of its problems, is a failure with the reason."""
    clock = HandClock()
    health = Health(clock)
    health.report(DegradedReason.NOTIFICATIONS_FAILING, "oncall refuses")
    where = site(snapshot(up=False, last_error="connection refused"), clock=clock, health=health)
    with SimulatorServer(Simulator()) as imds, running(where) as flags:
        result = found(asked(imds.url, tmp_path, **flags), clock)
    assert result["exporter"] == Finding(
        FAILURE, "exporter", "is degraded: notifications_failing: oncall refuses"
    )
    assert result["scheduled events"] == Finding(
        FAILURE,
        "scheduled events",
        "the exporter had no valid response since 2026-03-04T21:59:59Z: connection refused",
    )


def test_an_exporter_that_waits(tmp_path: Path) -> None:
    """Until the first answer, which may take two minutes, nothing has failed."""
    where = site(snapshot(up=False, ready=False, last_success=None))
    with SimulatorServer(Simulator()) as imds, running(where) as flags:
        result = found(asked(imds.url, tmp_path, **flags))
    assert result["scheduled events"].level is WARNING
    assert "up to two minutes" in result["scheduled events"].message


def test_without_imds(tmp_path: Path) -> None:
    """The reason and what usually helps are named; without a name nothing would act."""
    result = found(asked(f"http://127.0.0.1:{free_port()}", tmp_path))
    assert result["imds"].level is FAILURE
    assert "Connection refused; it answers on Azure VMs only" in result["imds"].message
    assert result["name"].level is FAILURE
    assert "clock" not in result


@pytest.mark.parametrize(("name", "level"), [("DEMO_0", OK), ("demo_1", WARNING)])
def test_a_configured_name(tmp_path: Path, name: str, level: Level) -> None:
    """A name that differs from IMDS is a warning: events would be treated as other VMs'."""
    with SimulatorServer(Simulator()) as imds:
        assert found(asked(imds.url, tmp_path, name=name))["name"].level is level


@pytest.mark.parametrize(
    ("seconds", "level", "words"),
    [
        (2, OK, "in step"),
        (30, WARNING, "30s ahead of"),
        (-90, FAILURE, "1m30s behind"),
        (7200, FAILURE, "2h"),
    ],
)
def test_the_clock(tmp_path: Path, seconds: int, level: Level, words: str) -> None:
    """The finding has the difference to the clock of IMDS, and the remedy."""
    head = b"HTTP/1.1 200 OK\r\nDate: Wed, 04 Mar 2026 22:00:00 GMT\r\nContent-Length: 2\r\n\r\n{}"
    with serving(lambda connection, _: connection.send(head)) as imds:
        clock = HandClock(NOW + timedelta(seconds=seconds))
        result = found(asked(imds.url, tmp_path), clock)["clock"]
    assert result.level is level
    assert words in result.message


def test_an_unknown_clock_is_a_warning(tmp_path: Path) -> None:
    """The clock cannot be checked by an answer without a date."""
    with serving(lambda connection, _: connection.send(answer(b"{}"))) as imds:
        assert found(asked(imds.url, tmp_path))["clock"].level is WARNING


def test_a_bad_configuration_does_not_hide_the_rest(tmp_path: Path) -> None:
    """Its mistake and that of the web configuration are separate lines; all else is examined."""
    file, web = tmp_path / "exporter.yml", tmp_path / "web.yml"
    file.write_text("imds: {timeout: soon}\n")
    web.write_text("basic_auth_users: {a: b}\n")
    with SimulatorServer(Simulator()) as imds:
        result = found(asked(imds.url, tmp_path, config_file=file, web_config_file=web))
    assert result["configuration"].level is FAILURE
    assert result["configuration"].message.startswith(f"{file}:1: imds.timeout: ")
    assert result["web configuration"].level is FAILURE
    assert "is not a bcrypt hash" in result["web configuration"].message
    assert result["imds"].level is OK


def test_a_state_directory_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file at its path, and a directory of another user, are failures."""
    (tmp_path / "file").write_text("")
    with SimulatorServer(Simulator()) as imds:
        flags = asked(imds.url, tmp_path, state=tmp_path / "file" / "state")
        assert "is not a directory" in found(flags)["state"].message
        monkeypatch.setattr(os, "access", lambda *_: False)
        result = found(asked(imds.url, tmp_path, state=tmp_path))["state"]
    assert result.level is FAILURE
    assert f"{tmp_path} cannot be written by uid {os.geteuid()}" in result.message


@pytest.mark.parametrize(
    ("url", "level", "words"),
    [
        ("json://127.0.0.1/x", OK, "127.0.0.1 resolves"),
        ("json://no-such-host.invalid/token", FAILURE, "no-such-host.invalid cannot be resolved"),
        ("slack://TokenA/TokenB/TokenC", OK, "notify-1 (slack://...) is a valid address"),
        ("mailto://u:secret@example.invalid?smtp=127.0.0.1", OK, "127.0.0.1 resolves"),
    ],
)
def test_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, level: Level, words: str) -> None:
    """A host that cannot be resolved is a failure; no secret of a URL is shown."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with SimulatorServer(Simulator()) as imds:
        result = found(asked(imds.url, tmp_path, notify=NotifyUrls([url])))["target"]
    assert result.level is level
    assert words in result.message
    assert not {"secret", "token", "TokenA"} & set(result.message.replace("/", " ").split())


def test_behind_a_proxy_a_name_may_be_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy resolves names itself, so that nothing is known to fail."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    with SimulatorServer(Simulator()) as imds:
        flags = asked(imds.url, tmp_path, notify=NotifyUrls(["json://no-such-host.invalid"]))
        assert found(flags)["target"].level is WARNING


def command(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run `doctor` to its end."""
    words = ("-m", "exporter", "doctor", *words)
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120, check=False)


def test_the_command(tmp_path: Path) -> None:
    """Each line begins with its level; the exit status is 1 with a failure, else 0."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with SimulatorServer(Simulator()) as imds, exporter(imds.url, tmp_path / "state", port):
        flags = ("--imds.endpoint", imds.url, "--state.directory", str(tmp_path / "state"))
        eventually(lambda: get(f"{url}/-/ready"))
        done = command(*flags, "--exporter.url", url)
    assert done.returncode == 0, done.stdout
    assert {line.split()[0] for line in done.stdout.splitlines()} == {"ok", "warning"}
    assert "ok       scheduled events: switched on" in done.stdout
    failed = command("--imds.endpoint", f"http://127.0.0.1:{free_port()}", "--exporter.url", url)
    assert failed.returncode == 1
    assert "\nfailure  imds: " in failed.stdout
    assert failed.stderr == ""


def test_status_says_when_it_was_scraped() -> None:
    """The API has the start of the process, and the last scrape, null before the first."""
    app = WebApp(site(snapshot()))
    before = json.loads(ask(app, "/api/v1/status").text)
    assert (before["started"], before["last_scrape"]) == ("2026-03-04T22:00:00Z", None)
    ask(app, "/metrics")
    assert json.loads(ask(app, "/api/v1/status").text)["last_scrape"] == "2026-03-04T22:00:00Z"
