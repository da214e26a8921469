"""Receivers that take long: every message arrives once, and nothing outlives the exporter.

Not among the tests that pytest finds by itself, as they wait for minutes: ``make test-receivers`` runs them.
"""

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.end_to_end.program import children, eventually, metric
from tests.end_to_end.vm import Vm, event, one_vm
from tests.receivers import after, http_receiver, mail_receiver


@pytest.fixture
def vm(tmp_path: Path) -> Iterator[Vm]:
    with one_vm(tmp_path) as made:
        yield made


def total(vm: Vm, targets: Sequence[str], outcome: str) -> float:
    """Return the number of messages or attempts with an outcome, of some targets."""
    count = partial(metric, vm.url, "notifications_total", outcome=outcome)
    return sum(count(target=target) for target in targets)


def test_receivers_that_answer_after_fifteen_seconds(vm: Vm) -> None:
    """Eight of them get four messages each, with no failed attempt."""
    ids = [f"event-{number}" for number in range(4)]
    with contextlib.ExitStack() as stack:
        receivers = [stack.enter_context(http_receiver(after(15))) for _ in range(8)]
        webhooks = {f"t{number}": f"http://{one.authority}/" for number, one in enumerate(receivers)}
        targets = [{"name": name, "webhook": url} for name, url in webhooks.items()]
        vm.configure(notifications={"targets": targets})
        with vm.running():
            vm.tell(*map(event, ids))
            eventually(lambda: total(vm, [*webhooks], "delivered") == 32, within=400)
            assert total(vm, [*webhooks], "failed") == 0
        assert [sorted(sent.json["subject"] for sent in one.requests) for one in receivers] == [ids] * 8


def test_mail_servers_that_reply_after_forty_seconds(vm: Vm) -> None:
    """Three of them get each mail once, while a webhook need not wait."""
    with contextlib.ExitStack() as stack:
        mailboxes = [stack.enter_context(mail_receiver()) for _ in range(3)]
        receiver = stack.enter_context(http_receiver())
        for mailbox in mailboxes:
            mailbox.seconds = 40
        mail = "mailto://127.0.0.1:{}/?from=a@example.com&to=b@example.com"
        targets = [
            {"name": f"mail{number}", "url": mail.format(one.port)} for number, one in enumerate(mailboxes)
        ]
        names = [target["name"] for target in targets]
        targets.append({"name": "hook", "webhook": f"http://{receiver.authority}/"})
        vm.configure(notifications={"targets": targets})
        with vm.running():
            vm.tell(event("a"))
            eventually(lambda: receiver.requests)
            assert total(vm, names, "delivered") == 0
            eventually(lambda: total(vm, names, "delivered") == 3, within=200)
            assert total(vm, names, "failed") == 0
        assert [len(one.mails) for one in mailboxes] == [1] * 3


def test_receivers_that_fail_after_nine_seconds(vm: Vm) -> None:
    """Beside twelve of them with grave events, one that works gets its messages about milder ones."""
    with contextlib.ExitStack() as stack:
        failing = [stack.enter_context(http_receiver(after(9, 500))) for _ in range(12)]
        well = stack.enter_context(http_receiver())
        webhooks = {f"t{number}": f"http://{one.authority}/" for number, one in enumerate(failing)}
        targets = [{"name": name, "webhook": url} for name, url in webhooks.items()]
        targets.append({"name": "well", "webhook": f"http://{well.authority}/"})
        routes = [
            {"match": {"event_types": ["Terminate"]}, "targets": [*webhooks]},
            {"match": {"event_types": ["Freeze"]}, "targets": ["well"]},
        ]
        vm.configure(notifications={"targets": targets, "routes": routes})
        with vm.running():
            grave = [event(f"grave {number}", EventType="Terminate") for number in range(5)]
            mild = [event(f"freeze {number}", EventType="Freeze") for number in range(19)]
            vm.tell(*grave, *mild)
            eventually(lambda: len(well.requests) == 19)
            assert total(vm, ["well"], "failed") == 0


def test_receivers_that_drip(vm: Vm) -> None:
    """The children that wait for them end soon after an exporter that is killed."""
    with contextlib.ExitStack() as stack:
        receivers = [stack.enter_context(http_receiver("drip")) for _ in range(4)]
        webhooks = [f"http://{one.authority}/" for one in receivers]
        targets = [{"name": f"t{number}", "webhook": url} for number, url in enumerate(webhooks)]
        vm.configure(notifications={"targets": targets})
        with vm.running() as process:
            vm.tell(event("a"))
            (sender,) = eventually(lambda: children(process.pid))
            forked = eventually(lambda: found if len(found := children(sender)) == 4 else [])
            process.kill()
        eventually(lambda: not any(Path(f"/proc/{one}").exists() for one in (sender, *forked)))
