"""The calls of the Kubernetes API that the exporter needs, as the pod's service account.

Source: https://kubernetes.io/docs/reference/kubernetes-api/ and "Accessing the Kubernetes API from a Pod".
"""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec
import requests
import urllib3
from requests.adapters import HTTPAdapter

from exporter import __version__
from exporter.config import PROGRAM
from exporter.errors import cause, innermost, one_line
from exporter.files import read_text
from exporter.kubernetes.objects import KubernetesError, Node, Pod, PodList

T = TypeVar("T")

MOST_AT_ONCE = 10
# An attempt and the pause after it are at most 5 s together.
TIMEOUT_SECONDS = 4.0
# etcd stores at most 1.5 MiB for each object.
_LIMIT_BYTES = 32 * 1024 * 1024
_PODS_PER_PAGE = 20
_PIECE_BYTES = 65536
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
        self._session = requests.Session()
        # Neither a proxy nor ~/.netrc.
        self._session.trust_env = False
        self._session.mount("https://", HTTPAdapter(pool_maxsize=MOST_AT_ONCE))

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
        """Close idle connections; later requests open new ones, with the CA that is there then."""
        self._session.close()

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
            status, body = self._send(_METHODS[call.split(maxsplit=1)[0]], path, content, media_type, timeout)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            self.close()
            late = isinstance(innermost(error), TimeoutError)
            raise KubernetesError(
                call, None, f"no answer within {timeout:g} s" if late else cause(error)
            ) from error
        try:
            if status < 300:
                return msgspec.json.decode(body, type=kind)
            reason = msgspec.json.decode(body, type=_Status).message
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if status < 300:
                raise KubernetesError(call, None, f"not a valid answer: {cause(error)}") from error
            reason = body[:1000].decode(errors="replace")
        words = "forbidden: " if status == 403 else ""
        raise KubernetesError(call, status, f"status {status}: {words}{one_line(reason)}")

    def _send(
        self, method: str, path: str, content: Mapping[str, Any] | None, media_type: str, timeout: float
    ) -> tuple[int, bytes]:
        deadline = time.monotonic() + timeout
        headers = {
            "Authorization": f"Bearer {self._token()}",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"{PROGRAM}/{__version__}",
        }
        if content is not None:
            headers["Content-Type"] = media_type
            path += f"?fieldManager={PROGRAM}"
        with self._session.request(
            method,
            self._server() + path,
            data=None if content is None else msgspec.json.encode(content),
            headers=headers,
            verify=str(self._directory / "ca.crt"),
            allow_redirects=False,
            stream=True,
            # Documented by requests, but missing from its types.
            timeout=urllib3.Timeout(total=timeout),  # type: ignore[arg-type]
        ) as response:
            return response.status_code, _read(response, deadline)

    def _token(self) -> str:
        path = self._directory / "token"
        try:
            return read_text(path).strip()
        except (OSError, UnicodeDecodeError) as error:
            # Without a cause, as `cause` would show that alone.
            raise ValueError(f"{path} cannot be read: {cause(error)}; mount a service account") from None

    def _server(self) -> str:
        host, port = (self._environ.get(f"KUBERNETES_SERVICE_{part}") for part in ("HOST", "PORT"))
        if not host or not port:
            raise ValueError("KUBERNETES_SERVICE_HOST and _PORT are not set; run the exporter in a pod")
        return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _read(response: requests.Response, deadline: float) -> bytes:
    """Return the body, or raise TimeoutError after the ``deadline``, ValueError if it is too large."""
    body = bytearray()
    # Unlike iter_content(), read1() returns whatever has arrived, so that a slow body is detected.
    while piece := response.raw.read1(_PIECE_BYTES, decode_content=False):
        body += piece
        if len(body) > _LIMIT_BYTES:
            raise ValueError(f"the answer is over {_LIMIT_BYTES // 1024**2} MiB")
        if time.monotonic() > deadline:
            raise TimeoutError
    return bytes(body)
