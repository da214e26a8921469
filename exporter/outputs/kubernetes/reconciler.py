"""One comparison of the Node with what it should be, and the calls that make it so."""

import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus

from exporter.config.kubernetes import Kubernetes
from exporter.model.lifecycle import Life
from exporter.model.views import Views
from exporter.outputs.kubernetes import desired
from exporter.outputs.kubernetes.client import Client, KubernetesError, Node
from exporter.outputs.kubernetes.desired import Patch, Progress
from exporter.outputs.kubernetes.results import DrainResults

log = logging.getLogger(__name__)

# Between two comparisons, if nothing has happened; and until the first document.
COMPARE_SECONDS = 30.0
UNKNOWN_SECONDS = 1.0
_MOST_CONFLICTS = 5  # the Node's status changes often, and each change is a conflict with ours
_MOST_EVENTS = 10  # of Kubernetes Events of one step
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


class NodeReconciler:
    """Keeps the marks of one Node as they should be by one configuration; used by one thread.

    Without ``settings``, no configuration wants any: they are taken back, and then it ``is_done``, as it is
    where there is no such Node or it may not even be read. ``changed`` is called after a change of the Node.
    Nothing here waits for the drain, which is that of `Drainer`.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        settings: Kubernetes | None,
        results: DrainResults,
        views: Views,
        *,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.client = client
        self.name = name
        self.is_done = False
        self.node: Node | None = None  # as last read; None before
        self.progress: Progress | None = None  # set by the `Drainer`, if there is one; None before it knows
        self._is_leaving = settings is None
        self._settings = settings or Kubernetes(conditions=False)
        self._calls = results.calls()
        self._reviews = results.calls()
        # Those that the service account has not been seen to have.
        self._rights = [] if settings is None else desired.rights(name, settings)
        self._clock = results.clock
        self._views = views
        self._changed = changed
        self._told: set[str] = set()
        self._pretended: Patch = {}

    @property
    def cordoned(self) -> bool | None:
        return bool(self.node.spec.unschedulable) if self.node is not None else None

    def close(self) -> None:
        """Clear the problems; call it instead of any further step."""
        self._calls.close()
        self._reviews.close()

    def step(self) -> float:
        lives = [] if self._is_leaving else desired.own_lives(self._views.snapshot)
        if lives is None:
            return UNKNOWN_SECONDS
        self._calls.begin()
        try:
            delay = self._compare(lives)
        except KubernetesError as error:
            if self._is_leaving and error.status in _REFUSED:
                facts = {"node": self.name, "reason": str(error)}
                log.warning("cannot look for marks of an earlier configuration", extra=facts)
                self.is_done = True
            else:
                self._calls.report(error)
            return self._calls.end(COMPARE_SECONDS, complete=False)
        self._review()
        return self._calls.end(delay, complete=True)

    def _review(self) -> None:
        """Report the rights that are missing, before an event needs them."""
        try:
            self._rights = [right for right in self._rights if not self.client.may(right)]
        except KubernetesError as error:
            # Not a problem by itself: the calls show what is wrong.
            if error.status is None:
                return
            self._rights = []
        self._reviews.begin()
        if self._rights:
            calls = ", ".join(dict.fromkeys(right.call for right in self._rights))
            words = f"the service account lacks the rights: {calls}; bind it to a role that has them"
            self._reviews.report(KubernetesError("access", None, words))
        self._reviews.end(COMPARE_SECONDS, complete=True)

    def _compare(self, lives: Sequence[Life]) -> float:
        now, drain = self._clock.now(), self._settings.drain
        node = self._mark(lives)
        if self._settings.conditions:
            self._patch_status(node, self._conditions(node, lives))
            if not self._create_events(node, lives):
                return 0.0
        else:
            node = self._patch_status(node, desired.without_conditions(node))
            self.is_done = self._is_leaving and not desired.is_marked(node)
        begins = desired.next_begin(lives, node, drain, now) if drain.enabled else None
        until = (begins - self._clock.now()).total_seconds() if begins is not None else COMPARE_SECONDS
        return min(COMPARE_SECONDS, until)

    def _mark(self, lives: Sequence[Life]) -> Node:
        """Cordon or uncordon the Node and set its annotations, and return it."""
        for attempt in range(_MOST_CONFLICTS):
            node = self.node = self.client.node(self.name)
            wanted = desired.to_drain(lives, node, self._settings.drain, self._clock.now())
            cordon = self._cordon(node, wanted)
            patch = desired.merged(
                cordon, desired.annotations(node, lives if self._settings.conditions else ())
            )
            if not patch:
                break
            locked = desired.merged(patch, {"metadata": {"resourceVersion": node.metadata.resource_version}})
            try:
                node = self.node = self.client.patch_node(self.name, locked)
            except KubernetesError as error:
                if error.status == 409 and attempt + 1 < _MOST_CONFLICTS:
                    continue
                self._report(error)
            else:
                log.info("node changed", extra={"node": self.name, "changes": patch})
                self._changed()
            break
        return node

    def _cordon(self, node: Node, wanted: Sequence[Life]) -> Patch:
        drain = self._settings.drain
        if drain.mode != "dry_run":
            return desired.cordon(node, wanted, drain)
        # What another mode has marked is taken back.
        unmarked = desired.cordon(node, (), drain)
        patch = desired.cordon(node, wanted, drain) if wanted else {}
        if patch and patch != self._pretended:
            log.info("dry run: node would be changed", extra={"node": self.name, "changes": patch})
        self._pretended = patch
        return unmarked

    def _conditions(self, node: Node, lives: Sequence[Life]) -> Patch:
        drain, now = self._settings.drain, self._clock.now()
        progress = self.progress if drain.evicts else Progress.NONE
        drained = desired.to_drain(lives, node, drain, now)
        return desired.conditions(node, lives, drained, progress, now, has_drain=drain.enabled)

    def _patch_status(self, node: Node, patch: Patch) -> Node:
        if patch:
            try:
                return self.client.patch_node_status(self.name, patch)
            except KubernetesError as error:
                self._report(error)
        return node

    def _create_events(self, node: Node, lives: Sequence[Life]) -> bool:
        """Create Events about the Node; return False if it is to be compared again first."""
        snapshot = self._views.snapshot
        recent = list(desired.recent(snapshot, self._clock.now()))
        self._told.intersection_update(identity for identity, _, _ in recent)
        fresh = [entry for entry in reversed(recent) if entry[0] not in self._told]
        for identity, life, record in fresh[:_MOST_EVENTS]:
            if desired.own_lives(self._views.snapshot) != lives:
                return False
            try:
                self.client.create_event(desired.node_event(node, identity, life, record))
            except KubernetesError as error:
                # It exists already.
                if error.status != 409:
                    self._report(error)
                    return True
            self._told.add(identity)
        return True

    def _report(self, error: KubernetesError) -> None:
        """Report a refusal, or raise it if there was no answer, so that other calls would fail, too."""
        if error.status is None:
            raise error
        self._calls.report(error)
