"""The metrics as text; the part that only a new document changes is kept from one scrape to the next."""

import gzip
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from exporter.clock import Clock

Encode = Callable[[Collector], bytes]

# Level 9, gzip's default, takes several times as long to save a few per cent more.
_LEVEL = 3
_HEAD = gzip.compress(b"", mtime=0)[:10]
_END = b"# EOF\n"
_KEEP_SECONDS = 300.0


class Deflated(NamedTuple):
    """A text as deflate blocks (RFC 1951), with its checksum and its size before compression."""

    data: bytes = b""
    checksum: int = 0
    size: int = 0

    def more(self, texts: Iterable[bytes], *, end: bool = False) -> "Deflated":
        """Return this text with further ones; ``end`` completes it."""
        compress = zlib.compressobj(_LEVEL, wbits=-zlib.MAX_WBITS)
        data, checksum, size = [self.data], self.checksum, self.size
        for text in texts:
            data.append(compress.compress(text))
            checksum = zlib.crc32(text, checksum)
            size += len(text)
        data.append(compress.flush(zlib.Z_FINISH if end else zlib.Z_FULL_FLUSH))
        return Deflated(b"".join(data), checksum, size)

    def gzipped(self) -> bytes:
        """Return the complete text, compressed by gzip."""
        return b"".join((_HEAD, self.data, struct.pack("<LL", self.checksum, self.size & 0xFFFFFFFF)))


class _Family(NamedTuple):
    """A collector of one family."""

    family: Metric

    def collect(self) -> Iterable[Metric]:
        return (self.family,)


class Exposition:
    """Renders a registry, and ``events``, whose samples change only when the result of ``version`` does.

    `text` is for one thread at a time, `tidy` for any.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        clock: Clock,
        *,
        events: Collector | None = None,
        version: Callable[[], object] = tuple,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._events = CollectorRegistry()
        if events:
            self._events.register(events)
        self._version = version
        self._kept: tuple[object, str, Deflated] | None = None
        self._used = clock.monotonic()

    def text(self, encode: Encode, content_type: str, names: Sequence[str] = ()) -> Deflated:
        """Return all metrics, or those with these names, in the format that ``encode`` writes."""
        end = [encode(CollectorRegistry())]
        if names:
            restricted = (one.restricted_registry(names) for one in (self._events, self._registry))
            return Deflated().more(chain(*(_texts(encode, one) for one in restricted), end), end=True)
        self._used = self._clock.monotonic()
        kept, version = self._kept, self._version()
        if kept is None or kept[:2] != (version, content_type):
            self._kept = None  # Not both at the same time.
            events = Deflated().more(_texts(encode, self._events))
            self._kept = kept = version, content_type, events
        return kept[2].more(chain(_texts(encode, self._registry), end), end=True)

    def tidy(self) -> None:
        """Forget the text if nobody has asked for five minutes."""
        if self._clock.monotonic() - self._used > _KEEP_SECONDS:
            self._kept = None


def _texts(encode: Encode, collector: Collector) -> Iterator[bytes]:
    """Yield the text of each family; that of 10,000 events as a whole would take many MiB.

    Families of one name that follow each other become one.
    """
    name = ""
    for family in collector.collect():
        text = encode(_Family(family)).removesuffix(_END)
        while family.name == name and text.startswith(b"#"):
            text = text.partition(b"\n")[2]
        name = family.name
        yield text
