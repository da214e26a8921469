"""Tests of `exporter.tracing`: a worker with the SDK's own exporter, against real receivers."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from exporter.health import Health
from exporter.model.jobs import Span
from exporter.state import Store
from exporter.tracing.worker import Worker
from exporter.work import Backoff
from tests.clocks import HandClock
from tests.end_to_end.program import eventually, free_port
from tests.notifications.receivers import Receiver, http_receiver
from tests.tracing.doubles import SpanTally
from tests.tracing.receiver import spans
from tests.tracing.test_export import SPAN, numbered, otlp


class Sending:
    """A worker with the SDK's exporter and everything around it."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.health = Health(self.clock)
        self.tally = SpanTally()
        self.store = Store.open(folder, health=self.health, clock=self.clock)
        self.store.spans.lanes = ("otlp",)
        self.worker = Worker(
            "otlp",
            "the receiver",
            otlp,
            spans=self.store.spans,
            knows_vm=lambda: True,
            metrics=self.tally,
            health=self.health,
            clock=self.clock,
            backoff=Backoff(self.clock, chance=lambda: 0.0),
        )
        self.worker.start()

    def put(self, found: Sequence[Span]) -> None:
        """Stage spans, and have them exported."""
        self.store.spans.stage(found)
        self.worker.wake()

    def end(self) -> None:
        """End the thread."""
        assert self.worker.stop(10)
        self.store.close()

    def wait_for(self, exported: int) -> None:
        """Wait until so many spans are exported, and no problem is left."""

        def look() -> bool:
            self.clock.pass_seconds(1)
            self.worker.wake()
            return self.tally.exported == exported and not self.health.problems()

        eventually(look)


def test_a_receiver_that_comes_up_late(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All spans arrive once when a receiver that was down is up."""
    port = free_port()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
    sending = Sending(tmp_path)
    sending.put(numbered(3))
    eventually(sending.health.problems)
    sending.put(numbered(5)[3:])
    with http_receiver(port=port) as receiver:
        sending.wait_for(5)
    assert sorted(span.name for span in spans(receiver)) == [f"span {n}" for n in range(5)]
    sending.end()


def test_a_receiver_that_refuses_one_span(receiver: Receiver, tmp_path: Path) -> None:
    """A span that is answered with 400 is dropped, and all others arrive once."""
    receiver.mood = lambda body: 400 if b"span 7" in body else 200
    sending = Sending(tmp_path)
    sending.put(numbered(20))
    sending.wait_for(19)
    assert sorted(span.name for span in spans(receiver)) == sorted(f"span {n}" for n in range(20) if n != 7)
    assert sending.tally.dropped == 1
    sending.end()


def test_a_stop_while_a_receiver_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stop ends in time, long before the export would."""
    asked = threading.Event()

    def hang(_: bytes) -> str:
        asked.set()
        return "hang"

    with http_receiver(hang) as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{receiver.authority}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
        sending = Sending(tmp_path)
        sending.put([SPAN])
        assert asked.wait(30)
        assert not sending.worker.stop(0.2)
        assert sending.tally.dropped == 0
        receiver.mood = 200
        receiver.released.set()
        sending.end()


def test_a_stop_while_the_sdk_waits_to_try_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A stop does not wait for the SDK's own back-off: what is queued is sent at once."""
    asked = threading.Event()

    def busy(_: bytes) -> int:
        asked.set()
        return 503

    with http_receiver(busy) as receiver:
        receiver.answer_headers = {"Retry-After": "50"}
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{receiver.authority}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
        sending = Sending(tmp_path)
        sending.put([SPAN])
        assert asked.wait(30)
        receiver.mood = 200
        assert sending.worker.stop(30)
        assert (len(spans(receiver)), sending.tally.exported, sending.tally.dropped) == (1, 1, 0)
        assert "degraded" not in caplog.text
        sending.end()
