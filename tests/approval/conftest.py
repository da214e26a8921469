"""Fixtures for the tests of `exporter.approval`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.approval.support import ApproverFixture


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[ApproverFixture]:
    """Set up one Freeze of this VM, and a rule that approves it."""
    found = ApproverFixture(tmp_path)
    yield found
    found.store.close()
