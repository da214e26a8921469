"""One way out for spans: a bounded queue and a thread of its own, so that no receiver holds anything up."""

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from exporter.clock import Clock
from exporter.health import Health, Trouble
from exporter.retry import delay_after
from exporter.tracing.outlets import Outlet, Sent
from exporter.tracing.spans import Span

log = logging.getLogger(__name__)

# The spans of some hundred events; the oldest go first where a receiver is down for longer.
CAPACITY = 2048
_BATCH = 512


class Counts(Protocol):
    """What is needed of `exporter.metrics.Metrics`."""

    def spans_exported(self, count: int) -> None:
        """Count spans that a receiver took."""
        ...

    def spans_dropped(self, count: int) -> None:
        """Count spans that no receiver will get."""
        ...


class Pipeline:
    """Sends spans in their order through an `Outlet`, which is opened and used by its own thread alone."""

    def __init__(  # it is built in one place, by names
        self,
        name: str,
        open_outlet: Callable[[], Outlet],
        *,
        counts: Counts,
        health: Health,
        clock: Clock,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        self._open = open_outlet
        self._counts = counts
        self._health = health
        self._clock = clock
        self._chance = chance
        self._lock = threading.Lock()
        self._waiting: deque[Span] = deque()
        self._batch: Sequence[Span] = ()
        # So many more are tried one by one, to find which of them it is that is not taken.
        self._suspects = 0
        self._failures = 0
        self._failing_since = 0.0
        self._try_at = 0.0
        self._wake = threading.Event()
        self._stopping = False
        # From then on all that was left is counted, and a try that hangs still has no say.
        self._ended = False
        # A receiver may keep a try waiting; the end of the process must not.
        self._thread = threading.Thread(target=self._run, name=f"traces to {name}", daemon=True)
        self._thread.start()

    def put(self, spans: Iterable[Span]) -> None:
        """Have spans sent; never waits."""
        with self._lock:
            self._waiting.extend(spans)
            lost = max(len(self._waiting) - (0 if self._ended else CAPACITY), 0)
            for _ in range(lost):
                self._waiting.popleft()
        self._drop(lost)
        self._wake.set()

    def stop(self, timeout: float) -> bool:
        """Try once more to send what waits, and end within ``timeout`` seconds; tell whether it ended."""
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout)
        with self._lock:
            self._ended = True
            left = len(self._waiting) + len(self._batch)
            self._waiting.clear()
            self._batch = ()
        self._drop(left)
        if left:
            log.warning("spans not sent", extra={"exporter": self.name, "count": left})
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            outlet = self._open()
        except Exception as error:  # noqa: BLE001  # of the SDK's, over what it found in a variable
            with self._lock:
                self._report(f"cannot be set up: {error}")
            return
        while True:
            self._wake.clear()
            stopping = self._stopping
            delay = self._work(outlet, stopping=stopping)
            if stopping:
                break
            self._wake.wait(delay)
        outlet.close()

    def _work(self, outlet: Outlet, *, stopping: bool) -> float | None:
        """Send what is due; give the seconds until the next try, None where nothing waits."""
        while self._take():
            left = self._try_at - self._clock.monotonic()
            if left > 0 and not stopping:
                return left
            delay = self._try(outlet)
            if delay > 0:
                return delay
        return None

    def _take(self) -> bool:
        with self._lock:
            if not self._batch:
                most = 1 if self._suspects else _BATCH
                self._batch = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            return bool(self._batch)

    def _try(self, outlet: Outlet) -> float:
        begun = self._clock.monotonic()
        sent = self._send(outlet)
        with self._lock:
            return 0.0 if self._ended else self._heed(sent, begun)

    def _heed(self, sent: Sent, begun: float) -> float:
        """Draw the consequences of a try that began at ``begun``; give the seconds until the next one."""
        if not sent.problem:
            self._succeeded(sent.taken)
            return 0.0
        self._report(sent.problem)
        if sent.hopeless:
            self._give_up()
            return 0.0
        now = self._clock.monotonic()
        if not self._failures:
            self._failing_since = now
        self._failures += 1
        delay = delay_after(
            self._failures, failing_for=now - self._failing_since, took=now - begun, chance=self._chance()
        )
        self._try_at = now + delay
        return delay

    def _send(self, outlet: Outlet) -> Sent:
        try:
            return outlet.send(self._batch)
        except Exception as error:  # a thread that ended would not be missed by anybody
            log.debug("sending spans failed", exc_info=True)
            return Sent(problem=f"{type(error).__name__} in this program", hopeless=True)

    def _succeeded(self, taken: int) -> None:
        self._counts.spans_exported(taken)
        self._drop(len(self._batch) - taken)
        self._settled()
        self._health.clear(Trouble.TRACING_FAILING, self.name)

    def _give_up(self) -> None:
        """Let one span go that is not taken; of several, find out first which one it is."""
        if len(self._batch) > 1:
            self._waiting.extendleft(reversed(self._batch))
            self._suspects, self._batch = len(self._batch), ()
            return
        self._drop(1)
        self._settled()

    def _settled(self) -> None:
        self._suspects = max(self._suspects - len(self._batch), 0)
        self._batch = ()
        self._failures = 0
        self._try_at = 0.0

    def _drop(self, count: int) -> None:
        if count:
            self._counts.spans_dropped(count)

    def _report(self, problem: str) -> None:
        if not self._ended:
            self._health.report(Trouble.TRACING_FAILING, f"traces to {self.name}: {problem}", self.name)
