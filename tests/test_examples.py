"""Tests of examples/: the configurations are valid, and the scripts work as documented."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.config import Overrides
from exporter.config.loading import load
from exporter.timefmt import rfc3339

EXAMPLES = Path(__file__).parent.parent / "examples"
KUBERNETES = EXAMPLES / "kubernetes"
EVENT = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
MARK = f"scheduled-events-exporter/{EVENT.lower()}"
TAINT = "scheduled-events-exporter/pending"
AKS_TAINT = "remediator.kubernetes.azure.com/unschedulable"
OTHER_MARK = "scheduled-events-exporter/another"

# Plays a cluster of one node, which is in a file; each call is a line of another.
KUBECTL = """#!{python}
import json, pathlib, sys
folder = pathlib.Path(__file__).parent
arguments = [a for a in sys.argv[1:] if not a.startswith("--request-timeout=")]
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps(arguments) + "\\n")
file = folder / "node.json"
node = json.loads(file.read_text())
verb, name, options = arguments[0], arguments[1], arguments[2:]
if verb in ("get", "annotate", "taint", "patch"):
    name, options = arguments[2], arguments[3:]
if verb == "create":
    event, name = json.load(sys.stdin), node["name"]
    assert event["involvedObject"]["name"] == name
if node["failures"] > 0:
    node["failures"] -= 1
    file.write_text(json.dumps(node))
    sys.exit("Unable to connect to the server")
if name != node["name"]:
    sys.exit(f"nodes {{name}} not found")
if verb == "get":
    lines = [f"provider {{node['provider']}}"] if node["provider"] else []
    lines += ["cordoned"] if node["cordoned"] else []
    lines += [f"taint {{taint}}" for taint in node["taints"]]
    print("\\n".join(lines + [f"mark {{mark}}" for mark in node["marks"]]))
elif verb == "annotate":
    mark = [o for o in options if not o.startswith("--")][0]
    node["marks"] = [m for m in node["marks"] if m != mark.rstrip("-").partition("=")[0]]
    node["marks"] += [mark.partition("=")[0]] if "=" in mark else []
elif verb == "patch":
    node["cordoned"] = bool(json.loads(options[-1])["spec"]["unschedulable"])
elif verb == "taint":
    taint = [o for o in options if not o.startswith("--")][0]
    node["taints"] = [t for t in node["taints"] if t != taint.rstrip("-").partition("=")[0]]
    node["taints"] += [taint.partition("=")[0]] if "=" in taint else []
elif verb == "drain" and "--disable-eviction" not in options and node["kept"]:
    sys.exit("error: some pods are left")
file.write_text(json.dumps(node))
"""


@dataclass
class Cluster:
    """A folder with a fake kubectl, and the variables of a hook."""

    folder: Path
    node: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path, **node: Any) -> "Cluster":
        """Make it, of a node that nothing was done to where not told otherwise."""
        kubectl = folder / "kubectl"
        kubectl.write_text(KUBECTL.format(python=sys.executable))
        kubectl.chmod(0o755)
        usual = {"name": "pool_0", "provider": "", "cordoned": False, "marks": [], "failures": 0}
        usual |= {"taints": [], "kept": False}
        (folder / "node.json").write_text(json.dumps(usual | node))
        return cls(folder)

    def run(self, script: str, transition: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        """Run a hook of a reboot in half an hour, where not told otherwise, to its end."""
        told = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "NODE_NAME": "pool_0",
            "RETRY_SECONDS": "0",
            "EVENT_ID": EVENT,
            "EVENT_TYPE": "Reboot",
            "EVENT_TRANSITION": transition,
            "EVENT_ATTEMPT": "1",
            "EVENT_NOTBEFORE": before(1800) if transition == "scheduled" else "",
            "INSTANCE_NAME": "pool_0",
        }
        return subprocess.run(
            [str(KUBERNETES / script)],
            env=told | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    @property
    def state(self) -> tuple[bool, list[str]]:
        """Return whether the node is cordoned, and for which events."""
        node = json.loads((self.folder / "node.json").read_text())
        return node["cordoned"], node["marks"]

    @property
    def calls(self) -> list[list[str]]:
        """Return the command lines of all calls but those that only look."""
        file = self.folder / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [call for call in map(json.loads, lines) if call[0] != "get"]

    @property
    def taints(self) -> list[str]:
        """Return the keys of the node's taints."""
        taints: list[str] = json.loads((self.folder / "node.json").read_text())["taints"]
        return taints

    def drains(self) -> list[tuple[float, float]]:
        """Return time limit and grace period of each drain, in seconds."""
        found = []
        for call in self.calls:
            if call[0] == "drain":
                assert call[1] == "pool_0"
                limit, grace = (value(call, name) for name in ("--timeout", "--grace-period"))
                found.append((float(limit.removesuffix("s")), float(grace)))
        return found


