"""The hooks that drain a node, with the access that the chart gives them, against a real API server.

Not among the tests that pytest finds by itself: Go builds what it needs. ``make test-kubernetes`` runs it.
"""

import os
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from exporter.timefmt import rfc3339
from scripts.renderings import CHART
from tests.packaging.cluster import TOOLS, Cluster, cluster

HOOKS = Path(__file__).parent.parent.parent / "examples" / "kubernetes"
NAME = "events-azure-scheduled-events-exporter"
EVENT = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
MARK = f"scheduled-events-exporter/{EVENT.lower()}"
TAINT = "scheduled-events-exporter/pending"
SET = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/vmss"

pytestmark = pytest.mark.timeout(300)


def node(name: str, instance: int) -> dict[str, Any]:
    """Return a node of the scale set."""
    spec = {"providerID": f"{SET}/virtualMachines/{instance}"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}


def pod(name: str, on: str, **metadata: Any) -> dict[str, Any]:
    """Return a pod that is bound to a node."""
    account = NAME if name == "exporter" else "default"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "monitoring", "labels": {"app": name}, **metadata},
        "spec": {
            "nodeName": on,
            "serviceAccountName": account,
            "automountServiceAccountToken": False,
            "containers": [{"name": "it", "image": "it"}],
        },
    }


class Drained:
    """A cluster of two nodes with the chart's access for the exporter's pod on the first."""

    def __init__(self, found: Cluster) -> None:
        self.cluster = found
        found.kubectl("create", "namespace", "monitoring")
        found.apply(node("vmss000046", 150), node("vmss000047", 151))
        settings = ["image.registry=registry.example.com", "drain.enabled=true"]
        found.helm("install", "events", str(CHART), "--namespace", "monitoring", "--set", ",".join(settings))
        daemon_set = found.get("daemonset", "--namespace", "monitoring", NAME)["metadata"]
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": NAME, "uid": daemon_set["uid"]}
        found.apply(pod("exporter", "vmss000046", ownerReferences=[owner | {"controller": True}]))
        bound = ["--bound-object-kind", "Pod", "--bound-object-name", "exporter"]
        token = found.kubectl("create", "token", NAME, "--namespace", "monitoring", *bound).strip()
        self.own = found.kubeconfig_of("own", token)

    def hook(self, name: str, transition: str, seconds: float = 1800) -> "subprocess.CompletedProcess[str]":
        """Run a hook for a reboot so many seconds ahead, with the pod's token."""
        told = {
            "PATH": f"{TOOLS}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.own),
            "NODE_NAME": "vmss000046",
            "INSTANCE_NAME": "vmss_150",
            "EVENT_ID": EVENT,
            "EVENT_TYPE": "Reboot",
            "EVENT_TRANSITION": transition,
            "EVENT_ATTEMPT": "1",
            "EVENT_NOTBEFORE": rfc3339(datetime.now(UTC) + timedelta(seconds=seconds)),
        }
        command = [str(HOOKS / name)]
        return subprocess.run(command, env=os.environ | told, capture_output=True, text=True, check=False)

    def node(self) -> tuple[bool, bool, list[str]]:
        """Return whether the node is cordoned and marked, and its taints."""
        found = self.cluster.get("node", "vmss000046")
        taints = [one["key"] for one in found["spec"].get("taints", [])]
        marked = MARK in found["metadata"].get("annotations", {})
        return found["spec"].get("unschedulable", False), marked, taints

    def pods(self) -> set[str]:
        """Return the names of the pods that are there."""
        return {one["metadata"]["name"] for one in self.cluster.get("pods", "-n", "monitoring")["items"]}


@pytest.fixture(scope="module")
def drained() -> Iterator[Drained]:
    """Return it, with a stand-in for the kubelet, which ends pods that are to be deleted."""
    stopping = threading.Event()
    with cluster() as found:
        setup = Drained(found)

        def end_pods() -> None:
            while not stopping.wait(0.5):
                for one in found.get("pods", "-n", "monitoring")["items"]:
                    if "deletionTimestamp" in one["metadata"]:
                        name = one["metadata"]["name"]
                        found.kubectl(
                            *("delete", "pod", name, "-n", "monitoring", "--ignore-not-found"),
                            *("--force", "--grace-period", "0"),
                        )

        kubelet = threading.Thread(target=end_pods)
        kubelet.start()
        yield setup
        stopping.set()
        kubelet.join()


def test_a_drain(drained: Drained) -> None:
    """Evicted with respect for budgets first, deleted at the end; marked, told of, and taken back."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guarded", "namespace": "monitoring"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
    }
    drained.cluster.apply(budget, *(pod(name, "vmss000046") for name in ("bare", "guarded")))
    drained.cluster.apply(pod("elsewhere", "vmss000047"))
    # Of a pod that does not run yet no budget is asked.
    running = ["patch", "pod", "guarded", "-n", "monitoring", "--subresource", "status"]
    drained.cluster.kubectl(*running, "--patch", '{"status": {"phase": "Running"}}')
    done = drained.hook("drain", "scheduled", seconds=30)
    assert done.returncode == 0, done.stderr
    assert "evictions did not empty vmss000046 in time" in done.stdout
    assert drained.pods() == {"exporter", "elsewhere"}
    cordoned, marked, taints = drained.node()
    assert (cordoned, marked) == (True, True)
    assert TAINT in taints
    (told,) = drained.cluster.get("events", "-n", "default")["items"]
    assert told["reason"] == "ScheduledEventDrain"
    assert f"Reboot {EVENT}, not before 20" in told["message"]
    done = drained.hook("uncordon", "completed")
    assert done.returncode == 0, done.stderr
    assert drained.node()[:2] == (False, False)
    assert TAINT not in drained.node()[2]


def test_what_aks_drains(drained: Drained) -> None:
    """The taint of AKS is respected: nothing is done on top."""
    aks = "remediator.kubernetes.azure.com/unschedulable"
    drained.cluster.kubectl("taint", "node", "vmss000046", f"{aks}=true:NoSchedule")
    drained.cluster.apply(pod("kept", "vmss000046"))
    done = drained.hook("drain", "scheduled")
    drained.cluster.kubectl("taint", "node", "vmss000046", f"{aks}-")
    assert done.returncode == 0, done.stderr
    assert "AKS drains node vmss000046 itself" in done.stdout
    assert "kept" in drained.pods()
    assert drained.node()[:2] == (False, False)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["taint", "node", "vmss000047", "a=b:NoSchedule"], "only the node that the exporter's pod runs on"),
        (["delete", "pod", "elsewhere", "-n", "monitoring"], "only the node that the exporter's pod runs on"),
        (["label", "node", "vmss000046", "a=b"], "only cordon, taints and annotations"),
        (["get", "secrets", "-n", "monitoring"], "forbidden"),
        (["delete", "node", "vmss000047"], "forbidden"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else "",
)
def test_what_the_token_cannot_do(drained: Drained, command: list[str], why: str) -> None:
    """Another node, its pods, anything else of the own node, and anything else at all."""
    drained.cluster.apply(pod("elsewhere", "vmss000047"))
    with pytest.raises(AssertionError, match=why):
        drained.cluster.kubectl(*command, kubeconfig=drained.own)
