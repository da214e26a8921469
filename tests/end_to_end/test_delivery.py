import contextlib
import os
import signal
from collections import Counter
from functools import partial

import pytest

from tests.end_to_end.program import children, eventually, metric
from tests.end_to_end.vm import Vm, event, stop
from tests.receivers import http_receiver


@pytest.mark.parametrize("mood", ["hang", "drip"])
def test_a_hanging_receiver_holds_up_nothing(vm: Vm, mood: str) -> None:
    """Other targets, polling and the stop go on while one receiver never answers."""
    with http_receiver(mood) as stuck, http_receiver() as well:
        receivers = {"stuck": stuck, "well": well}
        targets = [{"name": name, "url": f"json://{one.authority}/"} for name, one in receivers.items()]
        vm.configure(notifications={"targets": targets})
        with vm.running() as process:
            vm.tell(event("a"), event("b"))
            eventually(lambda: len(well.requests) == 2)
            assert metric(vm.url, "notifications_pending", target="stuck") == 2
            vm.tell(event("a"), event("b"), event("c"))
            # What is not counted yet when the program stops is sent again.
            sent = partial(metric, vm.url, "notifications_total", target="well", outcome="delivered")
            eventually(lambda: sent() == 3)
            stop(process)
        stuck.mood = 200
        stuck.released.set()
        with vm.running():
            eventually(lambda: len(stuck.requests) == 3)
    assert len(well.requests) == 3


def test_kills_of_the_sender_process_lose_nothing(vm: Vm) -> None:
    """Before its first message, between messages and while it sends: only what it was sending comes twice."""
    names, ids = ("a", "b", "c"), [f"event-{number}" for number in range(60)]
    with http_receiver() as receiver:
        targets = [{"name": name, "webhook": f"http://{receiver.authority}/{name}"} for name in names]
        vm.configure(notifications={"targets": targets})
        with vm.running() as process:
            vm.tell(*map(event, ids))
            kills = (0, 0, 30, 60, 90)

            def at_least(number: int) -> bool:
                return len(receiver.requests) >= number

            for number in kills:
                eventually(partial(at_least, number))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(eventually(lambda: children(process.pid))[0], signal.SIGKILL)

            def arrived() -> Counter[tuple[str, str]]:
                return Counter((one.path, one.json["subject"]) for one in tuple(receiver.requests))

            eventually(lambda: len(arrived()) == len(names) * len(ids))
    assert arrived().total() <= len(names) * (len(ids) + len(kills))
