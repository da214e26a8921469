from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.state_support import StateFixture


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[StateFixture]:
    fixture = StateFixture(tmp_path / "deep" / "state")
    yield fixture
    fixture.close()
