"""The exporter and its Node, with the access that the chart gives it, against a real API server.

Not among the tests that pytest finds by itself: Go builds what it needs. ``make test-kubernetes`` runs it.
"""

import contextlib
import copy
import itertools
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scripts.renderings import CHART
from tests.end_to_end.program import eventually, resident
from tests.end_to_end.vm import EVENT, Vm, event, one_vm
from tests.outputs.kubernetes.test_selector import INVALID, VALID
from tests.slow.kubernetes.cluster import Cluster, cluster

NAMESPACE = "monitoring"
ACCOUNT = "events-azure-scheduled-events-exporter"
BUDGET = "/apis/policy/v1/namespaces/monitoring/poddisruptionbudgets"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


def owner(kind: str) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": kind, "name": "it", "uid": "1", "controller": True}


class Kubelet(threading.Thread):
    """Ends pods that terminate: at once, or with the label ``ends: late`` when their grace is over."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(0.2):
            for pod in self._cluster.get(PODS)["items"]:
                meta = pod["metadata"]
                ends = meta.get("deletionTimestamp")
                late = meta.get("labels", {}).get("ends") == "late"
                if ends and (not late or datetime.fromisoformat(ends) <= datetime.now(UTC)):
                    with contextlib.suppress(AssertionError):
                        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
                        self._cluster.ask("DELETE", f"{PODS}/{meta['name']}", options)


class Rig:
    def __init__(self, cluster: Cluster, vm: Vm, node: str) -> None:
        self.cluster = cluster
        self.vm = vm
        self.name = node
        labels = {"kubernetes.io/hostname": node}
        cluster.create("/api/v1/nodes", "Node", {"metadata": {"name": node, "labels": labels}})
        self.pod("exporter", account=ACCOUNT, ownerReferences=[owner("DaemonSet")])
        self.account = vm.folder / "account"
        self.account.mkdir()
        shutil.copy(cluster.ca, self.account / "ca.crt")
        pod = cluster.get(f"{PODS}/exporter-{node}")
        (self.account / "token").write_text(cluster.token(NAMESPACE, ACCOUNT, pod))
        self.configure()

    def configure(self, *rules: dict[str, Any], **drain: Any) -> None:
        settings = {
            "node": self.name,
            "service_account": str(self.account),
            "drain": {"enabled": True, **drain},
        }
        approval = {"mode": "on", "rules": rules} if rules else {}
        self.vm.configure(kubernetes=settings, approval=approval)

    @contextlib.contextmanager
    def running(self) -> Iterator["subprocess.Popen[bytes]"]:
        port = str(self.cluster.port)
        with self.vm.running(KUBERNETES_SERVICE_HOST="127.0.0.1", KUBERNETES_SERVICE_PORT=port) as process:
            yield process

    def announce(self, seconds: float, **fields: Any) -> datetime:
        """Announce an event so far ahead; return NotBefore, which has whole seconds."""
        not_before = (datetime.now(UTC) + timedelta(seconds=seconds)).replace(microsecond=0)
        text = format_datetime(not_before, usegmt=True)
        self.vm.tell(event(NotBefore=text, **fields))
        return not_before

    def pod(
        self,
        name: str,
        *,
        node: str = "",
        account: str = "default",
        labels: dict[str, str] | None = None,
        **metadata: Any,
    ) -> dict[str, Any]:
        """Create a running pod on the Node, or on another; its name ends with that of the Node."""
        labels = {"app": f"{name}-{self.name}"} | (labels or {})
        content = {
            "metadata": {"name": f"{name}-{self.name}", "labels": labels} | metadata,
            "spec": {
                "nodeName": node or self.name,
                "serviceAccountName": account,
                "automountServiceAccountToken": False,
                "containers": [{"name": "it", "image": "it"}],
            },
        }
        created: dict[str, Any] = self.cluster.create(PODS, "Pod", content)
        status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        self.cluster.ask("PATCH", f"{PODS}/{name}-{self.name}/status", status)
        return created

    def controlled(self, name: str, **more: Any) -> dict[str, Any]:
        return self.pod(name, ownerReferences=[owner("ReplicaSet")], **more)

    def budget(self, name: str) -> None:
        """Protect the pod of this name by a budget that allows nothing."""
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": f"{name}-{self.name}"}}}
        meta = {"name": f"{name}-{self.name}"}
        self.cluster.create(BUDGET, "PodDisruptionBudget", {"metadata": meta, "spec": spec})

    def allow(self, name: str) -> None:
        """Make the budget allow one eviction, as its controller would."""
        status = {"currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2, "disruptionsAllowed": 1}
        status["observedGeneration"] = 1
        self.cluster.ask("PATCH", f"{BUDGET}/{name}-{self.name}/status", {"status": status})

    def patch(self, **content: Any) -> None:
        self.cluster.ask("PATCH", f"/api/v1/nodes/{self.name}?fieldManager=kubectl", content)

    @property
    def node(self) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.get(f"/api/v1/nodes/{self.name}")
        return found

    @property
    def has_taint(self) -> bool:
        return "scheduled-events-exporter/pending" in {
            one["key"] for one in self.node["spec"].get("taints", [])
        }

    @property
    def is_cordoned(self) -> bool:
        """Whether the Node is cordoned and has our mark and our taint; all of them or none."""
        node = self.node
        facts = {
            bool(node["spec"].get("unschedulable")),
            "scheduled-events-exporter/cordoned" in node["metadata"].get("annotations", {}),
            self.has_taint,
        }
        assert len(facts) == 1, node
        return facts.pop()

    @property
    def pods(self) -> set[str]:
        """The names of the Node's pods, without that of the Node."""
        found = self.cluster.get(PODS, fieldSelector=f"spec.nodeName={self.name}")["items"]
        return {pod["metadata"]["name"].removesuffix(f"-{self.name}") for pod in found}

    def condition(self, kind: str) -> dict[str, Any]:
        found = {one["type"]: one for one in self.node["status"].get("conditions", [])}
        condition: dict[str, Any] = found.get(kind, {"status": None})
        return condition

    def evictions(self) -> list[datetime]:
        """Return when evictions on this Node were asked for, by the audit log of the API server."""
        lines = (self.cluster.folder / "audit.log").read_text().splitlines()
        asked = map(json.loads, lines)
        return [
            datetime.fromisoformat(one["requestReceivedTimestamp"])
            for one in asked
            if one["objectRef"].get("subresource") == "eviction"
            and one["objectRef"]["name"].endswith(self.name)
        ]

    def drained(self, outcome: str = "succeeded", within: float = 60.0) -> None:
        eventually(lambda: self.vm.count("kubernetes.drain", outcome) == 1, within=within)

    def until(self, at: datetime, more: float = 0.0) -> None:
        time.sleep(max((at - datetime.now(UTC)).total_seconds() + more, 0.0))


