"""The calls of the Kubernetes API that the exporter needs, as the pod's service account.

Source: https://kubernetes.io/docs/reference/kubernetes-api/ and "Accessing the Kubernetes API from a Pod".
"""

import contextlib
import ssl
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from exporter import __version__
from exporter.config import PROGRAM
from exporter.errors import cause, one_line
from exporter.files import read_text
from exporter.kubernetes.objects import KubernetesError, Node, Pod, PodList
from exporter.transport import Request, Transport

T = TypeVar("T")

MOST_AT_ONCE = 10
# An attempt and the pause after it are at most 5 s together.
TIMEOUT_SECONDS = 4.0
# etcd stores at most 1.5 MiB for each object.
_LIMIT_BYTES = 32 * 1024 * 1024
_PODS_PER_PAGE = 20
_MOST_SHOWN_BYTES = 1000
_METHODS = {"get": "GET", "list": "GET", "patch": "PATCH", "create": "POST"}
_MERGE = "application/merge-patch+json"
_STRATEGIC_MERGE = "application/strategic-merge-patch+json"


class _Status(msgspec.Struct):
    message: str = ""


class Client:
    """Sends requests to the API server; safe to use from several threads."""

    def __init__(self, service_account: str, environ: Mapping[str, str]) -> None:
        """``service_account`` is the directory of ``token`` and ``ca.crt``, which may change at any time."""
        self._directory = Path(service_account)
        self._environ = environ

    def node(self, name: str) -> Node:
        """Return a Node; as all methods do, raise KubernetesError if there is no usable answer."""
        return self._ask("get nodes", f"/api/v1/nodes/{quote(name)}", Node)

    def patch_node(self, name: str, patch: Mapping[str, Any]) -> Node:
        """Change metadata and spec of a Node; with a ``resourceVersion`` only if it is still that one."""
        return self._ask("patch nodes", f"/api/v1/nodes/{quote(name)}", Node, patch, media_type=_MERGE)

    def patch_node_status(self, name: str, patch: Mapping[str, Any]) -> Node:
        """Change the status of a Node; conditions are merged by their type."""
        path = f"/api/v1/nodes/{quote(name)}/status"
        return self._ask("patch nodes/status", path, Node, patch, media_type=_STRATEGIC_MERGE)

    def pods(self, node: str) -> Iterator[Pod]:
        query = {"fieldSelector": f"spec.nodeName={node}", "limit": str(_PODS_PER_PAGE)}
        while True:
            page = self._ask("list pods", f"/api/v1/pods?{urlencode(query)}", PodList)
            yield from page.items
            if not page.metadata.following:
                return
            query["continue"] = page.metadata.following

    def evict(self, pod: Pod, grace: int | None, timeout: float) -> None:
        """Evict a pod, with its own grace period or that of ``grace`` seconds.

        The status of an error is 429 if a PodDisruptionBudget does not allow it now, 404 if the pod is gone,
        and 409 if there is another one of that name.
        """
        meta = pod.metadata
        options: dict[str, Any] = {"preconditions": {"uid": meta.uid}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": options,
        }
        path = f"/api/v1/namespaces/{quote(meta.namespace)}/pods/{quote(meta.name)}/eviction"
        self._ask("create pods/eviction", path, dict, eviction, timeout=timeout)

    def create_event(self, event: Mapping[str, Any]) -> None:
        """Create an Event; the status of an error is 409 if there is one of that name."""
        path = f"/api/v1/namespaces/{quote(event['metadata']['namespace'])}/events"
        self._ask("create events", path, dict, event)

    def close(self) -> None:
        """Close the connections: idle ones now, the others after use. Later requests open new ones."""
        with contextlib.suppress(ValueError):
            self._transport.close()

    def _ask(
        self,
        call: str,
        path: str,
        kind: type[T],
        content: Mapping[str, Any] | None = None,
        *,
        media_type: str = "application/json",
        timeout: float = TIMEOUT_SECONDS,
    ) -> T:
        try:
            method = _METHODS[call.partition(" ")[0]]
            request = self._prepared(method, path, content, media_type)
            status, body, _ = self._transport.send(request, timeout)
        except TimeoutError as error:
            raise KubernetesError(call, None, f"no answer within {timeout:g} s") from error
        except Exception as error:
            # Not a list of types: a malformed answer can cause any error in a parser.
            raise KubernetesError(call, None, cause(error)) from error
        try:
            if status < 300:
                return msgspec.json.decode(body, type=kind)
            reason = msgspec.json.decode(body, type=_Status).message
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if status < 300:
                raise KubernetesError(call, None, f"not a valid answer: {cause(error)}") from error
            reason = body[:_MOST_SHOWN_BYTES].decode(errors="replace")
        words = "forbidden: " if status == 403 else ""
        raise KubernetesError(call, status, f"status {status}: {words}{one_line(reason)}")

    def _prepared(
        self, method: str, path: str, content: Mapping[str, Any] | None, media_type: str
    ) -> Request:
        headers = {
            "Authorization": f"Bearer {self._read('token').strip()}",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"{PROGRAM}/{__version__}",
        }
        data = None
        if content is not None:
            headers["Content-Type"] = media_type
            path += f"?fieldManager={PROGRAM}"
            data = msgspec.json.encode(content)
        return Request(method, self._transport.endpoint + path, headers, data)

    @cached_property
    def _transport(self) -> Transport:
        host, port = (self._environ.get(f"KUBERNETES_SERVICE_{part}") for part in ("HOST", "PORT"))
        if not host or not port:
            raise ValueError("KUBERNETES_SERVICE_HOST and _PORT are not set; run the exporter in a pod")
        server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        return Transport(server, limit=_LIMIT_BYTES, tls=self._tls)

    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self._read("ca.crt"))

    def _read(self, name: str) -> str:
        path = self._directory / name
        try:
            return read_text(path)
        except (OSError, UnicodeDecodeError) as error:
            # Without a cause, as `cause` would show that alone.
            raise ValueError(f"{path} cannot be read: {cause(error)}; mount a service account") from None
