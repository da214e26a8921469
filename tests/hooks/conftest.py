"""What every test of `exporter.hooks` has."""

from collections.abc import Iterator

import pytest

from tests.hooks.support import nothing_leaks


@pytest.fixture(autouse=True)
def _tidy() -> Iterator[None]:
    """Let no test leave descriptors, children or threads behind."""
    with nothing_leaks():
        yield
