"""What is remembered of approvals."""

from datetime import timedelta
from pathlib import Path

from tests.state_support import START, House


def test_a_try_counts_from_the_newest_request(tmp_path: Path) -> None:
    """An approval that Azure takes only after an hour of errors is dated from its newest request."""
    house = House(tmp_path)
    approvals = house.open().approvals
    assert approvals.decide("a", "A", "rule", START)
    later = START + timedelta(minutes=90)
    assert approvals.decide("a", "A", "rule", later)
    approvals.note_sent("a", later)
    assert [approval.decided for approval in approvals.known()] == [later]
    house.close()


def test_what_was_decided_survives_and_counts(tmp_path: Path) -> None:
    """After a restart each event is known once, whether it was sent or not."""
    house = House(tmp_path)
    approvals = house.open().approvals
    for key in ("a", "b", "c"):
        assert approvals.decide(key, key.upper(), "rule", START)
    approvals.note_sent("b", START + timedelta(seconds=1))
    approvals = house.open().approvals
    assert [approval.key for approval in approvals.known()] == ["a", "b", "c"]
    assert [approval.key for approval in approvals.sent()] == ["b"]
    found = approvals.find("a")
    assert found is not None
    assert (found.event_id, found.rule, found.decided, found.sent) == ("A", "rule", START, None)
    assert approvals.find("z") is None
    house.close()


def test_a_disk_that_fails_is_told(tmp_path: Path) -> None:
    """What the disk does not have would be forgotten by a crash, so it is no base for an approval."""
    house = House(tmp_path)
    store = house.open()
    house.path.unlink()
    (tmp_path / "state.db").mkdir()
    assert not store.approvals.decide("a", "A", "rule", START)
    house.close()
