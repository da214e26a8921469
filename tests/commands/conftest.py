"""Fixtures of the tests of `exporter.commands`."""

from pathlib import Path

import pytest

from tests.web.certificates import Pki


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """Make certificates in the test's own folder."""
    return Pki.make(tmp_path)
