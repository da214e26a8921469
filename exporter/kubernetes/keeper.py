"""One comparison of the Node with what it should be, and the calls that make it so."""

import logging
import math
from collections.abc import Mapping, Sequence

from exporter.config.kubernetes import Kubernetes
from exporter.kubernetes import desired, events
from exporter.kubernetes.client import Client
from exporter.kubernetes.desired import Patch
from exporter.kubernetes.drain import Drainer
from exporter.kubernetes.objects import KubernetesError, Metadata, Node
from exporter.kubernetes.reports import Reports
from exporter.model.lifecycle import Life
from exporter.model.views import NodeView, Snapshot
from exporter.work import Backoff

log = logging.getLogger(__name__)

_COMPARE_SECONDS = 30.0
_LONGEST_RETRY_SECONDS = 5.0
# Until the first document. Nothing is sent meanwhile.
_UNKNOWN_SECONDS = 1.0
# The Node's status changes often, and each change is a conflict with ours.
_MOST_CONFLICTS = 5
# Of Kubernetes Events of one step, so that they delay nothing else for long.
_MOST_EVENTS = 10


class Keeper:
    """Keeps one Node as it should be by one configuration; used by one thread, except for `view`."""

    def __init__(self, name: str, settings: Kubernetes, environ: Mapping[str, str], reports: Reports) -> None:
        self._name = name
        self._settings = settings
        self._reports = reports
        self._clock = reports.clock
        self._client = Client(settings.service_account, environ)
        self._drainer = Drainer(self._client, name, settings.drain, reports)
        # One Node and one server, so there is no jitter.
        self._backoff = Backoff(
            self._clock, early=math.inf, early_longest=_LONGEST_RETRY_SECONDS, chance=lambda: 0.0
        )
        self._told: set[str] = set()
        self._pretended: Patch = {}
        self._node: Node | None = None

    @property
    def view(self) -> NodeView:
        cordoned = bool(self._node.spec.unschedulable) if self._node is not None else None
        return NodeView(self._name, cordoned, self._drainer.doing)

    def stop(self) -> None:
        """Send no more evictions, and keep no connection; safe from any thread."""
        self._drainer.stopping = True
        self._client.close()

    def step(self, snapshot: Snapshot) -> float:
        lives = desired.own_lives(snapshot)
        if lives is None:
            return _UNKNOWN_SECONDS
        began = self._clock.monotonic()
        self._reports.begin()
        try:
            delay = self._compare(snapshot, lives)
            self._reports.end()
        except KubernetesError as error:
            self._reports.report(error)
            self._miss(lives, snapshot.instance or "", str(error))
            delay = _COMPARE_SECONDS
        if self._reports.is_failing:
            return min(delay, self._backoff.failed(self._clock.monotonic() - began))
        self._backoff.succeeded()
        return delay

    def _compare(self, snapshot: Snapshot, lives: Sequence[Life]) -> float:
        drain, now = self._settings.drain, self._clock.now()
        node, wanted = self._mark(lives)
        self._node = node
        delay = None
        if not wanted:
            self._drainer.forget()
            self._reports.withdraw(lives)
        elif drain.mode != "cordon":
            delay = self._drain(wanted, snapshot.instance or "", self._obstacle(node))
        if self._settings.conditions:
            patch = desired.conditions(node, lives, now)
            if patch:
                try:
                    self._client.patch_node_status(self._name, patch)
                except KubernetesError as error:
                    self._report(error)
            self._create_events(node, snapshot)
        begins = desired.next_begin(lives, node, drain, now) if drain.enabled else None
        until = (begins - self._clock.now()).total_seconds() if begins is not None else _COMPARE_SECONDS
        return min(_COMPARE_SECONDS, until, _COMPARE_SECONDS if delay is None else delay)

    def _drain(self, wanted: Sequence[Life], instance: str, obstacle: str) -> float | None:
        try:
            return self._drainer.step(wanted, instance, obstacle)
        except KubernetesError as error:
            self._report(error)
            self._drainer.miss(wanted, instance, str(error))
            return None

    def _miss(self, lives: Sequence[Life], instance: str, reason: str) -> None:
        """Take note that the API server could not be asked to do what should be done."""
        drain = self._settings.drain
        node = self._node or Node(Metadata(self._name))
        if drain.mode != "cordon" and (self._node is not None or not drain.skip_node_labels):
            wanted = desired.to_drain(lives, node, drain, self._clock.now())
            self._drainer.miss(wanted, instance, reason)

    def _obstacle(self, node: Node) -> str:
        """Return what has to happen before pods are evicted, or ""."""
        others = desired.drained_by_others(node)
        if others:
            return f"waiting for the drain by the owner of the taint {others}"
        cordoned = node.spec.unschedulable or self._settings.drain.mode == "dry_run"
        return "" if cordoned else "waiting until the Node is cordoned"

    def _mark(self, lives: Sequence[Life]) -> tuple[Node, list[Life]]:
        """Cordon or uncordon the Node and set its annotations; return it, and the events to drain it for."""
        for attempt in range(_MOST_CONFLICTS):
            node = self._client.node(self._name)
            wanted = desired.to_drain(lives, node, self._settings.drain, self._clock.now())
            cordon = self._cordon(node, wanted)
            patch = desired.merged(
                cordon, desired.annotations(node, lives if self._settings.conditions else ())
            )
            if not patch:
                break
            locked = desired.merged(patch, {"metadata": {"resourceVersion": node.metadata.resource_version}})
            try:
                node = self._client.patch_node(self._name, locked)
            except KubernetesError as error:
                if error.status == 409 and attempt + 1 < _MOST_CONFLICTS:
                    continue
                self._report(error)
            else:
                log.info("node changed", extra={"node": self._name, "changes": patch})
            break
        return node, wanted

    def _cordon(self, node: Node, wanted: Sequence[Life]) -> Patch:
        patch = desired.cordon(node, wanted, self._settings.drain)
        if self._settings.drain.mode != "dry_run":
            return patch
        if patch and patch != self._pretended:
            log.info("dry run: node would be changed", extra={"node": self._name, "changes": patch})
        self._pretended = patch
        return {}

    def _create_events(self, node: Node, snapshot: Snapshot) -> None:
        found = list(events.recent(snapshot, self._clock.now()))
        self._told.intersection_update(identity for identity, _, _ in found)
        fresh = [one for one in reversed(found) if one[0] not in self._told]
        for identity, life, record in fresh[:_MOST_EVENTS]:
            try:
                self._client.create_event(events.node_event(node, identity, life, record))
            except KubernetesError as error:
                # It exists already.
                if error.status != 409:
                    self._report(error)
                    return
            self._told.add(identity)

    def _report(self, error: KubernetesError) -> None:
        """Report a refusal, or raise it if there was no answer, so that other calls would fail, too."""
        if error.status is None:
            raise error
        self._reports.report(error)
