"""A short soak, for every day; `make soak` is the long one."""

from pathlib import Path

import pytest

from tests.slow.soak.run import one


@pytest.mark.parametrize("seed", ["day-1", "day-2"])
def test_a_short_soak(tmp_path: Path, seed: str) -> None:
    """Amid random documents and faults nothing is lost, repeated, forbidden or left behind."""
    assert one(tmp_path, seed, rounds=20)["transitions"] > 0
