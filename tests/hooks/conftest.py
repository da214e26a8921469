"""What every test of `exporter.hooks` has."""

import os
from collections.abc import Iterator

import pytest

from tests.hooks.support import kill, marked, nothing_leaks


@pytest.fixture(autouse=True)
def _tidy() -> Iterator[None]:
    """Let no test leave descriptors, children or threads behind, nor processes, even if it fails."""
    with nothing_leaks():
        try:
            yield
        finally:
            kill(marked(f"{os.getpid()}-"))