DRAIN = "kubernetes.drain"
NUMBERS = itertools.count(1)
CHART_SETTINGS = (
    *("events", str(CHART), "--namespace", NAMESPACE, "--set"),
    "image.registry=registry.example.com,drain.enabled=true,drain.excludeFromLoadBalancers=true",
)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[Cluster]:
    with cluster() as found:
        found.create("/api/v1/namespaces", "Namespace", {"metadata": {"name": NAMESPACE}})
        found.helm("install", *CHART_SETTINGS)
        kubelet = Kubelet(found)
        kubelet.start()
        yield found
        kubelet.stopping.set()
        kubelet.join()


@pytest.fixture
def rig(kubernetes: Cluster, tmp_path: Path) -> Iterator[Rig]:
    """Return a Node with a pod of a DaemonSet and a mirror pod, and an exporter for it."""
    with one_vm(tmp_path) as found:
        rig = Rig(kubernetes, found, f"node-{next(NUMBERS)}")
        rig.pod("mirror", annotations={"kubernetes.io/config.mirror": "it"})
        yield rig


def test_an_event_from_beginning_to_end(rig: Rig) -> None:
    """Conditions, annotations and Events; cordon, evictions and an approval; all of it is taken back."""
    rig.configure(
        {"name": "drained", "action": "approve", "require_hooks": [DRAIN]}, exclude_from_load_balancers=True
    )
    for name in ("bare", "late"):
        rig.pod(name, labels={"ends": name})
    rig.controlled("web")
    rig.controlled("neighbour", node=f"not-{rig.name}")
    with rig.running() as process:
        eventually(lambda: rig.condition("MaintenancePlanned")["status"] == "False")
        not_before = rig.announce(25)
        eventually(lambda: rig.pods == {"exporter", "mirror"}, within=24)
        rig.drained()
        assert "deletionTimestamp" not in rig.cluster.get(f"{PODS}/neighbour-{rig.name}")["metadata"]
        planned = rig.condition("MaintenancePlanned")
        assert (planned["status"], planned["reason"]) == ("True", "Reboot")
        written = not_before.strftime("%Y-%m-%dT%H:%M:%SZ")
        assert planned["message"] == f"Reboot {EVENT}, not before {written}, duration 5s"
        annotations = rig.node["metadata"]["annotations"]
        prefix = "scheduled-events-exporter/"
        assert {key.removeprefix(prefix): value for key, value in annotations.items()} == {
            "type": "Reboot",
            "event-id": EVENT,
            "not-before": written,
            "duration": "5s",
            "cordoned": EVENT,
        }
        assert rig.is_cordoned
        excluded = "node.kubernetes.io/exclude-from-external-load-balancers"
        assert excluded in rig.node["metadata"]["labels"]
        told = rig.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
        mine = {one["involvedObject"]["name"] for one in told if one["source"]["host"] == rig.name}
        assert mine == {f"{name}-{rig.name}" for name in ("bare", "late", "web")}
        eventually(lambda: rig.condition("Drained")["status"] == "True")
        assert rig.condition("Drained")["message"] == planned["message"]
        assert rig.condition("DrainInProgress")["status"] == "False"
        eventually(lambda: rig.vm.log("approved"))
        rig.vm.tell(event(status="Started", NotBefore=""))
        eventually(lambda: rig.condition("MaintenanceInProgress")["status"] == "True")
        assert rig.condition("MaintenancePlanned")["status"] == "False"
        assert rig.is_cordoned
        rig.vm.tell()
        eventually(lambda: not rig.is_cordoned)
        assert excluded not in rig.node["metadata"].get("labels", {})
        for kind in ("MaintenanceInProgress", "Drained"):
            eventually(partial(lambda kind: rig.condition(kind)["status"] == "False", kind))
        assert rig.node["metadata"].get("annotations", {}) == {}

        def reasons() -> set[str]:
            events = rig.cluster.get("/api/v1/namespaces/default/events")["items"]
            return {one["reason"] for one in events if one["involvedObject"]["name"] == rig.name}

        wanted = {f"ScheduledEvent{name}" for name in ("Scheduled", "Approved", "Started", "Completed")}
        eventually(lambda: reasons() == wanted)
        assert resident(process.pid, "VmHWM") < 160
    assert not rig.vm.log("degraded")