def value(call: Sequence[str], flag: str) -> str:
    """Return what a flag was set to."""
    (found,) = (word.partition("=")[2] for word in call if word.startswith(f"{flag}="))
    return found


def before(seconds: float) -> str:
    """Return a NotBefore, so far from now."""
    return rfc3339(datetime.now(UTC) + timedelta(seconds=seconds))


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/exporter.yml")), ids=lambda file: file.parent.name)
def test_configurations(file: Path) -> None:
    """`check-config` accepts them, and each file that a hook runs is there."""
    command = [sys.executable, "-m", "exporter", "check-config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    # The hooks need not be installed where the configuration is checked.
    warnings = done.stderr.splitlines()
    assert [line for line in warnings if not line.endswith(" does not exist")] == []
    for hook in load(file, Overrides()).hooks:
        words = [word for word in hook.command if word.startswith("/opt/scheduled-events/")]
        assert words
        for word in words:
            assert (EXAMPLES / word.removeprefix("/opt/scheduled-events/")).is_file()


@pytest.mark.parametrize("name", ["drain", "uncordon", "node.sh"])
def test_scripts_are_plain_shell(name: str) -> None:
    """The system's shell can read them, and those that are hooks can be run."""
    subprocess.run(["/bin/sh", "-n", str(KUBERNETES / name)], check=True)
    assert os.access(KUBERNETES / name, os.X_OK) == (not name.endswith(".sh"))


def test_the_roles_cover_what_the_scripts_ask_for() -> None:
    """The manifest is YAML, and its role lets a node be looked at, marked, cordoned and drained."""
    kinds = {one["kind"]: one for one in yaml.safe_load_all((KUBERNETES / "rbac.yml").read_text())}
    allowed = {
        (resource, verb)
        for rule in (*kinds["ClusterRole"]["rules"], *kinds["Role"]["rules"])
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    nodes = {("nodes", "get"), ("nodes", "patch"), ("daemonsets", "get"), ("events", "create")}
    pods = {("pods", "get"), ("pods", "list"), ("pods", "delete"), ("pods/eviction", "create")}
    assert allowed == nodes | pods
    for kind in ("ClusterRole", "Role"):
        assert kinds[f"{kind}Binding"]["roleRef"]["name"] == kinds[kind]["metadata"]["name"]
    assert kinds["Role"]["metadata"]["namespace"] == "default"


def test_a_life(tmp_path: Path) -> None:
    """Announced, the node is marked, cordoned, and drained; then all of that is taken back."""
    cluster = Cluster.make(tmp_path)
    assert cluster.run("drain", "scheduled").returncode == 0
    assert cluster.state == (True, [MARK])
    assert [call[0] for call in cluster.calls] == ["annotate", "patch", "taint", "create", "drain"]
    assert {"--ignore-daemonsets", "--delete-emptydir-data", "--force"} <= set(cluster.calls[-1])
    assert cluster.taints == [TAINT]
    assert cluster.run("drain", "started").returncode == 0
    (_, announced), (_, begun) = cluster.drains()
    # A busy machine takes some seconds of the 30 that there are.
    assert (announced, 5 <= begun <= 15) == (-1, True)
    assert cluster.run("uncordon", "completed").returncode == 0
    assert cluster.state == (False, [])
    assert cluster.taints == []


def test_what_eviction_leaves_is_deleted(tmp_path: Path) -> None:
    """The last quarter of the time is for pods that budgets keep; without force they stay, and it fails."""
    cluster = Cluster.make(tmp_path, kept=True)
    assert cluster.run("drain", "started", SHORT_SECONDS="40").returncode == 0
    (evicted, _), (deleted, _) = cluster.drains()
    assert 16 <= evicted <= 31
    assert 5 <= deleted <= 10
    assert "--disable-eviction" in cluster.calls[-1]
    assert cluster.run("drain", "started", DRAIN_FORCE="off").returncode != 0
    assert "--force" not in cluster.calls[-1]


def test_what_aks_drains_itself(tmp_path: Path) -> None:
    """A node with the taint of AKS is left to AKS, and not put back into service while it has it."""
    cluster = Cluster.make(tmp_path, cordoned=True, taints=[AKS_TAINT])
    assert cluster.run("drain", "scheduled").returncode == 0
    assert cluster.calls == []
    cluster = Cluster.make(tmp_path, cordoned=True, marks=[MARK], taints=[TAINT, AKS_TAINT])
    assert cluster.run("uncordon", "completed").returncode == 0
    assert cluster.state == (True, [])
    assert cluster.taints == [AKS_TAINT]


@pytest.mark.parametrize(
    ("notice", "least", "most", "grace"),
    [(None, 10, 24, 15), (130, 60, 92, -1), (60, 5, 39, None), (90000, 760, 781, -1)],
)
def test_the_time_that_is_left(
    tmp_path: Path, notice: float | None, least: float, most: float, grace: int | None
) -> None:
    """The drain ends before the event begins; pods with less than a minute get that as grace period."""
    cluster = Cluster.make(tmp_path)
    cluster.run("drain", "scheduled", EVENT_NOTBEFORE="" if notice is None else before(notice))
    ((seconds, given),) = cluster.drains()
    assert least <= seconds <= most
    # A busy machine takes some seconds before it looks at the clock.
    assert grace is None or given == grace or 0 < grace - 10 <= given < grace
    assert given <= seconds


def test_too_late(tmp_path: Path) -> None:
    """An announcement whose time has passed, as after a long stop, leaves the node alone."""
    cluster = Cluster.make(tmp_path)
    done = cluster.run("drain", "scheduled", EVENT_NOTBEFORE=before(-5), EVENT_ATTEMPT="2")
    assert done.returncode == 0
    assert done.stdout.startswith("too late to drain: Reboot was to begin at 20")
    assert cluster.calls == []


def test_a_second_attempt(tmp_path: Path) -> None:
    """What was interrupted is done again; but a VM that may be back already is not drained once more."""
    cluster = Cluster.make(tmp_path, cordoned=True, marks=[MARK])
    assert cluster.run("drain", "scheduled", EVENT_ATTEMPT="2").returncode == 0
    assert len(cluster.drains()) == 1
    assert cluster.run("drain", "started", EVENT_ATTEMPT="2").returncode == 0
    assert len(cluster.drains()) == 1
    assert cluster.state == (True, [MARK])


def test_what_somebody_else_cordoned_stays_cordoned(tmp_path: Path) -> None:
    """A node that was cordoned before is drained, and left cordoned."""
    cluster = Cluster.make(tmp_path, cordoned=True)
    assert cluster.run("drain", "scheduled").returncode == 0
    assert len(cluster.drains()) == 1
    assert cluster.run("uncordon", "cancelled").returncode == 0
    assert cluster.state == (True, [])


def test_two_events(tmp_path: Path) -> None:
    """The node stays cordoned until the last of its events is gone."""
    cluster = Cluster.make(tmp_path, cordoned=True, marks=[OTHER_MARK])
    cluster.run("drain", "scheduled")
    assert cluster.state == (True, [OTHER_MARK, MARK])
    done = cluster.run("uncordon", "completed")
    assert done.stdout == "node pool_0 stays cordoned for another\n"
    assert cluster.state == (True, [OTHER_MARK])
    cluster.run("uncordon", "vanished", EVENT_ID="Another")
    assert cluster.state == (False, [])


@pytest.mark.parametrize("failures", range(1, 5))
def test_uncordon_does_not_give_up(tmp_path: Path, failures: int) -> None:
    """While the cluster does not answer, as after a reboot, it is asked again."""
    cluster = Cluster.make(tmp_path, cordoned=True, marks=[MARK], failures=failures)
    assert cluster.run("uncordon", "completed").returncode == 0
    assert cluster.state == (False, [])


def test_a_drain_that_fails_is_a_hook_that_fails(tmp_path: Path) -> None:
    """Where the cluster does not answer the hook fails, and nothing is drained."""
    cluster = Cluster.make(tmp_path, failures=1)
    assert cluster.run("drain", "scheduled").returncode != 0
    assert cluster.drains() == []


SCALE_SET = (
    "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/Pool"
)


@pytest.mark.parametrize(
    ("provider", "instance", "own"),
    [
        (f"{SCALE_SET}/virtualMachines/0", "pool_0", True),
        (f"{SCALE_SET}/virtualMachines/1", "pool_0", False),
        (f"{SCALE_SET}2/virtualMachines/0", "pool_0", False),
        ("azure:///subscriptions/s/providers/Microsoft.Compute/virtualMachines/VM-1", "vm-1", True),
        ("azure:///subscriptions/s/providers/Microsoft.Compute/virtualMachines/vm-2", "vm-1", False),
        (
            "azure:///subscriptions/s/providers/Microsoft.Compute/virtualMachines/Pool_1a2b3c4d",
            "pool_1a2b3c4d",
            True,
        ),
        ("", "whatever", True),
        ("", "pool_0", True),
        ("", "pool_150", False),
    ],
)
def test_only_the_own_node(tmp_path: Path, provider: str, instance: str, *, own: bool) -> None:
    """A node that is another VM according to its provider id is neither cordoned nor uncordoned."""
    cluster = Cluster.make(tmp_path, provider=provider)
    for script, transition in (("drain", "scheduled"), ("uncordon", "completed")):
        done = cluster.run(script, transition, INSTANCE_NAME=instance)
        assert done.returncode == (0 if own else 1)
        assert ("set NODE_NAME" in done.stderr) == (not own)
    assert bool(cluster.calls) == own


def test_the_node_is_named_after_the_host(tmp_path: Path) -> None:
    """Without NODE_NAME it is the host's name in lower case, as the kubelet has it."""
    cluster = Cluster.make(tmp_path, name="host-7")
    (tmp_path / "hostname").write_text("#!/bin/sh\necho Host-7\n")
    (tmp_path / "hostname").chmod(0o755)
    assert cluster.run("uncordon", "completed", NODE_NAME="", INSTANCE_NAME="host-7").returncode == 0
    assert cluster.run("drain", "scheduled", NODE_NAME="", INSTANCE_NAME="host-7").returncode == 0
    assert cluster.state == (True, [MARK])


@pytest.mark.parametrize("readme", sorted(EXAMPLES.rglob("README.md")), ids=lambda file: file.parent.name)
def test_the_texts_name_files_that_exist(readme: Path) -> None:
    """Links lead somewhere."""
    for link in re.findall(r"\]\(([^)#:]+)\)", readme.read_text()):
        assert (readme.parent / link).exists(), link


@pytest.mark.parametrize(
    ("vm", "node", "own"),
    [
        ("vmss_150", "vmss000046", True),
        ("vmss_150", "chosen000046", True),
        ("vmss_150", "vmss000047", False),
        ("vmss_1295", "vmss0000zz", True),
    ],
)
def test_the_names_of_scale_sets(tmp_path: Path, vm: str, node: str, *, own: bool) -> None:
    """Without a provider ID, a node is recognised by the number of the VM to the base of 36."""
    cluster = Cluster.make(tmp_path, name=node)
    done = cluster.run("uncordon", "completed", NODE_NAME=node, INSTANCE_NAME=vm)
    assert done.returncode == (0 if own else 1)
