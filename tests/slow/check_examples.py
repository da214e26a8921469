"""The hooks of examples/ against small stand-ins of the systems around them.

They show nothing about the program, so pytest does not find them by itself: ``make test-examples`` runs them.
`tests/bench` runs the program with each configuration.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from exporter.config import Overrides
from exporter.config.loading import load
from tests.alerts.support import alertmanager
from tests.end_to_end.program import get
from tests.http_server import Connection, Request, answer, serving

EXAMPLES = Path(__file__).parents[2] / "examples"
EVENT_ID = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
SCONTROL = """#!/bin/sh
echo "$@" >> {folder}/calls
case $1 in
show) sed "s/.*/   Reason=& [root@2026-03-04T22:00:00]/" {folder}/reason ;;
update) case $3 in State=DRAIN) echo "${{4#Reason=}}" > {folder}/reason ;; *) : > {folder}/reason ;; esac ;;
esac
"""


def script(path: Path, text: str) -> None:
    """Write a stand-in of a program."""
    path.write_text(text)
    path.chmod(0o755)


def run(hook: str, transition: str, *words: str, event_type: str = "Reboot", **environ: str) -> None:
    """Run a hook for a transition; it must succeed."""
    told = {"EVENT_ID": EVENT_ID, "EVENT_TYPE": event_type, "EVENT_TRANSITION": transition}
    told["INSTANCE_NAME"] = "web-1"
    # Without a program in between that selects a Python, which some machines have there.
    told["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run([EXAMPLES / hook, *words], env=os.environ | told | environ, timeout=240, check=True)


@pytest.fixture
def slurm(tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that runs the hook for a transition, and returns the calls that change something."""
    script(tmp_path / "scontrol", SCONTROL.format(folder=tmp_path))
    script(tmp_path / "squeue", "#!/bin/sh\necho 7\necho 8\n")
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


def merge(document: dict[str, Any], change: dict[str, Any]) -> None:
    """Apply a change as Patroni and a JSON merge patch do: null removes a key."""
    for key, value in change.items():
        if value is None:
            document.pop(key, None)
        elif isinstance(value, dict) and isinstance(document.get(key), dict):
            merge(document[key], value)
        else:
            document[key] = value


HOLDS = "scheduled_event_holds"


