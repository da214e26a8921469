from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.receivers import Receiver, TlsProxy, http_receiver, in_place_of_services


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_receiver() as found:
        yield found


@pytest.fixture
def proxy(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[TlsProxy]:
    """Send all HTTPS to a proxy, which answers in place of the services by the module's ``ANSWERS``."""
    with in_place_of_services(request.module.ANSWERS, monkeypatch, tmp_path) as found:
        yield found
