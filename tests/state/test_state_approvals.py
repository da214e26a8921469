"""What is remembered of approvals."""

from datetime import timedelta
from pathlib import Path

from tests.state_support import START, StateFixture


def test_a_try_counts_from_the_newest_request(tmp_path: Path) -> None:
    """An approval that Azure takes only after an hour of errors is dated from its newest request."""
    fixture = StateFixture(tmp_path)
    approvals = fixture.open().approvals
    assert approvals.decide("a", "A", "rule", START)
    later = START + timedelta(minutes=90)
    assert approvals.decide("a", "A", "rule", later)
    approvals.note_sent("a", later)
    assert [approval.decided for approval in approvals.known()] == [later]
    fixture.close()


def test_what_was_decided_survives_and_counts(tmp_path: Path) -> None:
    """After a restart each event is known once, whether it was sent or not."""
    fixture = StateFixture(tmp_path)
    approvals = fixture.open().approvals
    for key in ("a", "b", "c"):
        assert approvals.decide(key, key.upper(), "rule", START)
    approvals.note_sent("b", START + timedelta(seconds=1))
    approvals = fixture.open().approvals
    assert [approval.key for approval in approvals.known()] == ["a", "b", "c"]
    assert [approval.key for approval in approvals.known() if approval.sent is not None] == ["b"]
    found = approvals.find("a")
    assert found is not None
    assert (found.event_id, found.rule, found.decided, found.sent) == ("A", "rule", START, None)
    assert approvals.find("z") is None
    fixture.close()


def test_a_disk_that_fails_is_told(tmp_path: Path) -> None:
    """What the disk does not have would be forgotten by a crash, so it is no base for an approval."""
    fixture = StateFixture(tmp_path)
    store = fixture.open()
    fixture.path.unlink()
    (tmp_path / "state.db").mkdir()
    assert not store.approvals.decide("a", "A", "rule", START)
    fixture.close()
