"""The layers of the test suite."""

from pathlib import Path

import pytest

_HERE = Path(__file__).parent
# These start the program, browsers, Prometheus and the like; `pytest -m "not e2e"` leaves them out.
_END_TO_END = (
    "alerts",
    "commands/test_notify_test.py",
    "dashboards",
    "deploy",
    "docs/test_commands.py",
    "docs/test_samples.py",
    "end_to_end",
    "faults",
    "hooks/test_command_ends.py",
    "notifications/test_services.py",
    "security",
    "simulator/test_browser.py",
    "state/test_state_process.py",
    "test_benchmarks.py",
    "test_dependencies.py",
    "test_examples.py",
    "test_packaging.py",
    "web/test_browser.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of whole programs."""
    for item in items:
        path = item.path.relative_to(_HERE).as_posix()
        if path.startswith(_END_TO_END):
            item.add_marker(pytest.mark.e2e)
