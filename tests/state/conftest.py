from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.state_support import StateFixture


@pytest.fixture
def fixture(open_folder: Path) -> Iterator[StateFixture]:
    """Return a state directory that is still to be made."""
    fixture = StateFixture(open_folder / "state")
    yield fixture
    fixture.close()
