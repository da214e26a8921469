"""Secrets of the running exporter do not reach its hooks, nor its log, its answers or its state."""

from pathlib import Path

from tests.builders import FREEZE_ID
from tests.end_to_end.program import eventually, metric
from tests.faults.running import running
from tests.receivers import http_receiver
from tests.security.support import CANARY, DOCUMENT, approvals, configuration, runs

READABLE = ("/", "/metrics", "/api/v1/events", "/api/v1/status")


def test_a_hook_that_prints_all_it_has_tells_no_secret(tmp_path: Path) -> None:
    """Neither the log at any level nor answers nor the state has one, though a target fails, too."""
    with http_receiver() as receiver, http_receiver(500) as unwell:
        secrets = {
            "ONCALL_URL": f"json://{receiver.authority}/{CANARY}",
            "SCHEDULED_EVENTS_NOTIFY": f"json://{CANARY}:{CANARY}@{unwell.authority}/{CANARY}?-{CANARY}=1",
            "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={CANARY}",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": f"api-key={CANARY}",
        }
        secrets["HTTP_PROXY"] = f"http://user:{CANARY}@127.0.0.1:9"
        secrets["OTEL_SERVICE_NAME"] = secrets["NOTIFY_SOCKET"] = CANARY
        environ = secrets | {"NO_SECRET": "shown", "NO_PROXY": "127.0.0.1"}
        text, debug = configuration(tmp_path), ("--log.level", "debug")
        with running(tmp_path, *debug, config=text, environ=environ) as program:
            program.show(DOCUMENT, 2)
            eventually(lambda: runs(tmp_path) and approvals(program) and receiver.requests)
            url = f"http://127.0.0.1:{program.port}"
            eventually(lambda: metric(url, "notifications_total", target="notify-1", outcome="failed") >= 1)
            answers = [program.get(path).decode() for path in READABLE]
            answers += [file.read_text(errors="replace") for file in (tmp_path / "state").iterdir()]
    written = program.log.read_text()
    assert runs(tmp_path) == [FREEZE_ID]
    assert "NO_SECRET=shown" in written
    assert f"EVENT_ID={FREEZE_ID}" in written
    assert "json://127.0.0.1" in "".join(answers)
    assert not [text for text in (written, *answers) if CANARY in text]
