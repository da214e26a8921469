from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.vm import Vm, one_vm


@pytest.fixture
def vm(tmp_path: Path) -> Iterator[Vm]:
    with one_vm(tmp_path) as made:
        made.configure()
        yield made
