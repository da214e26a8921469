"""Hooks of the running program: processes, input, time limits, and the end of the program."""

import contextlib
import json
import os
import signal
from typing import Any

from tests.end_to_end.program import eventually, get
from tests.end_to_end.vm import EVENT, NAME, Vm, event, hook, stop

TRACE = EVENT.replace("-", "").lower()
NOTE = 'echo "$1 $EVENT_TRANSITION $EVENT_ATTEMPT" >>"$HERE/notes"'
TELL_ALL = 'env -0 >"$HERE/env"; cat >"$HERE/stdin"; ' + NOTE
HANG = 'trap "" TERM; echo "$EVENT_ID $1 hangs" >>"$HERE/notes"; sleep 600 & wait; wait'


def told(vm: Vm) -> tuple[dict[str, str], Any]:
    pairs = (vm.folder / "env").read_text().rstrip("\0").split("\0")
    return dict(pair.split("=", 1) for pair in pairs), json.loads((vm.folder / "stdin").read_text())


def test_what_a_hook_is_told(vm: Vm) -> None:
    """The API's EVENT on standard input and in variables, a trace, no secret, and nothing of systemd's."""
    target = {"name": "a", "webhook": "http://127.0.0.1:9", "headers": {"Authorization": "${TOKEN}"}}
    vm.configure(hook("note", TELL_ALL), notifications={"targets": [target]})
    withheld = {"NOTIFY_SOCKET": "/nonexistent", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}
    withheld["TOKEN"] = "canary"
    with vm.running(**withheld):
        vm.tell(event(Description="a\0 lone \ud83d line\n", DurationInSeconds=-1))
        eventually(vm.notes)
        (shown,) = json.loads(get(f"{vm.url}/api/v1/events"))["current"]
    variables, read = told(vm)
    assert not withheld.keys() & variables.keys()
    extra = {"transition": "scheduled", "at": shown["first_seen"], "instance": NAME, "attempt": 1}
    assert read == shown | extra
    wanted = {
        "EVENT_ID": EVENT,
        "EVENT_TYPE": "Reboot",
        "EVENT_STATUS": "Scheduled",
        "EVENT_SOURCE": "Platform",
        "EVENT_NOTBEFORE": "2026-03-04T22:15:00Z",
        "EVENT_RESOURCES": NAME,
        "EVENT_RESOURCETYPE": "VirtualMachine",
        "EVENT_DURATION": "",
        "EVENT_TRANSITION": "scheduled",
        "EVENT_ATTEMPT": "1",
        "INSTANCE_NAME": NAME,
    }
    assert {name: variables[name] for name in wanted} == wanted
    assert variables["EVENT_DESCRIPTION"].startswith("a lone ")
    version, trace, span, flags = variables["TRACEPARENT"].split("-")
    assert (version, trace, flags) == ("00", TRACE, "00")
    assert len(span) == 16


def test_a_failure_where_ends_of_processes_are_ignored(vm: Vm) -> None:
    """With SIGCHLD ignored, which is inherited, the exit status of a hook would be lost, and count as 0."""
    vm.configure(hook("fails", "exit 3"))
    with vm.running(prefix=("env", "--ignore-signal=CHLD")):
        vm.tell(event())
        eventually(lambda: vm.log("hook ended"))
        assert vm.count("fails", "failed") == 1


def test_a_stop_waits_for_no_hook(vm: Vm) -> None:
    """A hook that ignores SIGTERM is killed with all it started, within the 10 s, and runs again later."""
    vm.configure(hook("hangs", HANG), hook("next", NOTE))
    with vm.running() as process:
        vm.tell(event("a"), event("b"))
        eventually(lambda: len(vm.notes()) == 2)
        stop(process)
        eventually(lambda: vm.left() == [])
    vm.configure(hook("hangs", NOTE), hook("next", NOTE))
    with vm.running():
        eventually(lambda: vm.count("next", "succeeded") == 2)
    again = sorted(vm.notes()[2:])
    assert again == ["hangs scheduled 2", "hangs scheduled 2", "next scheduled 1", "next scheduled 1"]
    lines = vm.log("hook interrupted; it runs again after the next start")
    assert [line["level"] for line in lines] == ["warning", "warning"]


def test_an_exporter_that_is_killed(vm: Vm) -> None:
    """Its hook runs again after the next start; what still runs is left to the service manager."""
    note = 'echo "begin $EVENT_ATTEMPT" >> "$HERE/notes"'
    vm.configure(hook("drain", f'{note}; [ "$EVENT_ATTEMPT" != 1 ] || {{ sleep 600 & sleep 600; }}'))
    with vm.running() as process:
        vm.tell(event())
        eventually(lambda: vm.notes() == ["begin 1"])
        process.kill()
        process.wait()
    assert len(vm.left()) == 3
    with vm.running():
        eventually(lambda: vm.count("drain", "succeeded") == 1)
        assert (vm.notes(), len(vm.left())) == (["begin 1", "begin 2"], 3)


def test_a_service_manager_ends_hooks_too(vm: Vm) -> None:
    """A stop that sends SIGTERM to all processes at once, as systemd's does: what that ended runs again."""
    vm.configure(hook("hangs", NOTE + '; [ "$EVENT_ATTEMPT" = 2 ] || sleep 600'))
    with vm.running() as process:
        vm.tell(event("a"), event("b"))
        eventually(lambda: len(vm.notes()) == 2)
        # However busy the machine is, the exporter finds both together.
        process.send_signal(signal.SIGSTOP)
        for pid in vm.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        stop(process)
    with vm.running():
        eventually(lambda: vm.count("hangs", "succeeded") == 2)
    assert vm.notes()[2:] == ["hangs scheduled 2", "hangs scheduled 2"]