def test_what_is_left_at_not_before(rig: Rig) -> None:
    """With a budget that never lets go and a stuck finalizer the rest is evicted, and the drain fails."""
    rig.configure({"name": "drained", "action": "approve", "require_hooks": [DRAIN]})
    rig.controlled("web", labels={"ends": "late"})
    rig.controlled("guarded")
    rig.budget("guarded")
    rig.controlled("stuck", finalizers=["example.com/stuck"])
    with rig.running():
        not_before = rig.announce(20)
        eventually(lambda: rig.pods == {"exporter", "mirror", "guarded", "stuck"}, within=19.5)
        stuck = rig.cluster.get(f"{PODS}/stuck-{rig.name}")["metadata"]["deletionTimestamp"]
        assert datetime.fromisoformat(stuck) < not_before
        rig.until(not_before, -1.2)
        assert rig.vm.count(DRAIN, "failed") == 0
        rig.drained("failed", within=4)
        assert not_before - timedelta(seconds=15) < datetime.now(UTC) < not_before + timedelta(seconds=3)
        (ended,) = rig.vm.log("drain ended")
        assert "2 pods are left: monitoring/guarded" in ended["reason"]
        assert "disruption budget" in ended["reason"]
        assert f"monitoring/stuck-{rig.name} (terminating)" in ended["reason"]
        rig.allow("guarded")
        time.sleep(6)
        assert "guarded" in rig.pods
        asked = rig.evictions()
        assert len(asked) > 4
        assert max(asked) < not_before
        assert not rig.vm.log("approved")
    rig.cluster.ask("PATCH", f"{PODS}/stuck-{rig.name}", {"metadata": {"finalizers": None}})


