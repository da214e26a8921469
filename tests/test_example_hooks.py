"""The hooks of examples/ for Slurm, CI runners and Patroni, against small stand-ins of these systems."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from tests.http_server import Connection, Request, answer, serving

EXAMPLES = Path(__file__).parent.parent / "examples"
EVENT_ID = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
SCONTROL = """#!/bin/sh
echo "$@" >> {folder}/calls
case $1 in
show) sed "s/.*/   Reason=& [root@2026-03-04T22:00:00]/" {folder}/reason ;;
update) case $3 in State=DRAIN) echo "${{4#Reason=}}" > {folder}/reason ;; *) : > {folder}/reason ;; esac ;;
esac
"""


def run(hook: str, transition: str, *words: str, event_type: str = "Reboot", **environ: str) -> None:
    told = {"EVENT_ID": EVENT_ID, "EVENT_TYPE": event_type, "EVENT_TRANSITION": transition}
    subprocess.run([EXAMPLES / hook, *words], env=os.environ | told | environ, timeout=60, check=True)


@pytest.fixture
def slurm(tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that runs the hook for a transition, and returns the calls that change something."""
    for name, text in (
        ("scontrol", SCONTROL.format(folder=tmp_path)),
        ("squeue", "#!/bin/sh\necho 7\necho 8\n"),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "reason").touch()

    def hook(transition: str, event_type: str = "Reboot") -> list[str]:
        (tmp_path / "calls").write_text("")
        path = f"{tmp_path}:{os.environ['PATH']}"
        run("slurm/set_state", transition, event_type=event_type, SLURMD_NODENAME="n1", PATH=path)
        return [line for line in (tmp_path / "calls").read_text().splitlines() if not line.startswith("show")]

    return hook


def test_slurm_node(slurm: Callable[..., list[str]]) -> None:
    """The node is drained once, its jobs are requeued before the start, and it is resumed afterwards."""
    for _ in range(2):
        drain = f"update NodeName=n1 State=DRAIN Reason=azure {EVENT_ID}"
        assert slurm("scheduled") == [drain]
        assert slurm("imminent") == ["requeue 7", "requeue 8"]
        assert slurm("started") == []
        assert slurm("completed") == ["update NodeName=n1 State=RESUME"]
        assert slurm("completed") == []
    assert slurm("scheduled", "Preempt") == [drain, "requeue 7", "requeue 8"]


def test_slurm_node_that_an_administrator_drained(slurm: Callable[..., list[str]], tmp_path: Path) -> None:
    """It keeps its reason, and stays drained."""
    (tmp_path / "reason").write_text("bad disk\n")
    assert slurm("scheduled") == []
    assert slurm("completed") == []


def as_json(body: object, status: str = "200 OK") -> bytes:
    return answer(json.dumps(body).encode(), status, "Connection: close\r\n")


def test_github_runner(tmp_path: Path) -> None:
    """The label is removed once and given back once; the runner's other labels stay."""
    labels = ["self-hosted", "ready"]

    def github(connection: Connection, request: Request) -> None:
        assert request.headers["authorization"] == "Bearer secret"
        if request.method == "DELETE":
            labels.remove(request.path.rpartition("/")[2])
        elif request.method == "POST":
            labels.extend(request.json["labels"])
        runner = {"id": 9, "name": "vm-1", "labels": [{"name": label} for label in labels]}
        connection.send(as_json({"runners": [{"id": 1, "name": "vm-10", "labels": []}, runner]}))

    (tmp_path / "token").write_text("secret\n")
    with serving(github) as api:
        for transition, expected in [
            ("scheduled", 1),
            ("started", 1),
            ("completed", 2),
            ("completed", 2),
        ] * 2:
            words = ("orgs/my-org", "ready", str(tmp_path / "token"))
            run("runners/github", transition, *words, RUNNER_NAME="vm-1", GITHUB_API_URL=api.url)
            assert len(labels) == expected
            assert labels[0] == "self-hosted"


@pytest.mark.parametrize("reason", ["", "maintenance by hand"])
def test_jenkins_agent(tmp_path: Path, reason: str) -> None:
    """The agent goes offline and comes back, unless an administrator took it offline."""
    seen = {"temporarilyOffline": bool(reason), "offlineCauseReason": reason}

    def jenkins(connection: Connection, request: Request) -> None:
        assert request.headers["authorization"] == "Basic bWU6c2VjcmV0"
        if request.method == "POST":
            offline = not seen["temporarilyOffline"]
            (message,) = parse_qs(request.body.decode()).get("offlineMessage", [""])
            seen.update(temporarilyOffline=offline, offlineCauseReason=message)
        connection.send(as_json(seen))

    (tmp_path / "token").write_text("me:secret\n")
    with serving(jenkins) as server:
        for transition, offline in [("scheduled", True), ("started", True), ("cancelled", False)] * 2:
            run("runners/jenkins", transition, server.url, str(tmp_path / "token"), JENKINS_AGENT="vm 1")
            assert seen["temporarilyOffline"] is (offline or bool(reason))


def test_patroni_switchover() -> None:
    """A primary is handed over, and the hook waits until it has been; a replica is left alone."""
    asked: list[object] = []
    primary = [True, True, False]

    def patroni(connection: Connection, request: Request) -> None:
        if request.path == "/switchover":
            asked.append(request.json)
        found = primary.pop(0) if request.path == "/primary" and len(primary) > 1 else primary[0]
        status = "200 OK" if found or request.path != "/primary" else "503 Service Unavailable"
        connection.send(as_json({"patroni": {"name": "pg-1"}}, status))

    with serving(patroni) as server:
        run("patroni/switchover", "scheduled", server.url)
        run("patroni/switchover", "scheduled", server.url)
    assert asked == [{"leader": "pg-1"}]
