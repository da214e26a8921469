"""A real kube-apiserver on etcd, without kubelet and controllers, and the programs that talk to it."""

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.end_to_end.program import eventually, free_port

TOOLS = os.environ["TOOLS"]
TOKEN = "admin-of-the-test"
GROUPS = {"PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"}


class Cluster:
    """A running API server; ``kubeconfig`` is that of its administrator."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._server = f"https://127.0.0.1:{port}"
        self.kubeconfig = self.kubeconfig_of("admin", TOKEN)

    def kubeconfig_of(self, name: str, token: str) -> Path:
        """Write the configuration of a user with a token."""
        path = self._folder / f"{name}.kubeconfig"
        cluster = {"server": self._server, "insecure-skip-tls-verify": True}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": name}}],
            "current-context": "it",
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def kubectl(self, *arguments: str, kubeconfig: Path | None = None, given: str = "") -> str:
        """Run kubectl, and return what it prints."""
        command = [f"{TOOLS}/kubectl", "--kubeconfig", str(kubeconfig or self.kubeconfig), *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def helm(self, *arguments: str) -> str:
        """Run Helm, and return what it prints."""
        command = [f"{TOOLS}/helm", "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create or change objects."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--filename", "-", given=json.dumps(listed))

    def get(self, *arguments: str) -> Any:
        """Return objects from the server."""
        return json.loads(self.kubectl("get", *arguments, "--output", "json"))


@contextlib.contextmanager
def _process(*command: str, log: Path) -> Iterator[None]:
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    try:
        yield
    finally:
        # Nothing is to be kept, and the server would wait for its clients.
        process.kill()
        process.wait()


def _prepare(folder: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    (folder / "key.pem").write_bytes(key)
    (folder / "tokens").write_text(f"{TOKEN},admin,admin,system:masters\n")


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """Start it, with the kinds of the Prometheus operator, for the time of the block."""
    with tempfile.TemporaryDirectory() as name:
        folder, etcd, peer, port = Path(name), free_port(), free_port(), free_port()
        _prepare(folder)
        urls = f"http://127.0.0.1:{etcd}"
        storage = ["etcd", "--data-dir", f"{name}/etcd", "--unsafe-no-fsync"]
        storage += ["--listen-client-urls", urls, "--advertise-client-urls", urls]
        storage += ["--listen-peer-urls", f"http://127.0.0.1:{peer}"]
        server = [f"{TOOLS}/kube-apiserver", "--etcd-servers", urls]
        server += ["--bind-address", "127.0.0.1", "--secure-port", str(port), "--cert-dir", f"{name}/certs"]
        server += ["--token-auth-file", f"{name}/tokens", "--authorization-mode", "RBAC"]
        server += ["--service-account-issuer", "https://kubernetes.default.svc"]
        server += ["--service-account-key-file", f"{name}/key.pem"]
        server += ["--service-account-signing-key-file", f"{name}/key.pem"]
        server += [
            "--service-cluster-ip-range",
            "10.0.0.0/24",
            "--disable-admission-plugins",
            "ServiceAccount",
        ]
        with _process(*storage, log=folder / "etcd.log"), _process(*server, log=folder / "server.log"):
            found = Cluster(folder, port)
            try:
                eventually(lambda: found.kubectl("get", "--raw", "/readyz"), within=90, every=1)
            except AssertionError as error:
                raise AssertionError((folder / "server.log").read_text()[-3000:]) from error
            found.apply(*(_definition(kind, plural) for kind, plural in GROUPS.items()))
            yield found


def _definition(kind: str, plural: str) -> dict[str, Any]:
    """Return the definition of a resource of the Prometheus operator."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