class Patroni:
    """A stand-in for Patroni: the cluster's configuration, and the role of the member that is asked."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.role = "primary"
        self.refusals: list[str] = []

    def __call__(self, connection: Connection, request: Request) -> None:
        if request.path == "/patroni":
            connection.send(as_json({"role": self.role}))
        elif request.method == "PATCH" and self.refusals:
            connection.send(as_json({}, self.refusals.pop()))
        else:
            assert request.path == "/config"
            if request.method == "PATCH":
                merge(self.config, request.json)
            connection.send(as_json(self.config))


def test_freeze_patroni() -> None:
    """Failover is paused, and resumed once the last of two events ends; a refusal is retried."""
    patroni = Patroni({"ttl": 30})
    patroni.refusals = ["503 Service Unavailable"]
    with serving(patroni) as server:
        words = (server.url, "1800")
        for hold, end in (("scheduled", "completed"), ("imminent", "cancelled"), ("started", "vanished")):
            run("freeze/patroni", hold, *words, event_type="Freeze")
            run("freeze/patroni", "started", *words, event_type="Freeze", EVENT_ID="another")
            run("freeze/patroni", end, *words, event_type="Freeze")
            assert patroni.config["pause"] is True
            # What is given back does not depend on who is the primary by then.
            patroni.role = "replica"
            for _ in range(2):
                run("freeze/patroni", end, *words, event_type="Freeze", EVENT_ID="another")
                assert patroni.config == {"ttl": 30}
            patroni.role = "master"
        patroni.role = "replica"
        run("freeze/patroni", "scheduled", *words, event_type="Freeze")
        assert patroni.config == {"ttl": 30}


def test_freeze_patroni_with_what_others_leave() -> None:
    """A hold whose time is over ends by the timer; a pause of an administrator stays."""
    patroni = Patroni({"pause": True, HOLDS: {EVENT_ID: 1, "another": 4102444800}})
    with serving(patroni) as server:
        timer = [str(EXAMPLES / "freeze" / "patroni"), server.url, "1800"]
        subprocess.run(timer, timeout=60, check=True)
        assert patroni.config == {"pause": True, HOLDS: {"another": 4102444800}}
        patroni.config[HOLDS]["another"] = 1
        subprocess.run(timer, timeout=60, check=True)
        assert patroni.config == {}
        patroni.config["pause"] = True
        for transition in ("scheduled", "started", "completed"):
            run("freeze/patroni", transition, server.url, "1800", event_type="Freeze")
        subprocess.run(timer, timeout=60, check=True)
        assert patroni.config == {"pause": True}


def test_the_timer_of_patroni_runs_the_hook() -> None:
    """The unit runs the hook for the same API and the same time as the configuration does."""
    unit = (EXAMPLES / "freeze" / "patroni-holds.service").read_text()
    (command,) = [
        line.removeprefix("ExecStart=") for line in unit.splitlines() if line.startswith("ExecStart=")
    ]
    hooks = load(EXAMPLES / "freeze" / "exporter.yml", Overrides()).hooks
    assert [" ".join(hook.command) for hook in hooks] == [command, command]


@pytest.mark.parametrize("before", [None, 30, 600])
def test_freeze_cloudnativepg(before: int | None) -> None:
    """Clusters with their primary on the Node wait longer until the last event ends."""
    clusters: dict[str, dict[str, Any]] = {
        name: {
            "metadata": {"namespace": "db", "name": name, "resourceVersion": "1"},
            "spec": {"instances": 3} | ({} if before is None else {"failoverDelay": before}),
        }
        for name in ("here", "elsewhere")
    }
    untouched = json.loads(json.dumps(clusters))
    primaries = ["here"]
    # Once is enough, as the hook waits after it.
    conflicts = [] if before else ["409 Conflict"]

    def kubernetes(connection: Connection, request: Request) -> None:
        if request.method == "PATCH":
            assert request.headers["content-type"] == "application/merge-patch+json"
            assert request.path.startswith("/apis/postgresql.cnpg.io/v1/namespaces/db/clusters/")
            cluster = clusters[request.path.rpartition("/")[2]]
            version = request.json["metadata"]["resourceVersion"]
            if conflicts or version != cluster["metadata"]["resourceVersion"]:
                connection.send(as_json({}, conflicts.pop()))
                return
            merge(cluster, request.json)
            connection.send(as_json(cluster))
        elif request.path.startswith("/api/v1/pods?"):
            assert parse_qs(request.path.partition("?")[2]) == {
                "labelSelector": ["cnpg.io/instanceRole=primary"],
                "fieldSelector": ["spec.nodeName=node-1"],
            }
            pods = [
                {"metadata": {"namespace": "db", "labels": {"cnpg.io/cluster": name}}} for name in primaries
            ]
            connection.send(as_json({"items": pods}))
        else:
            connection.send(as_json({"items": list(clusters.values())}))

    def hook(transition: str, event_id: str = EVENT_ID) -> None:
        about = {"EVENT_ID": event_id, "NODE_NAME": "node-1"}
        run("freeze/cloudnativepg", transition, "120", server.url, event_type="Freeze", **about)

    with serving(kubernetes) as server:
        for transition in ("scheduled", "imminent", "started")[: 1 if before else 3]:
            hook(transition)
            assert clusters["here"]["spec"]["failoverDelay"] == max(120, before or 0)
        hook("started", "another")
        # What is given back does not depend on where the primary is by then.
        primaries[:] = ["elsewhere"]
        hook("completed")
        assert clusters["here"]["spec"]["failoverDelay"] == max(120, before or 0)
        for _ in range(2):
            hook("vanished", "another")
            assert clusters["here"]["metadata"].pop("annotations", {}) == {}
            assert clusters == untouched


ETCDCTL = """#!/bin/sh
echo "$*" >> {folder}/calls
case "$*" in
*move-leader*) ;;
*--cluster*) cat {folder}/members; exit 1 ;;
*) cat {folder}/own ;;
esac
"""


def test_freeze_etcd(tmp_path: Path) -> None:
    """A leader hands over to the member that answers and is furthest; a follower does nothing."""

    def status(member: int, leader: int, index: int, **more: bool) -> dict[str, object]:
        return {"Status": {"header": {"member_id": member}, "leader": leader, "raftIndex": index} | more}

    script(tmp_path / "etcdctl", ETCDCTL.format(folder=tmp_path))
    members = [
        status(1, 1, 9),
        status(0xAB, 1, 8),
        status(0xFFFFFFFFFFFFFFFE, 1, 9),
        status(4, 1, 9, isLearner=True),
    ]
    (tmp_path / "members").write_text(json.dumps(members))
    words = ("https://127.0.0.1:2379",)
    path = f"{tmp_path}:{os.environ['PATH']}"
    for leader, expected in (
        (0xAB, []),
        (1, ["--endpoints=https://127.0.0.1:2379 move-leader fffffffffffffffe"]),
    ):
        (tmp_path / "calls").write_text("")
        (tmp_path / "own").write_text(json.dumps([status(1, leader, 9)]))
        run("freeze/etcd", "scheduled", *words, event_type="Freeze", PATH=path)
        calls = (tmp_path / "calls").read_text().splitlines()
        assert [call for call in calls if "move-leader" in call] == expected
    (tmp_path / "members").write_text(json.dumps(members[:1]))
    with pytest.raises(subprocess.CalledProcessError):
        run("freeze/etcd", "scheduled", *words, event_type="Freeze", PATH=path)


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/exporter.yml")), ids=lambda file: file.parent.name)
def test_files_of_a_configuration(file: Path) -> None:
    """Each file that a hook runs is there."""
    hooks = load(file, Overrides()).hooks
    installed = "/opt/scheduled-events/"
    words = [word for hook in hooks for word in hook.command if word.startswith(installed)]
    assert bool(words) is bool(hooks)
    assert [word for word in words if not (EXAMPLES / word.removeprefix(installed)).is_file()] == []


PACEMAKER = """#!/bin/sh
case ${0##*/} in
crm_node) echo node-1 ;;
crm_attribute) echo "$*" >>"${0%/*}/calls" ;;
crm_mon)
    echo . >>"${0%/*}/looks"
    cat "${0%/*}/answer-$(wc -l <"${0%/*}/looks")" ;;
esac
"""


def test_an_unknown_cluster_is_not_an_empty_node(tmp_path: Path) -> None:
    """While `crm_mon` fails or prints something else, the hook waits: success would let the event start."""
    for name in ("crm_node", "crm_attribute", "crm_mon"):
        script(tmp_path / name, PACEMAKER)
    # The first answer is missing: crm_mon fails.
    (tmp_path / "answer-2").write_text("")
    for number, active in ((3, "true"), (4, "false")):
        text = f'<pacemaker-result><resource id="a" active="{active}"/></pacemaker-result>'
        (tmp_path / f"answer-{number}").write_text(text)
    environ = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "EVENT_ID": "C7061BAC",
        "EVENT_TRANSITION": "scheduled",
    }
    hook = str(EXAMPLES / "pacemaker" / "set_health")
    done = subprocess.run([hook], env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "no resource runs on node-1\n")
    assert len((tmp_path / "looks").read_text().splitlines()) == 4


def test_alertmanager_is_silent_while_the_event_lasts(tmp_path: Path) -> None:
    """There is one silence, for the VM alone, which a second transition extends and the end expires."""
    with alertmanager(tmp_path) as url:
        for transition, hours in (("imminent", "1"), ("started", "3")):
            run("silence/alertmanager", transition, url, "vm", SILENCE_HOURS=hours)
        run("silence/alertmanager", "started", url, "vm", INSTANCE_NAME="web-2")
        run("silence/alertmanager", "completed", url, "vm")
        silences = json.loads(get(f"{url}/api/v2/silences"))
    states: dict[str, list[str]] = {}
    for one in silences:
        (matcher,) = one["matchers"]
        assert matcher["name"] == "vm"
        states.setdefault(matcher["value"], []).append(one["status"]["state"])
    assert set(states.pop("web-1")) == {"expired"}
    assert states == {"web-2": ["active"]}


@pytest.mark.parametrize("ending", ["completed", "cancelled", "vanished"])
def test_pagerduty_has_a_window_while_the_event_lasts(tmp_path: Path, ending: str) -> None:
    """One window is opened, and deleted at the end."""
    windows: dict[str, dict[str, object]] = {}

    def pagerduty(connection: Connection, request: Request) -> None:
        assert request.headers["authorization"] == "Token token=secret"
        assert request.headers["from"] == "me@example.com"
        if request.method == "POST":
            windows["P1"] = json.loads(request.body)["maintenance_window"] | {"id": "P1"}
        if request.method == "DELETE":
            windows.pop(request.path.rpartition("/")[2])
        connection.send(answer(json.dumps({"maintenance_windows": list(windows.values())}).encode()))

    (tmp_path / "token").write_text("secret\n")
    with serving(pagerduty) as server:
        words = (str(tmp_path / "token"), "me@example.com", "PSERVICE")
        for transition in ("imminent", "started"):
            run("silence/pagerduty", transition, *words, PAGERDUTY_URL=server.url)
            assert [window["services"] for window in windows.values()] == [
                [{"id": "PSERVICE", "type": "service_reference"}]
            ]
        run("silence/pagerduty", ending, *words, PAGERDUTY_URL=server.url)
    assert not windows
