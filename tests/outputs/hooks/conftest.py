import os
from collections.abc import Iterator

import pytest

from tests.outputs.hooks.support import kill, marked, nothing_leaks


@pytest.fixture(autouse=True)
def _tidy() -> Iterator[None]:
    """Fail a test that leaves descriptors, children, threads or processes behind."""
    with nothing_leaks():
        try:
            yield
        finally:
            kill(marked(f"{os.getpid()}-"))