def test_a_budget_until_delete_before(rig: Rig) -> None:
    """A missing right is reported before any event; the chart gives it for the Node's own pods, in time."""
    rig.configure(delete_before="10s")
    rig.controlled("guarded", labels={"ends": "late"})
    rig.budget("guarded")
    with_right = [f"{one},drain.deleteBefore=10s" if "drain." in one else one for one in CHART_SETTINGS]
    try:
        with rig.running():
            degraded = eventually(lambda: rig.vm.log("degraded"))
            assert [one["problem"] for one in degraded] == [
                "access: the service account lacks the rights: delete pods; bind it to a role that has them"
            ]
            rig.cluster.helm("upgrade", *with_right)
            eventually(lambda: rig.vm.log("recovered"), within=90)
            foreign = rig.controlled("foreign", node=f"not-{rig.name}")["metadata"]["name"]
            with pytest.raises(AssertionError, match="only the node that"):
                rig.cluster.ask("DELETE", f"{PODS}/{foreign}", token=(rig.account / "token").read_text())
            not_before = rig.announce(25)
            eventually(lambda: rig.pods == {"exporter", "mirror"}, within=24)
            rig.drained(within=4)
            assert datetime.now(UTC) < not_before
        (deleted,) = rig.vm.log("pod deleted in spite of its disruption budget")
        at = datetime.fromisoformat(deleted["ts"])
        assert not_before - timedelta(seconds=11) < at < not_before - timedelta(seconds=4)
        assert len(rig.vm.log("degraded")) == 1
        told = rig.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
        mine = [one["reason"] for one in told if one["source"]["host"] == rig.name]
        assert mine == ["ScheduledEventDeletion"]
    finally:
        rig.cluster.helm("upgrade", *CHART_SETTINGS)


def test_a_preemption_of_two_hundred_pods(rig: Rig) -> None:
    """Within 30 s all are gone, with grace periods that end before NotBefore, in less than 160 MiB."""
    for number in range(200):
        rig.controlled(f"web-{number}", labels={"ends": "late" if number < 5 else "soon"})
    with rig.running() as process:
        not_before = rig.announce(30, EventType="Preempt")
        eventually(lambda: rig.pods == {"exporter", "mirror"}, within=29, every=0.5)
        rig.drained(within=5)
        assert datetime.now(UTC) < not_before
        assert len(rig.evictions()) == 200
        assert resident(process.pid, "VmHWM") < 160


@pytest.mark.parametrize("when", ["before", "during"])
def test_an_administrator_who_cordons(rig: Rig, when: str) -> None:
    """The cordon stays after the event, whether it was there before or replaced ours."""
    if when == "before":
        rig.patch(spec={"unschedulable": True})
    with rig.running():
        rig.announce(60)
        eventually(lambda: rig.has_taint)
        if when == "during":
            rig.patch(spec={"unschedulable": None})
            rig.patch(spec={"unschedulable": True})
        rig.vm.tell()
        eventually(lambda: not rig.has_taint)
        assert rig.node["spec"]["unschedulable"]
        assert rig.node["metadata"].get("annotations", {}).keys() == set()


@pytest.mark.parametrize("loses", [False, True], ids=["kept state", "lost state"])
def test_kills(rig: Rig, loses: bool) -> None:
    """Killed at each step, also with its state lost, it continues where it was."""
    rig.controlled("guarded")
    rig.budget("guarded")
    rig.controlled("web")

    def killed() -> None:
        if loses:
            shutil.rmtree(rig.vm.folder / "state")

    with rig.running():
        rig.announce(100)
    killed()
    with rig.running():
        eventually(lambda: rig.is_cordoned)
    killed()
    with rig.running():
        eventually(lambda: "web" not in rig.pods)
    killed()
    rig.allow("guarded")
    with rig.running():
        rig.drained()
        assert rig.pods == {"exporter", "mirror"}
    killed()
    rig.vm.say()
    with rig.running():
        eventually(lambda: not rig.is_cordoned)
        eventually(lambda: rig.condition("MaintenancePlanned")["status"] == "False")


