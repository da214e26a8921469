"""Secrets of the running exporter do not reach its hooks, nor its log, its answers or its state."""

from pathlib import Path

from tests.end_to_end.program import eventually, get, metric
from tests.end_to_end.vm import EVENT, one_vm
from tests.receivers import http_receiver
from tests.security.support import EVENTS, configure

CANARY = "canary-4711"
READABLE = ("/", "/metrics", "/api/v1/events", "/api/v1/status")


def test_a_hook_that_prints_all_it_has_tells_no_secret(tmp_path: Path) -> None:
    """Neither the log at any level nor answers nor the state has one, though a target fails, too."""
    with http_receiver() as receiver, http_receiver(500) as unwell, one_vm(tmp_path) as vm:
        secrets = {
            "ONCALL_URL": f"json://{receiver.authority}/{CANARY}",
            "SCHEDULED_EVENTS_NOTIFY": f"json://{CANARY}:{CANARY}@{unwell.authority}/{CANARY}?-{CANARY}=1",
            "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={CANARY}",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": f"api-key={CANARY}",
            "HTTP_PROXY": f"http://user:{CANARY}@127.0.0.1:9",
            "OTEL_SERVICE_NAME": CANARY,
            "NOTIFY_SOCKET": CANARY,
            "CREDENTIALS_DIRECTORY": CANARY,
        }
        configure(vm)
        with vm.running("--log.level", "debug", NO_SECRET="shown", NO_PROXY="127.0.0.1", **secrets):
            vm.tell(*EVENTS)
            eventually(lambda: vm.notes() and vm.imds.simulator.approvals and receiver.requests)
            eventually(
                lambda: metric(vm.url, "notifications_total", target="notify-1", outcome="failed") >= 1
            )
            answers = [get(vm.url + path) for path in READABLE]
            answers += [file.read_text(errors="replace") for file in (tmp_path / "state").iterdir()]
        written = vm.log_file.read_text()
        assert vm.notes() == [EVENT]
    assert "NO_SECRET=shown" in written
    assert f"EVENT_ID={EVENT}" in written
    assert "json://127.0.0.1" in "".join(answers)
    assert not [text for text in (written, *answers) if CANARY in text]
