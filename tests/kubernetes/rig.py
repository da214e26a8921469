"""A Node of a real API server with pods, a stand-in for its kubelet, and an exporter as the chart runs it."""

import contextlib
import json
import shutil
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from tests.end_to_end.program import eventually, free_port
from tests.end_to_end.vm import Vm, event
from tests.kubernetes.cluster import Cluster

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


class Proxy:
    """A way to the API server that can be closed (``refuse``) or lead nowhere (``hang``)."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.hangs = False
        self._target = target
        self._server: socketserver.ThreadingTCPServer | None = None
        self._open: set[socket.socket] = set()

    def open(self) -> None:
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                proxy._open.add(self.request)
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection(("127.0.0.1", proxy._target)) as far,
                ):
                    back = threading.Thread(target=_copy, args=(proxy, far, self.request), daemon=True)
                    back.start()
                    _copy(proxy, self.request, far)

        socketserver.ThreadingTCPServer.allow_reuse_address = True
        server = socketserver.ThreadingTCPServer(("127.0.0.1", self.port), Handler)
        server.daemon_threads = True
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def refuse(self) -> None:
        """Refuse connections, and end those that there are."""
        if self._server is not None:
            while self._open:
                with contextlib.suppress(OSError):
                    self._open.pop().shutdown(socket.SHUT_RDWR)
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def _copy(proxy: Proxy, source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            while proxy.hangs:
                time.sleep(0.05)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


class Rig:
    def __init__(self, cluster: Cluster, vm: Vm, node: str) -> None:
        self.cluster = cluster
        self.vm = vm
        self.name = node
        self.proxy = Proxy(cluster.port)
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
        self.proxy.open()
        reach = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.proxy.port)}
        try:
            with self.vm.running(**reach) as process:
                yield process
        finally:
            self.proxy.hangs = False
            self.proxy.refuse()

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
