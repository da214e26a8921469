"""The metrics as text; the part that only a new document changes is kept from one scrape to the next."""

import gzip
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from exporter.clock import Clock

Encode = Callable[[Collector], bytes]

# Level 9, gzip's default, takes several times as long to save a few per cent more.
_LEVEL = 3
_RAW = -15  # deflate without a header, for zlib
_HEAD = gzip.compress(b"", mtime=0)[:10]
_END = b"# EOF\n"
_KEEP_SECONDS = 300.0


class _Deflated(NamedTuple):
    """A compressed text, to which more can be added."""

    data: bytes
    checksum: int
    size: int

    @classmethod
    def of(cls, text: bytes) -> "_Deflated":
        compress = zlib.compressobj(_LEVEL, wbits=_RAW)
        data = compress.compress(text) + compress.flush(zlib.Z_FULL_FLUSH)
        return cls(data, zlib.crc32(text), len(text))


class Text(NamedTuple):
    """A rendered text in two parts: one that may have been kept, and a fresh one."""

    kept: _Deflated
    fresh: bytes

    @property
    def size(self) -> int:
        """The number of bytes before compression."""
        return self.kept.size + len(self.fresh)

    def plain(self) -> bytes:
        return zlib.decompressobj(_RAW).decompress(self.kept.data) + self.fresh

    def gzipped(self) -> bytes:
        """Return the text, compressed by gzip; the part that was kept is not compressed again."""
        compress = zlib.compressobj(_LEVEL, wbits=_RAW)
        data = compress.compress(self.fresh) + compress.flush()
        tail = struct.pack("<LL", zlib.crc32(self.fresh, self.kept.checksum), self.size & 0xFFFFFFFF)
        return b"".join((_HEAD, self.kept.data, data, tail))


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
        self._kept: tuple[object, str, _Deflated] | None = None
        self._used = 0.0

    def text(self, encode: Encode, content_type: str, names: Sequence[str] = ()) -> Text:
        """Return all metrics, or those with these names, in the format that ``encode`` writes."""
        if names:
            restricted = encode(self._events.restricted_registry(names)).removesuffix(_END)
            return Text(_Deflated.of(restricted), encode(self._registry.restricted_registry(names)))
        self._used = self._clock.monotonic()
        kept, version = self._kept, self._version()
        if kept is None or kept[:2] != (version, content_type):
            self._kept = None  # Not both at the same time.
            events = encode(self._events).removesuffix(_END)
            self._kept = kept = version, content_type, _Deflated.of(events)
        return Text(kept[2], encode(self._registry))

    def tidy(self) -> None:
        """Forget the text if nobody has asked for five minutes."""
        if self._clock.monotonic() - self._used > _KEEP_SECONDS:
            self._kept = None
