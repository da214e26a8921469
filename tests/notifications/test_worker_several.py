"""Tests of `exporter.notifications.worker` with a tag of two services: no message is lost at one of them."""

from pathlib import Path

from exporter.notifications.sending import AppriseSender
from tests.notifications.office import Office
from tests.notifications.test_sending_again import DOWN, ScriptedService, sender


class SharedOffice(Office):
    """A target of two services."""

    def __init__(self, directory: Path, *, retry_for: float = 86400) -> None:
        self.one, self.other = ScriptedService("one"), ScriptedService("other")
        self.way: AppriseSender = sender(self.one, self.other)
        super().__init__(directory, retry_for=retry_for)
        self.sender.answer = lambda rendered: self.way.send(rendered, self.sender.about)


def test_a_digest_goes_to_all(tmp_path: Path) -> None:
    """What piled up while one service was down is new to the other, which was not."""
    office = SharedOffice(tmp_path)
    office.other.problem = DOWN
    office.post("a")
    office.work()
    office.post(*(f"{number:02}" for number in range(11)))
    office.other.problem = ""
    office.clock.pass_seconds(400)
    office.work()
    digest = "a/1," + ",".join(f"{number:02}/1" for number in range(11))
    assert (office.one.got, office.other.got) == (["a/1", digest], [digest])
    office.store.close()


def test_what_follows_a_message_given_up_goes_to_all(tmp_path: Path) -> None:
    """That one service never took a message keeps the next from nobody."""
    office = SharedOffice(tmp_path, retry_for=60)
    office.other.problem = DOWN
    office.post("a")
    office.work()
    office.clock.pass_seconds(400)
    office.work()
    assert office.tally.given_up == 1
    office.other.problem = ""
    office.post("b")
    office.clock.pass_seconds(400)
    office.work()
    assert (office.one.got, office.other.got) == (["a/1", "b/1"], ["b/1"])
    office.store.close()


def test_a_single_message_tried_again_goes_where_it_is_missing(tmp_path: Path) -> None:
    """A service that has a message does not get it again."""
    office = SharedOffice(tmp_path)
    office.other.problem = DOWN
    office.post("a")
    office.work()
    office.other.problem = ""
    office.clock.pass_seconds(400)
    office.work()
    assert (office.one.got, office.other.got) == (["a/1"], ["a/1"])
    office.store.close()


def test_a_digest_tried_again_is_the_same(tmp_path: Path) -> None:
    """What came meanwhile waits for its turn, so that nobody gets the older part twice."""
    office = SharedOffice(tmp_path)
    office.post(*(f"{number:02}" for number in range(12)))
    office.restart()
    office.other.problem = DOWN
    office.work()
    office.post("z")
    office.other.problem = ""
    office.clock.pass_seconds(400)
    office.work()
    digest = ",".join(f"{number:02}/1" for number in range(12))
    assert (office.one.got, office.other.got) == ([digest, "z/1"], [digest, "z/1"])
    office.store.close()
