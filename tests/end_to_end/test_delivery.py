import contextlib
import os
import signal
import threading
from collections import Counter
from functools import partial
from pathlib import Path

from tests.end_to_end.program import children, eventually, metric
from tests.end_to_end.vm import Vm, event, stop
from tests.receivers import after, http_receiver
from tests.state_support import on_disk


def test_hanging_receivers_hold_up_nothing(vm: Vm) -> None:
    """Targets that are well, polling and the stop go on while two never end an answer; no process is left."""
    with http_receiver("hang") as silent, http_receiver("drip") as dripping, http_receiver() as well:
        stuck = (silent, dripping)
        receivers = {"silent": silent, "dripping": dripping, "well": well}
        targets = [{"name": name, "url": f"json://{one.authority}/"} for name, one in receivers.items()]
        vm.configure(notifications={"targets": targets})
        with vm.running() as process:
            vm.tell(event("a"), event("b"))
            eventually(lambda: len(well.requests) == 2)
            assert metric(vm.url, "notifications_pending", target="silent") == 2
            assert metric(vm.url, "notifications_pending", target="dripping") == 2
            vm.tell(event("a"), event("b"), event("c"))
            # What is not counted yet when the program stops is sent again.
            sent = partial(metric, vm.url, "notifications_total", target="well", outcome="delivered")
            eventually(lambda: sent() == 3)
            (sender,) = children(process.pid)
            forked = children(sender)
            assert len(forked) >= 2
            stop(process)
        eventually(lambda: not any(Path(f"/proc/{one}").exists() for one in (sender, *forked)))
        for receiver in stuck:
            receiver.mood = 200
            receiver.released.set()
        with vm.running():
            eventually(lambda: [len(receiver.requests) for receiver in stuck] == [3, 3])
    assert len(well.requests) == 3


def test_kills_of_the_sender_process_lose_nothing(vm: Vm) -> None:
    """Before the first message, between messages and while its children send: only that may come twice."""
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
                (sender,) = eventually(lambda: children(process.pid))
                for one in (sender, *children(sender)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(one, signal.SIGKILL)

            def arrived() -> Counter[tuple[str, str]]:
                return Counter((one.path, one.json["subject"]) for one in tuple(receiver.requests))

            eventually(lambda: len(arrived()) == len(names) * len(ids))
    assert arrived().total() <= len(names) * (len(ids) + len(kills))


def test_targets_that_fail_starve_no_other(vm: Vm) -> None:
    """One that is well gets its messages, while eight answer slowly with errors about graver events."""
    with contextlib.ExitStack() as stack:
        failing = [stack.enter_context(http_receiver(after(1, 500))) for _ in range(8)]
        well = stack.enter_context(http_receiver())
        targets = [
            {"name": f"t{number}", "url": f"json://{one.authority}/"} for number, one in enumerate(failing)
        ]
        routes = [
            {"match": {"event_types": ["Reboot"]}, "targets": [one["name"] for one in targets]},
            {"match": {"event_types": ["Freeze"]}, "targets": ["well"]},
        ]
        targets.append({"name": "well", "url": f"json://{well.authority}/"})
        vm.configure(notifications={"targets": targets, "routes": routes})
        with vm.running():
            grave = [event(f"grave {number}", EventType="Reboot") for number in range(5)]
            vm.tell(*grave)
            failed = partial(metric, vm.url, "notifications_total", outcome="failed")
            eventually(lambda: sum(failed(target=f"t{number}") for number in range(8)) >= 8)
            vm.tell(*grave, *(event(f"freeze {number}", EventType="Freeze") for number in range(6)))
            eventually(lambda: len(well.requests) == 6)
        for receiver in failing:
            receiver.mood = 500


def test_a_stop_waits_for_what_is_being_sent(vm: Vm) -> None:
    """What a receiver accepts after two seconds is not sent again after the next start."""
    with http_receiver() as receiver:
        got = threading.Event()

        def take(_: bytes) -> int:
            got.set()
            threading.Event().wait(2)
            return 200

        receiver.mood = take
        vm.configure(notifications={"targets": [{"name": "a", "webhook": f"http://{receiver.authority}/"}]})
        with vm.running() as process:
            vm.tell(event("a"))
            assert got.wait(60)
            stop(process)
        assert len(receiver.requests) == 1
        receiver.mood = 200
        with vm.running():
            vm.tell(event("a"), event("b"))
            eventually(lambda: len(receiver.requests) == 2)
        assert [one.json["subject"] for one in receiver.requests] == ["a", "b"]


def test_a_kill_keeps_which_services_have_a_message(vm: Vm) -> None:
    """Of the services of a tag, one that has the message does not get it again because another hangs."""
    with http_receiver() as fast, http_receiver("hang") as stuck:
        file = vm.folder / "apprise.txt"
        file.write_text("".join(f"oncall=json://{one.authority}/\n" for one in (fast, stuck)))
        targets = [{"name": "oncall", "tag": "oncall"}]
        vm.configure(notifications={"apprise_config": str(file), "targets": targets})
        with vm.running() as process:
            vm.tell(event("a"))
            eventually(lambda: "'services'" in str(on_disk(vm.folder / "state", "notifications")))
            # While it waits for the other.
            assert metric(vm.url, "notifications_total", target="oncall", outcome="failed") == 0
            process.kill()
            process.wait()
        stuck.mood = 200
        stuck.released.set()
        with vm.running():
            delivered = partial(metric, vm.url, "notifications_total", target="oncall", outcome="delivered")
            eventually(lambda: delivered() == 1)
        assert len(fast.requests) == 1
