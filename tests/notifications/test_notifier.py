import logging
import sqlite3

import pytest

from exporter.state.outbox import Lane, Outbox
from tests.bench import Build
from tests.bench.test_delivery import DOWN
from tests.builders import raw_event
from tests.notifications.senders import OK

PROBLEM = "target a: OperationalError in this program"


def to(*names: str, more: str = "") -> str:
    targets = ", ".join(f"{{name: {name}, url: 'json://receiver.test'}}" for name in names)
    return f"notifications: {{targets: [{targets}]{more}}}"


def test_a_target_that_has_nothing_to_do_has_no_thread(build: Build) -> None:
    """Configured targets have no threads before the first message."""
    bench = build(to("a", "b", more=", routes: [{targets: [a]}]"))
    bench.show(raw_event())
    assert [loop.name for loop in bench.loops._due if loop.name.startswith("notify")] == ["notify a"]
    assert [bench.metric("notifications_pending", target=name) for name in "ab"] == [0, 0]


def test_a_target_that_goes_and_comes_back(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """Messages for a target that is configured no more are warned of, and go out should it come back."""
    bench = build(to("a"))
    bench.sender("a").answer = lambda _: DOWN
    bench.show(raw_event())
    with caplog.at_level(logging.WARNING, "exporter.notifications.notifier"):
        bench.reload(to("b"))
    (record,) = (one for one in caplog.records if one.name == "exporter.notifications.notifier")
    assert record.getMessage() == "messages are waiting for a target that is not configured"
    assert (vars(record)["target"], vars(record)["count"]) == ("a", 1)
    assert [bench.metric("notifications_pending", target=name) for name in "ab"] == [1, 0]
    bench.sender("a").answer = lambda _: OK
    bench.reload(to("a", "b"))
    assert [len(bench.sent(name)) for name in "ab"] == [1, 0]


def test_an_error_of_ours_ends_no_worker(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong outside of an attempt is a problem that is shown, and passes."""
    bench = build(to("a"))

    def lane(*_: object) -> Lane:
        raise sqlite3.OperationalError("CANARY")

    with monkeypatch.context() as patch:
        patch.setattr(Outbox, "lane", lane)
        bench.show(raw_event())
        assert PROBLEM in str(bench.api("problems"))
    bench.advance(60)
    assert (len(bench.sent("a")), bench.api("problems")) == (1, [])
