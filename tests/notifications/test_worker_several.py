"""Tests of `exporter.notifications.worker` with a tag of two services: no message is lost at one of them."""

from pathlib import Path

from exporter.model.messages import Outcome
from exporter.notifications.sending import AppriseSender
from tests.notifications.test_sending_again import DOWN, ScriptedService, sender
from tests.notifications.workbench import Workbench


class SharedOffice(Workbench):
    """A target of two services."""

    def __init__(self, directory: Path, *, retry_for: float = 86400) -> None:
        self.one, self.other = ScriptedService("one"), ScriptedService("other")
        self.way: AppriseSender = sender(self.one, self.other)
        super().__init__(directory, retry_for=retry_for)
        self.sender.answer = lambda rendered: self.way.send(rendered, self.sender.delivered_to)


def test_a_digest_goes_to_all(tmp_path: Path) -> None:
    """What piled up while one service was down is new to the other, which was not."""
    workbench = SharedOffice(tmp_path)
    workbench.other.problem = DOWN
    workbench.post("a")
    workbench.work()
    workbench.post(*(f"{number:02}" for number in range(11)))
    workbench.work()
    workbench.other.problem = None
    workbench.clock.pass_seconds(400)
    workbench.work()
    digest = "a/1," + ",".join(f"{number:02}/1" for number in range(11))
    assert (workbench.one.got, workbench.other.got) == (["a/1", "00/1", digest], [digest])
    workbench.store.close()


def test_what_follows_a_message_given_up_goes_to_all(tmp_path: Path) -> None:
    """That one service never took a message keeps the next from nobody."""
    workbench = SharedOffice(tmp_path, retry_for=60)
    workbench.other.problem = DOWN
    workbench.post("a")
    workbench.work()
    workbench.clock.pass_seconds(400)
    workbench.work()
    assert workbench.tally.lost[Outcome.EXPIRED] == 1
    workbench.other.problem = None
    workbench.post("b")
    workbench.clock.pass_seconds(400)
    workbench.work()
    assert (workbench.one.got, workbench.other.got) == (["a/1", "b/1"], ["b/1"])
    workbench.store.close()


def test_a_single_message_tried_again_goes_where_it_is_missing(tmp_path: Path) -> None:
    """A service that has a message does not get it again."""
    workbench = SharedOffice(tmp_path)
    workbench.other.problem = DOWN
    workbench.post("a")
    workbench.work()
    workbench.other.problem = None
    workbench.clock.pass_seconds(400)
    workbench.work()
    assert (workbench.one.got, workbench.other.got) == (["a/1"], ["a/1"])
    workbench.store.close()


def test_a_digest_tried_again_is_the_same(tmp_path: Path) -> None:
    """What came meanwhile waits for its turn, so that nobody gets the older part twice."""
    workbench = SharedOffice(tmp_path)
    workbench.post(*(f"{number:02}" for number in range(12)))
    workbench.restart()
    workbench.other.problem = DOWN
    workbench.work()
    workbench.post("z")
    workbench.other.problem = None
    workbench.clock.pass_seconds(400)
    workbench.work()
    digest = ",".join(f"{number:02}/1" for number in range(12))
    assert (workbench.one.got, workbench.other.got) == ([digest, "z/1"], [digest, "z/1"])
    workbench.store.close()
