from pathlib import Path

import pytest


@pytest.fixture
def check(tmp_path: Path) -> Path:
    """Return the directory that a booted Debian has as /check."""
    directory = tmp_path / "check"
    directory.mkdir()
    return directory
