"""The drain: evicts the pods of the Node until none is left or NotBefore has passed."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import NamedTuple, TypeVar

from exporter.config.kubernetes import Drain
from exporter.model.jobs import HookOutcome
from exporter.model.lifecycle import Life
from exporter.model.views import Views
from exporter.model.wording import names
from exporter.outputs.kubernetes.client import (
    MOST_AT_ONCE,
    TIMEOUT_SECONDS,
    KubernetesError,
    Metadata,
    Node,
    Pod,
)
from exporter.outputs.kubernetes.desired import (
    Progress,
    deadline,
    drained_by_others,
    next_begin,
    own_lives,
    pod_event,
    to_drain,
)
from exporter.outputs.kubernetes.reconciler import COMPARE_SECONDS, UNKNOWN_SECONDS, NodeReconciler
from exporter.outputs.kubernetes.results import DrainResults, EvictionOutcome

log = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY_SECONDS = 5.0  # between two attempts to evict a pod that a PodDisruptionBudget protects
_LOOK_SECONDS = 2.0
_LAST_SECONDS = 1.0  # nothing is sent so shortly before the deadline that it might arrive after it
_MARGIN_SECONDS = 5.0  # so that pods that use up their grace period are seen to be gone before the deadline
# Of an eviction that a budget does not allow; the API supports no pod with several budgets.
_BY_BUDGET = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.INTERNAL_SERVER_ERROR)
_UNKNOWN_GRACE_SECONDS = 30  # the API server's default
_MOST_LOGGED = 50
_MOST_SHOWN = 5


class Selection(NamedTuple):
    """The pods to evict, those that are terminating, and those that nothing would replace and that stay."""

    evictable: tuple[Pod, ...] = ()
    terminating: tuple[Pod, ...] = ()
    kept: tuple[Pod, ...] = ()


class _Removed(NamedTuple):
    """A pod that was evicted, or deleted."""

    pod: Pod
    deleted: bool


class Drainer:
    """Drains the Node of a `NodeReconciler`; used by one thread, except for `doing` and `stop`.

    The newest snapshot decides about each request: an event may be cancelled, postponed or start at any time.
    ``changed`` is called after the reconciler's ``progress`` has changed.
    """

    def __init__(
        self,
        reconciler: NodeReconciler,
        settings: Drain,
        results: DrainResults,
        views: Views,
        *,
        changed: Callable[[], None],
    ) -> None:
        self._client = reconciler.client
        self._name = reconciler.name
        self._reconciler = reconciler
        self._settings = settings
        self._results = results
        self._calls = results.calls()
        self._clock = results.clock
        self._views = views
        self._changed = changed
        self._pod = "selected pod" if settings.pod_selector else "pod"
        self._node: Node | None = None  # as last read; None before
        self._begun: dict[str, datetime] = {}
        # Why pods are still there, and the pods that an Event or a log line is about, by their UIDs.
        self._reasons: dict[str, str] = {}
        self._noted: set[str] = set()
        self._fresh: list[_Removed] = []
        self._halted = False
        self._stopping = False
        self.doing = ""

    def stop(self) -> None:
        """Send no more evictions; safe from any thread."""
        self._stopping = True

    def close(self) -> None:
        """Clear the problems; call it instead of any further step."""
        self._calls.close()

    def step(self) -> float:
        """Evict the pods that can be, and record outcomes; return the seconds until the next step."""
        self._calls.begin()
        lives = own_lives(self._views.snapshot)
        if lives is None:
            return UNKNOWN_SECONDS
        if not lives:
            self._forget()
            return self._calls.end(COMPARE_SECONDS, complete=True)
        try:
            self._node = self._client.node(self._name)
        except KubernetesError as error:
            self._calls.report(error)
            self._miss(str(error))
            return self._calls.end(COMPARE_SECONDS, complete=False)
        wanted = self._wanted()
        delay, complete = None, True
        if wanted:
            delay, complete = self._drain(wanted, self._node)
        else:
            self._forget()
            self._results.withdraw(lives)
        begins = next_begin(lives, self._node, self._settings, self._clock.now())
        until = (begins - self._clock.now()).total_seconds() if begins is not None else COMPARE_SECONDS
        delay = min(COMPARE_SECONDS, until, COMPARE_SECONDS if delay is None else delay)
        return self._calls.end(delay, complete=complete)

    def _forget(self) -> None:
        """Forget the last drain, if there is none now."""
        # The reconciler sees by itself that there is none, so that it is not woken.
        self._reconciler.progress = Progress.NONE
        self._begun, self._reasons, self._noted, self._fresh, self.doing = {}, {}, set(), [], ""
        self._client.forget()

    def _proceed(self, progress: Progress) -> None:
        if self._reconciler.progress is not progress:
            self._reconciler.progress = progress
            self._changed()

    def _miss(self, reason: str) -> None:
        """Record that the drain cannot go on because a request to the API server failed."""
        self._node = self._node or self._reconciler.node
        if self._node is None and self._settings.skip_node_labels:
            return
        wanted = self._wanted()
        self._record_begin(wanted)
        if _pending(wanted, self._clock.now()):
            self.doing = reason
        self._conclude()

    def _wanted(self) -> list[Life]:
        """Return the events that the Node is to be drained for, by the newest snapshot."""
        lives = own_lives(self._views.snapshot)
        node = self._node or Node(Metadata(self._name))
        return to_drain(lives or (), node, self._settings, self._clock.now())

    def _record_begin(self, wanted: Iterable[Life]) -> None:
        """Record since when the Node is drained for each event."""
        now = self._clock.now()
        self._begun = {life.key: self._begun.get(life.key, now) for life in wanted}

    def _conclude(self) -> None:
        """Record that the drain failed for events whose deadline has passed."""
        for life in self._wanted() if self._settings.evicts else ():
            begun, until = self._begun.get(life.key), deadline(life)
            # What began after the deadline, such as after a restart, did not try.
            if begun is not None and until is not None and begun < until <= self._clock.now():
                self._results.record(life, HookOutcome.FAILED, begun, self.doing)

    def _drain(self, wanted: Sequence[Life], node: Node) -> tuple[float | None, bool]:
        """Return the seconds until the next look at the pods, if any, and whether this one saw them all."""
        self._record_begin(wanted)
        delay, complete = None, True
        if _pending(wanted, self._clock.now()):
            selection, error = self._select()
            complete = error is None
            delay = self._work_on(selection, error, node, wanted)
        elif self._reconciler.progress is None and self._results.has_succeeded(wanted):
            # A former process has seen that no pod is left.
            self._proceed(Progress.DRAINED)
        elif self._reconciler.progress is not Progress.DRAINED:
            self._proceed(Progress.NONE)
        self._conclude()
        return delay, complete

    def _select(self) -> tuple[Selection, KubernetesError | None]:
        """Return what is known of the pods, and the error that cut their list short."""
        pods: list[Pod] = []
        error: KubernetesError | None = None
        try:
            pods.extend(self._client.pods(self._name, self._settings.pod_selector))
        except KubernetesError as caught:
            self._calls.report(caught)
            error = caught
        return select(pods, self._settings, _until(_pending(self._wanted(), self._clock.now()))), error

    def _work_on(
        self, selection: Selection, error: KubernetesError | None, node: Node, lives: Sequence[Life]
    ) -> float | None:
        self._log_kept(selection.kept)
        others = drained_by_others(node)
        obstacle = f"waiting for the drain by the owner of the taint {others}" if others else ""
        if not (others or node.spec.unschedulable or self._settings.mode == "dry_run"):
            obstacle = "waiting until the Node is cordoned"
        is_drained = not (selection.evictable or selection.terminating or error)
        if self._settings.evicts and is_drained:
            self._proceed(Progress.DRAINED)
        else:
            works = self._settings.evicts and not obstacle
            self._proceed(Progress.DRAINING if works else Progress.NONE)
        if self._settings.mode == "dry_run":
            self._pretend(selection.evictable)
        elif not obstacle:
            self._evict_all(selection.evictable, lives)
        if error is not None:
            obstacle = "; ".join(filter(None, [obstacle, str(error)]))
        self.doing = self._describe(selection, obstacle, is_whole=error is None)
        if is_drained:
            reason = f"no {self._pod} is left"
            for life in _pending(self._wanted(), self._clock.now()) if self._settings.evicts else ():
                if life.key in self._begun:
                    begun = self._begun[life.key]
                    self._results.record(life, HookOutcome.SUCCEEDED, begun, reason)
            return None
        refused = any(self._reasons.get(pod.uid) for pod in selection.evictable)
        return self._pause(_RETRY_SECONDS if refused or error else _LOOK_SECONDS)

    def _pause(self, pause: float) -> float:
        """Return the seconds until the next look: the last one is just before the deadline."""
        left = self._left(self._wanted())
        if left is None:
            return pause
        if (until := left - self._settings.delete_before) > 0:
            pause = min(pause, until)
        return min(pause, left - _LAST_SECONDS) if left > _LAST_SECONDS else _LAST_SECONDS

    def _left(self, wanted: Iterable[Life]) -> float | None:
        """Return the seconds until the next deadline; None if there is none."""
        now = self._clock.now()
        until = _until(_pending(wanted, now))
        return None if until is None else (until - now).total_seconds()

    def _may_send(self, wanted: Sequence[Life], left: float | None) -> bool:
        is_late = left is not None and left <= _LAST_SECONDS
        return bool(_pending(wanted, self._clock.now())) and not (self._stopping or self._halted or is_late)

    def _evict_all(self, pods: Iterable[Pod], lives: Sequence[Life]) -> None:
        self._halted, self._fresh = False, []
        _in_parallel(self._evict, pods)
        # After all evictions, as every second may count for those.
        at = self._clock.now()
        events = [pod_event(pod, self._name, lives, at, deleted=deleted) for pod, deleted in self._fresh]
        _in_parallel(self._create_event, events)

    def _evict(self, pod: Pod) -> None:
        wanted = self._wanted()
        left = self._left(wanted)
        if not self._may_send(wanted, left):
            return
        period = grace(pod, self._settings, left)
        timeout = min(TIMEOUT_SECONDS, left or TIMEOUT_SECONDS)
        try:
            self._client.evict(pod, period, timeout)
        except KubernetesError as error:
            if error.status in (404, 409):
                return
            self._refused(pod, error)
            if error.status in _BY_BUDGET:
                self._delete(pod)
        else:
            self._removed(pod, period, deleted=False)

    def _delete(self, pod: Pod) -> None:
        """Delete a pod that a budget keeps, once `delete_before` says so."""
        wanted = self._wanted()
        left = self._left(wanted)
        if left is None or left > self._settings.delete_before or not self._may_send(wanted, left):
            return
        period = grace(pod, self._settings, left)
        try:
            self._client.delete(pod, period, min(TIMEOUT_SECONDS, left))
        except KubernetesError as error:
            if error.status not in (404, 409):
                self._refused(pod, error)
        else:
            self._removed(pod, period, deleted=True)

    def _removed(self, pod: Pod, period: int | None, *, deleted: bool) -> None:
        self._reasons.pop(pod.uid, None)
        self._results.evictions.count(EvictionOutcome.DELETED if deleted else EvictionOutcome.EVICTED)
        facts = {"pod": pod.full_name, "grace_seconds": pod.grace if period is None else period}
        if deleted:
            log.warning("pod deleted in spite of its disruption budget", extra=facts)
        else:
            log.info("pod evicted", extra=facts)
        if pod.uid not in self._noted:
            self._noted.add(pod.uid)
            self._fresh.append(_Removed(pod, deleted))

    def _refused(self, pod: Pod, error: KubernetesError) -> None:
        by_budget = error.status == 429
        self._results.evictions.count(EvictionOutcome.REFUSED if by_budget else EvictionOutcome.FAILED)
        if not by_budget:
            self._calls.report(error)
        # Without any answer, the others would wait for one, too.
        self._halted = self._halted or error.status is None
        reason = str(error).removeprefix(f"{error.call}: ")
        if self._reasons.get(pod.uid) != reason:
            log.warning("pod not evicted; trying again", extra={"pod": pod.full_name, "reason": reason})
        self._reasons[pod.uid] = reason

    def _create_event(self, event: dict[str, object]) -> None:
        wanted = self._wanted()
        # That of a pod which was evicted before the event was cancelled is still created.
        if self._stopping or (wanted and not self._may_send(wanted, self._left(wanted))):
            return
        try:
            self._client.create_event(event)
        except KubernetesError as error:
            self._halted = self._halted or error.status is None
            if error.status != 409:
                self._calls.report(error)

    def _pretend(self, pods: Iterable[Pod]) -> None:
        for pod in self._unnoted(pods):
            self._results.evictions.count(EvictionOutcome.DRY_RUN)
            log.info("dry run: pod would be evicted", extra={"pod": pod.full_name})

    def _log_kept(self, pods: Iterable[Pod]) -> None:
        if fresh := self._unnoted(pods):
            shown = names([pod.full_name for pod in fresh], _MOST_LOGGED)
            log.warning("pods without a controller are not evicted", extra={"pods": shown})

    def _unnoted(self, pods: Iterable[Pod]) -> list[Pod]:
        """Return the pods that this is called with for the first time."""
        fresh = [pod for pod in pods if pod.uid not in self._noted]
        self._noted.update(pod.uid for pod in fresh)
        return fresh

    def _describe(self, selection: Selection, obstacle: str, *, is_whole: bool) -> str:
        evicted = {pod.uid for pod, _ in self._fresh}
        reasons = {
            pod.full_name: "terminating" if pod.uid in evicted else self._reasons.get(pod.uid)
            for pod in selection.evictable
        } | {pod.full_name: "terminating" for pod in selection.terminating}
        left = [f"{name} ({reason})" if reason else name for name, reason in reasons.items()]
        number = f"1 {self._pod} is left" if len(left) == 1 else f"{len(left)} {self._pod}s are left"
        if not is_whole:
            number = f"at least {number}"
        parts = [f"{number}: {names(left, _MOST_SHOWN)}"] if left else []
        if is_whole and not left:
            parts.append(f"no {self._pod} is left")
        if selection.kept:
            kept = names([pod.full_name for pod in selection.kept], _MOST_SHOWN)
            parts.append(f"without a controller, not evicted: {kept}")
        return "; ".join([*parts, *filter(None, [obstacle])])


def _pending(lives: Iterable[Life], now: datetime) -> list[Life]:
    """Return the events whose deadline has not passed."""
    return [life for life in lives if (until := deadline(life)) is None or now < until]


def _until(lives: Iterable[Life]) -> datetime | None:
    """Return the first of their deadlines; None if there is none."""
    return min((at for life in lives if (at := deadline(life)) is not None), default=None)


def select(pods: Iterable[Pod], drain: Drain, until: datetime | None) -> Selection:
    """Sort the pods; one that terminates already, but would end later than ``until``, is evicted again."""
    evictable, terminating, kept = [], [], []
    for pod in pods:
        ends = pod.ends
        if pod.stays:
            continue
        if ends is not None and (until is None or ends <= until):
            terminating.append(pod)
        elif drain.force or pod.is_replaced or ends is not None:
            evictable.append(pod)
        else:
            kept.append(pod)
    return Selection(tuple(evictable), tuple(terminating), tuple(kept))


def grace(pod: Pod, drain: Drain, left: float | None) -> int | None:
    """Return the grace period in seconds, at most what is ``left``, if known; None for the pod's own."""
    usual = _UNKNOWN_GRACE_SECONDS if pod.grace is None else pod.grace
    seconds = int(drain.pod_grace_period) or usual
    if left is not None:
        # With 0 the API server forgets the pod while its containers still run.
        seconds = min(seconds, max(int(left - min(_MARGIN_SECONDS, left / 5)), 1))
    return None if seconds == pod.grace else seconds


def _in_parallel(work: Callable[[T], None], items: Iterable[T]) -> None:
    """Call ``work``, which raises nothing, for each item on a few threads."""
    waiting = deque(items)

    def run() -> None:
        while True:
            try:
                item = waiting.popleft()
            except IndexError:
                return
            work(item)

    # Unlike those of an executor, daemon threads do not keep the process from exiting.
    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(MOST_AT_ONCE, len(waiting)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
