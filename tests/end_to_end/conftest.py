from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.hooking import Bench, bench


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as made:
        made.configure()
        yield made
