"""The running program where no timeout helps."""

from pathlib import Path

from tests.end_to_end.program import exporter, free_port


def test_a_poll_that_hangs(tmp_path: Path) -> None:
    """Where no deadline helps, the process ends with status 1 for its supervisor, with a logged reason."""
    log, state, file = (tmp_path / name for name in ("log", "state", "exporter.yml"))
    file.write_text("imds: {timeout: 1s}\ninstance: {name: WestNO_0}\n")
    # Its main thread looks after the poll twice in that time.
    environ, flags = {"WATCHDOG_USEC": "1000000", "HELD_POLL_SECONDS": "1"}, ("--config.file", str(file))
    held = "tests.end_to_end.held"
    with exporter(
        "http://hangs.invalid", state, free_port(), *flags, environ=environ, log=log, module=held
    ) as process:
        assert process.wait(60) == 1
    (line,) = (line for line in log.read_text().splitlines() if "level=error" in line)
    assert "exiting, so that a supervisor can restart the exporter" in line
    assert "the poll has not ended within 1 s" in line
    assert "Traceback" not in log.read_text()
