"""A small API server with one Node, for tests of the whole program with a clock that is moved by hand."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import trustme

from exporter.clock import Clock, SystemClock
from tests.http_server import Connection, Request, Respond, answer, serving
from tests.imds.test_client_hostile import tls

NODE = "vmss000046"
TOKEN = "token-1"


def owned(kind: str) -> dict[str, Any]:
    return {"ownerReferences": [{"kind": kind, "name": "it", "controller": True}]}


class Api:
    """The Node, its pods, and what was asked; a call in ``refused`` gets that status."""

    def __init__(self) -> None:
        # That of the bench, once there is one.
        self.clock: Clock = SystemClock()
        self.node: dict[str, Any] = {
            "metadata": {"name": NODE, "uid": "u", "resourceVersion": "1"},
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        self.pods: dict[str, dict[str, Any]] = {}
        self.events: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.graces: dict[str, int | None] = {}
        self.refused: dict[str, int] = {}
        # The calls that the service account has no right to, as far as reviews of its access tell.
        self.lacked: set[str] = set()
        self.reviewed: list[str] = []
        self.protected: set[str] = set()
        self.down = False
        # Called after the Node was read, as others change it at any time.
        self.meanwhile: Callable[[], None] = lambda: None
        # Called when an eviction is asked for.
        self.evicting: Callable[[], None] = lambda: None
        # How many pods a page has at most, and how many were asked for; and whether the list has no end.
        self.page = 1
        self.limits: list[int] = []
        self.endless = False

    def pod(
        self, name: str, kind: str = "ReplicaSet", grace: int = 30, size: int = 0, **metadata: Any
    ) -> None:
        """Create a pod whose JSON has about ``size`` bytes, as variables and the fields of their manager."""
        meta = {"name": name, "namespace": "default", "uid": name} | (owned(kind) if kind else {}) | metadata
        spec: dict[str, Any] = {"terminationGracePeriodSeconds": grace}
        if size:
            names = [f"A{number}" for number in range(size // 63)]
            spec["containers"] = [{"name": "it", "env": [{"name": name} for name in names]}]
            fields: dict[str, Any] = {f'k:{{"name":"{name}"}}': {"f:name": {}} for name in names}
            meta["managedFields"] = [{"manager": "kubectl", "fieldsV1": {"f:spec": fields}}]
        self.pods[name] = {"metadata": meta, "spec": spec, "status": {}}

    def end(self) -> None:
        """End the pods that terminate, as the kubelet does."""
        self.pods = {n: p for n, p in self.pods.items() if "deletionTimestamp" not in p["metadata"]}

    def annotations(self) -> dict[str, str]:
        found = self.node["metadata"].get("annotations", {})
        return {key.removeprefix("scheduled-events-exporter/"): value for key, value in found.items()}

    def taints(self) -> dict[str, str]:
        return {taint["key"]: taint.get("value", "") for taint in self.node["spec"].get("taints") or []}

    def condition(self, kind: str) -> tuple[str, str, str] | None:
        for one in self.node["status"]["conditions"]:
            if one["type"] == kind:
                return one["status"], one["reason"], one["message"]
        return None

    def answer(
        self, method: str, path: str, query: Mapping[str, list[str]], content: Any, accept: str = ""
    ) -> tuple[int, Any]:
        parts = path.split("/")[3:]
        if parts[0] == "nodes":
            call = ("get" if method == "GET" else "patch") + " nodes" + ("/status" if parts[2:] else "")
        elif method == "GET":
            call = "list pods"
        elif method == "DELETE":
            call = "delete pods"
        else:
            call = f"create {'pods/eviction' if parts[-1] == 'eviction' else parts[-1]}"
        self.calls.append(call)
        if call in self.refused:
            return self.refused[call], {"message": f"cannot {call}"}
        if parts[0] == "nodes" and parts[1] != NODE:
            return 404, {"message": f"{parts[1]} not found"}
        if call == "get nodes":
            found = json.loads(json.dumps(self.node))
            self.meanwhile()
            return 200, found
        if call.startswith("patch"):
            return self._patch(call, content)
        if call == "list pods":
            assert query["fieldSelector"] == [f"spec.nodeName={NODE}"]
            selector = query.get("labelSelector", [""])[0]
            return 200, self._listed(
                int(query["limit"][0]), query.get("continue", ["0"])[0], accept, selector
            )
        return self._write(call, parts, content)

    def _review(self, asked: Mapping[str, str]) -> tuple[int, Any]:
        resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        where = f" in {asked['namespace']}" if asked["namespace"] else ""
        call = f"{asked['verb']} {resource}{where}"
        self.reviewed.append(call)
        return 201, {"status": {"allowed": call not in self.lacked}}

    def _listed(self, limit: int, token: str, accept: str, selector: str) -> dict[str, Any]:
        """Return a page; of selectors only the names of labels are known here."""
        self.limits.append(limit)
        labels = {name: pod["metadata"].get("labels", {}) for name, pod in self.pods.items()}
        first, names = int(token), sorted(n for n in self.pods if not selector or selector in labels[n])
        after = first + min(limit, self.page)
        more = {"continue": str(after)} if after < len(names) or self.endless else {}
        found = [self.pods[name] for name in names[first:after]]
        if "as=PartialObjectMetadataList" in accept:
            found = [{"metadata": pod["metadata"]} for pod in found]
        return {"metadata": more, "items": found}

    def _patch(self, call: str, content: Any) -> tuple[int, Any]:
        if call == "patch nodes/status":
            known = {one["type"]: one for one in self.node["status"]["conditions"]}
            known |= {one["type"]: one for one in content["status"]["conditions"]}
            left = [one for one in known.values() if one.get("$patch") != "delete"]
            self.node["status"]["conditions"] = left
            return 200, self.node
        version = self.node["metadata"]["resourceVersion"]
        if content["metadata"].pop("resourceVersion") != version:
            return 409, {"message": "the object has been modified"}
        _merge(self.node, content)
        self.node["metadata"]["resourceVersion"] = str(int(version) + 1)
        return 200, self.node

    def _write(self, call: str, parts: list[str], content: Any) -> tuple[int, Any]:
        if call == "create events":
            return self._create_event(content)
        if call == "create selfsubjectaccessreviews":
            return self._review(content["spec"]["resourceAttributes"])
        return self._remove(call, parts[3], content.get("deleteOptions", content))

    def _create_event(self, content: Any) -> tuple[int, Any]:
        name = content["metadata"]["name"]
        if name in self.events:
            return 409, {"message": "already exists"}
        self.events[name] = content
        return 201, content

    def _remove(self, call: str, name: str, options: Any) -> tuple[int, Any]:
        self.evicting()
        if name not in self.pods or options["preconditions"]["uid"] != name:
            return 404, {"message": "not found"}
        if name in self.protected and call != "delete pods":
            return 429, {"message": "Cannot evict pod as it would violate the pod's disruption budget."}
        own = self.pods[name]["spec"]["terminationGracePeriodSeconds"]
        self.graces[name] = options.get("gracePeriodSeconds")
        ends = self.clock.now() + timedelta(seconds=self.graces[name] or own)
        self.pods[name]["metadata"]["deletionTimestamp"] = f"{ends:%Y-%m-%dT%H:%M:%SZ}"
        return 201, {"status": "Success"}

    def deletion(self, name: str) -> datetime:
        return datetime.fromisoformat(self.pods[name]["metadata"]["deletionTimestamp"])


def _merge(target: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """Apply a merge patch (RFC 7386)."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


@contextlib.contextmanager
def served(api: Api, folder: Path) -> Iterator[dict[str, str]]:
    """Serve it; return the variables of a pod, with a service account in the folder."""

    def respond(connection: Connection, request: Request) -> None:
        if api.down:
            connection.hang_up()
            return
        url = urlsplit(request.path)
        assert request.headers["authorization"] == f"Bearer {(folder / 'token').read_text()}"
        content = request.json if request.body else None
        accept = request.headers["accept"]
        status, found = api.answer(request.method, url.path, parse_qs(url.query), content, accept)
        connection.send(answer(msgspec.json.encode(found), f"{status} Status"))

    with cluster_of(respond, folder) as variables:
        yield variables


@contextlib.contextmanager
def cluster_of(respond: Respond, folder: Path) -> Iterator[dict[str, str]]:
    """Serve an API by TLS; return the variables of a pod, with a service account in the folder."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.crt")
    (folder / "token").write_text(TOKEN)
    with serving(respond, tls(authority)) as server:
        yield {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
