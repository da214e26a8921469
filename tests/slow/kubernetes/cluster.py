"""A real kube-apiserver on etcd, without kubelet and controllers, and Helm."""

import contextlib
import os
import subprocess
import tempfile
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import requests
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.end_to_end.program import eventually, free_port

TOOLS = os.environ.get("TOOLS", "")
TOKEN = "admin-of-the-test"
GROUPS = {
    "PodMonitor": "podmonitors",
    "ServiceMonitor": "servicemonitors",
    "PrometheusRule": "prometheusrules",
}


class Cluster:
    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.server = f"https://127.0.0.1:{port}"
        self.ca = folder / "certs" / "apiserver.crt"
        self._kubeconfig = folder / "admin.kubeconfig"
        reach = {"server": self.server, "insecure-skip-tls-verify": True}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": reach}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "admin"}}],
            "current-context": "it",
        }
        self._kubeconfig.write_text(yaml.safe_dump(content))

    def ask(
        self, method: str, path: str, content: Mapping[str, Any] | None = None, *, token: str = TOKEN
    ) -> Any:
        """Send a request, and return the answer; an error is an AssertionError with the server's message."""
        merge = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
        answer = requests.request(
            method,
            f"{self.server}{path}",
            json=content,
            headers={"Authorization": f"Bearer {token}"} | merge,
            verify=str(self.ca),
            timeout=30,
        )
        found = answer.json() if "json" in answer.headers.get("Content-Type", "") else answer.text
        assert answer.ok, found["message"] if isinstance(found, dict) else found
        return found

    def get(self, path: str, **query: str) -> Any:
        return self.ask("GET", f"{path}?{urllib.parse.urlencode(query)}")

    def create(self, path: str, kind: str, content: Mapping[str, Any]) -> Any:
        groups = {"PodDisruptionBudget": "policy/v1", "CustomResourceDefinition": "apiextensions.k8s.io/v1"}
        return self.ask("POST", path, {"apiVersion": groups.get(kind, "v1"), "kind": kind, **content})

    def helm(self, *arguments: str) -> str:
        command = [f"{TOOLS}/helm", "--kubeconfig", str(self._kubeconfig), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def token(self, namespace: str, account: str, pod: Mapping[str, Any]) -> str:
        """Return a token of a service account that is bound to a pod, as the kubelet mounts it."""
        reference = {
            "kind": "Pod",
            "apiVersion": "v1",
            **{key: pod["metadata"][key] for key in ("name", "uid")},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        spec = {"audiences": ["https://kubernetes.default.svc"], "boundObjectRef": reference}
        found: str = self.ask("POST", path, request | {"spec": spec})["status"]["token"]
        return found


@contextlib.contextmanager
def process(*command: str, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("a") as stream:
        started = subprocess.Popen(command, stdout=stream, stderr=stream)
    try:
        yield started
    finally:
        # Nothing is to be kept, and the server would wait for its clients.
        started.kill()
        started.wait()


def _prepare(folder: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    (folder / "key.pem").write_bytes(key)
    rule = {
        "level": "Metadata",
        "omitStages": ["RequestReceived"],
        "resources": [{"resources": ["pods/eviction"]}],
    }
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [rule]}
    (folder / "audit.yaml").write_text(yaml.safe_dump(policy))
    (folder / "tokens").write_text(f"{TOKEN},admin,admin,system:masters\n")


def _flags(folder: Path, port: int, storage: str) -> list[str]:
    return [
        *("--etcd-servers", storage, "--bind-address", "127.0.0.1", "--secure-port", str(port)),
        *("--cert-dir", f"{folder}/certs", "--token-auth-file", f"{folder}/tokens"),
        *("--authorization-mode", "RBAC", "--service-account-issuer", "https://kubernetes.default.svc"),
        *("--service-account-key-file", f"{folder}/key.pem"),
        *("--service-account-signing-key-file", f"{folder}/key.pem"),
        *("--audit-policy-file", f"{folder}/audit.yaml", "--audit-log-path", f"{folder}/audit.log"),
        *("--service-cluster-ip-range", "10.0.0.0/24", "--disable-admission-plugins", "ServiceAccount"),
    ]


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory() as name:
        folder, etcd, peer, port = Path(name), free_port(), free_port(), free_port()
        _prepare(folder)
        urls = f"http://127.0.0.1:{etcd}"
        storage = ["etcd", "--data-dir", f"{name}/etcd", "--unsafe-no-fsync"]
        storage += ["--listen-client-urls", urls, "--advertise-client-urls", urls]
        storage += ["--listen-peer-urls", f"http://127.0.0.1:{peer}"]
        server = [f"{TOOLS}/kube-apiserver", *_flags(folder, port, urls)]
        with process(*storage, log=folder / "etcd.log"), process(*server, log=folder / "server.log"):
            found = Cluster(folder, port)
            try:
                eventually(lambda: found.get("/readyz"), within=90, every=1)
            except AssertionError as error:
                raise AssertionError((folder / "server.log").read_text()[-3000:]) from error
            for kind, plural in GROUPS.items():
                path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
                found.create(path, "CustomResourceDefinition", _definition(kind, plural))
            yield found


def _definition(kind: str, plural: str) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything}}}
    return {
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
