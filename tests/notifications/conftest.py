"""Fixtures of several modules: a target's worker, and a receiver."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notifications.receivers import Receiver, http_receiver
from tests.notifications.workbench import Workbench


@pytest.fixture
def workbench(tmp_path: Path) -> Iterator[Workbench]:
    """Set up a target that takes everything."""
    found = Workbench(tmp_path)
    yield found
    found.store.close()


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Workbench]:
    """Set up a target whose messages are given up after an hour."""
    found = Workbench(tmp_path, retry_for=3600)
    yield found
    found.store.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Run a receiver that takes everything."""
    with http_receiver() as found:
        yield found
