"""Hooks of the running program: processes, input, time limits, and the end of the program."""

import contextlib
import json
import os
import signal
from typing import Any

from tests.end_to_end.hooking import EVENT, NAME, Bench, event, hook, stop
from tests.end_to_end.program import eventually, get
from tests.notifications.receivers import http_receiver

TRACE = EVENT.replace("-", "").lower()
NOTE = 'echo "$1 $EVENT_TRANSITION $EVENT_ATTEMPT" >>"$HERE/notes"'
TELL_ALL = 'env -0 >"$HERE/env"; cat >"$HERE/stdin"; ' + NOTE
HANG = 'trap "" TERM; echo "$EVENT_ID $1 hangs" >>"$HERE/notes"; sleep 600 & wait; wait'


def told(setting: Bench) -> tuple[dict[str, str], Any]:
    pairs = (setting.folder / "env").read_text().rstrip("\0").split("\0")
    return dict(pair.split("=", 1) for pair in pairs), json.loads((setting.folder / "stdin").read_text())


def test_what_a_hook_is_told(setting: Bench) -> None:
    """The API's EVENT on standard input and in variables, a trace, and nothing of systemd's protocol."""
    setting.configure(hook("note", TELL_ALL))
    of_systemd = {"NOTIFY_SOCKET": "/nonexistent", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}
    with setting.running(**of_systemd):
        setting.tell(event(Description="a\0 lone \ud83d line\n", DurationInSeconds=-1))
        eventually(setting.notes)
        (shown,) = json.loads(get(f"{setting.url}/api/v1/events"))["current"]
    variables, read = told(setting)
    assert not of_systemd.keys() & variables.keys()
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


def test_a_stop_waits_for_no_hook(setting: Bench) -> None:
    """A hook that ignores SIGTERM is killed with all it started, within the 10 s, and runs again later."""
    setting.configure(hook("hangs", HANG), hook("next", NOTE))
    with setting.running() as process:
        setting.tell(event("a"), event("b"))
        eventually(lambda: len(setting.notes()) == 2)
        stop(process)
        eventually(lambda: setting.left() == [])
    setting.configure(hook("hangs", NOTE), hook("next", NOTE))
    with setting.running():
        eventually(lambda: setting.count("next", "succeeded") == 2)
    again = sorted(setting.notes()[2:])
    assert again == ["hangs scheduled 2", "hangs scheduled 2", "next scheduled 1", "next scheduled 1"]
    lines = setting.log("hook interrupted; it runs again after the next start")
    assert [line["level"] for line in lines] == ["warning", "warning"]


def test_an_exporter_that_is_killed(setting: Bench) -> None:
    """The next one ends what the hook of the killed one still does before the hook runs again."""
    note = 'echo "begin $EVENT_ATTEMPT" >> "$HERE/notes"'
    setting.configure(hook("drain", f'{note}; [ "$EVENT_ATTEMPT" != 1 ] || {{ sleep 600 & sleep 600; }}'))
    with setting.running() as process:
        setting.tell(event())
        eventually(lambda: setting.notes() == ["begin 1"])
        state = setting.folder / "state"
        eventually(lambda: any(b'"process":' in file.read_bytes() for file in state.iterdir()))
        process.kill()
        process.wait()
    assert len(setting.left()) == 3
    with setting.running():
        eventually(lambda: setting.count("drain", "succeeded") == 1)
        assert (setting.notes(), setting.left()) == (["begin 1", "begin 2"], [])
    (told,) = setting.log("hook of an exporter that was killed has been ended")
    assert told["hook"] == "drain"


def test_a_service_manager_ends_hooks_too(setting: Bench) -> None:
    """A stop that sends SIGTERM to all processes at once, as systemd's does: what that ended runs again."""
    setting.configure(hook("hangs", NOTE + '; [ "$EVENT_ATTEMPT" = 2 ] || sleep 600'))
    with setting.running() as process:
        setting.tell(event("a"), event("b"))
        eventually(lambda: len(setting.notes()) == 2)
        # However busy the machine is, the exporter finds both together.
        process.send_signal(signal.SIGSTOP)
        for pid in setting.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        stop(process)
    with setting.running():
        eventually(lambda: setting.count("hangs", "succeeded") == 2)
    assert setting.notes()[2:] == ["hangs scheduled 2", "hangs scheduled 2"]


def test_a_failure_is_reported_with_the_end_of_the_output(setting: Bench) -> None:
    """A message and a webhook have it, also if the exporter was killed before they could be sent."""
    code = r'echo "token: ${TOKEN:-none}"; printf "\033[31mcannot drain\033[0m: 2 pods left\n" >&2; exit 3'
    reason = "hook drain failed: exit status 3; output: token: none / cannot drain: 2 pods left"
    refused = set()

    def refuse(body: bytes) -> int:
        refused.add(b'"data"' in body)
        return 503

    with http_receiver(refuse) as receiver:
        address = f"://{receiver.authority}"
        targets = [
            {"name": "a", "url": f"json{address}"},
            {"name": "b", "webhook": f"http{address}", "headers": {"Authorization": "${TOKEN}"}},
        ]
        routes = [{"match": {"transitions": ["hook_failed"]}, "targets": ["a", "b"]}]
        setting.configure(hook("drain", code), notifications={"targets": targets, "routes": routes})
        with setting.running(TOKEN="canary") as process:
            setting.tell(event())
            # A request that is under way at the kill would be sent twice.
            eventually(lambda: len(refused) == 2)
            process.kill()
        receiver.mood = 200
        with setting.running(TOKEN="canary"):
            eventually(lambda: len(receiver.requests) == 2)
        message, cloud_event = sorted((one.json for one in receiver.requests), key=lambda one: "data" in one)
    assert f"- Reason: {reason}" in message["message"]
    assert cloud_event["data"]["detail"] == reason
