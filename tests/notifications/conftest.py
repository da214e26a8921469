"""Fixtures of several modules: a target's worker, and a receiver."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notifications.receivers import Receiver, TlsProxy, http_receiver, in_place_of_services
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


@pytest.fixture
def proxy(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[TlsProxy]:
    """Send all HTTPS to a proxy, which answers in place of the services by the module's ``ANSWERS``."""
    with in_place_of_services(request.module.ANSWERS, monkeypatch, tmp_path) as found:
        yield found