def test_two_exporters_at_once(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As in a rollout with a surge: both do the same, and nothing is reported twice."""
    for number in range(20):
        rig.controlled(f"web-{number}")
    with one_vm(tmp_path_factory.mktemp("second")) as second:
        twin = copy.copy(rig)
        twin.vm = second
        twin.configure()
        with rig.running(), twin.running():
            rig.announce(40)
            twin.announce(39)
            rig.drained()
            twin.drained()
            assert rig.is_cordoned
            rig.vm.tell()
            twin.vm.tell()
            eventually(lambda: not rig.is_cordoned)
    told = rig.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
    evicted = [one for one in told if one["source"]["host"] == rig.name]
    assert len(evicted) == 20


def test_selectors(kubernetes: Cluster) -> None:
    """The API server accepts those that a configuration may have, and no others."""
    for selector in VALID:
        kubernetes.get(PODS, labelSelector=selector)
    for selector in INVALID:
        with pytest.raises(AssertionError):
            kubernetes.get(PODS, labelSelector=selector)


def _condition(kind: str) -> dict[str, object]:
    return {"status": {"conditions": [{"type": kind, "status": "True"}]}}


def test_marks_that_are_no_longer_wanted(rig: Rig) -> None:
    """Without the drain, the chart's account may take them back, but set none."""
    rig.configure(exclude_from_load_balancers=True)
    with rig.running():
        rig.announce(600)
        eventually(lambda: rig.is_cordoned and rig.condition("MaintenancePlanned")["status"] == "True")
    without = [one.replace("drain.enabled=true", "drain.enabled=false") for one in CHART_SETTINGS]
    rig.cluster.helm("upgrade", *without)
    cordon = {"spec": {"unschedulable": True}}
    token = (rig.account / "token").read_text()
    try:
        settings = {"node": rig.name, "service_account": str(rig.account), "conditions": False}
        rig.vm.configure(kubernetes=settings)
        with rig.running():
            eventually(lambda: not rig.is_cordoned, within=60)
            for kind in ("MaintenancePlanned", "DrainInProgress", "Drained"):
                gone = partial(lambda kind: rig.condition(kind)["status"] is None, kind)
                eventually(gone, within=10)
        assert not any("exclude-from" in label for label in rig.node["metadata"]["labels"])

        def may_not_cordon() -> bool:
            try:
                rig.cluster.ask("PATCH", f"/api/v1/nodes/{rig.name}", cordon, token=token)
            except AssertionError as error:
                return "only the end of the cordon" in str(error)
            uncordoned = {"spec": {"unschedulable": None}}
            rig.cluster.ask("PATCH", f"/api/v1/nodes/{rig.name}", uncordoned, token=token)
            return False

        # The API server takes a moment to see the new policy.
        eventually(may_not_cordon, within=60)
        status = f"/api/v1/nodes/{rig.name}/status"
        for kind in ("DrainInProgress", "Drained"):
            with pytest.raises(AssertionError, match="only conditions of the node that the exporter sets"):
                rig.cluster.ask("PATCH", status, _condition(kind), token=token)
        rig.cluster.ask("PATCH", status, _condition("MaintenancePlanned"), token=token)
    finally:
        rig.cluster.helm("upgrade", *CHART_SETTINGS)
        # Again, for the tests after this one.
        allowed = partial(rig.cluster.ask, "PATCH", f"/api/v1/nodes/{rig.name}", cordon, token=token)
        eventually(allowed, within=60)


@pytest.mark.parametrize(
    ("method", "path", "content", "why"),
    [
        ("PATCH", "/api/v1/nodes/other", {"spec": {"unschedulable": True}}, "only the node that"),
        ("PATCH", "/api/v1/nodes/{}", {"metadata": {"labels": {"a": "b"}}}, "no label"),
        (
            "PATCH",
            "/api/v1/nodes/{}",
            {"metadata": {"annotations": {"a": "b"}}},
            "only annotations of the node",
        ),
        ("PATCH", "/api/v1/nodes/{}/status", {"metadata": {"annotations": {"a": "b"}}}, "only annotations"),
        (
            "PATCH",
            "/api/v1/nodes/{}",
            {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
            "only the cordon",
        ),
        (
            "PATCH",
            "/api/v1/nodes/{}",
            {"spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}},
            "only the cordon",
        ),
        ("PATCH", "/api/v1/nodes/{}/status", {"status": {"phase": "Running"}}, "only conditions"),
        ("PATCH", "/api/v1/nodes/{}/status", {"status": {"volumesInUse": ["a"]}}, "only conditions"),
        ("PATCH", "/api/v1/nodes/{}/status", {"status": {"capacity": {"cpu": "1"}}}, "only conditions"),
        (
            "PATCH",
            "/api/v1/nodes/{}/status",
            {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
            "only conditions of the node that the exporter sets",
        ),
        ("DELETE", "/api/v1/nodes/{}", None, "cannot delete"),
        ("DELETE", f"{PODS}/exporter-{{}}", None, "cannot delete"),
        ("GET", "/api/v1/secrets", None, "cannot list"),
    ],
)
def test_what_the_token_cannot_do(
    rig: Rig, method: str, path: str, content: dict[str, object], why: str
) -> None:
    """Neither another Node, nor anything else of its own, nor anything else at all."""
    if path.endswith("other"):
        rig.cluster.create("/api/v1/nodes", "Node", {"metadata": {"name": "other"}})
    token = (rig.account / "token").read_text()
    with pytest.raises(AssertionError, match=why):
        rig.cluster.ask(method, path.format(rig.name), content, token=token)
