"""Which pods are to be evicted, and with which grace periods: pure functions."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from exporter.config.kubernetes import Drain
from exporter.kubernetes.objects import Pod

# So that pods that use up their grace period are seen to be gone before the deadline.
_MARGIN_SECONDS = 5.0


class Selection(msgspec.Struct, frozen=True):
    """The pods to evict, those that are terminating, and those that nothing would replace and that stay."""

    evictable: tuple[Pod, ...] = ()
    terminating: tuple[Pod, ...] = ()
    kept: tuple[Pod, ...] = ()


def select(pods: Iterable[Pod], drain: Drain, until: datetime | None) -> Selection:
    """Sort the pods; one that terminates already, but would end later than ``until``, is evicted again."""
    evictable, terminating, kept = [], [], []
    for pod in pods:
        ends = pod.metadata.deletion_timestamp
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
    seconds = int(drain.pod_grace_period) or pod.grace
    if left is not None:
        # With 0 the API server forgets the pod while its containers still run.
        seconds = min(seconds, max(int(left - min(_MARGIN_SECONDS, left / 5)), 1))
    return None if seconds == pod.grace else seconds


def names(pods: Iterable[str], most: int = 5) -> str:
    found = list(pods)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more
