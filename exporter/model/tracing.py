"""The ids of traces and spans, which follow from the facts.

All VMs that see an event share its trace. A span's id follows from the VM, the life and what the span
describes, so that it is the same after a restart, and children can refer to their parents. (W3C Trace
Context, "traceparent header": 16 bytes and 8 bytes, not all zero.)
"""

import hashlib
from collections.abc import Sequence

from exporter.model.events import trace_id
from exporter.model.lifecycle import Life
from exporter.model.views import Snapshot

_ROOT = "root"


def span_id(vm: str, life_key: str, what: Sequence[str]) -> str:
    """Return the id of a span below the root of a life, 16 hex digits; ``what`` identifies it there."""
    # A name from the command line may not be valid Unicode.
    facts = "\0".join((vm, life_key, *what)).encode(errors="surrogatepass")
    return hashlib.sha256(facts).hexdigest()[:16]


def root_id(vm: str, life_key: str) -> str:
    return span_id(vm, life_key, [_ROOT])


def is_sampled(event_id: str, share: float) -> bool:
    """Return whether an event's trace is one of a share of all: every VM decides alike.

    By the rule of the SDK's `TraceIdRatioBased`, which is what collectors expect of ``traceidratio``.
    """
    return int(trace_id(event_id)[16:], 16) < round(share * 2**64)


def traceparent(life: Life, what: Sequence[str], seen: Snapshot) -> str:
    """Return the W3C header for a child of a span below the root of a life; sampled if that is exported."""
    is_exported = seen.has_series(life) and is_sampled(life.ids[0], seen.sampled_share)
    parent = span_id(life.identity or seen.host, life.key, what)
    return f"00-{trace_id(life.ids[0])}-{parent}-{int(is_exported):02d}"
