"""A short soak, for every day; `make soak` is the long one."""

import os
from itertools import islice
from pathlib import Path

import pytest

from tests.faults import plan
from tests.faults.soak import soak
from tests.faults.truth import Truth

SECONDS = 8.0
SEED = os.environ.get("SOAK_SEED", "7")


@pytest.mark.timeout(600)
def test_a_short_soak(tmp_path: Path) -> None:
    """Amid faults of many kinds nothing is lost, doubled, forbidden or grown."""
    figures = list(soak(tmp_path, SECONDS, SEED))
    assert figures[0].endswith("all agrees")


def test_a_seed_makes_a_plan() -> None:
    """The same seed gives the same faults and documents, another one others."""

    def first(seed: int) -> tuple[object, ...]:
        truth = Truth(seed)
        documents = [truth.change() for _ in range(50)]
        events = [[(e.id, e.status, e.resources) for e in document.events] for document in documents]
        times = [list(islice(made, 50)) for made in (plan.changes(seed), plan.quiet_points(seed))]
        return events, times, list(islice(plan.faults(seed), 200))

    assert first(1) == first(1)
    assert first(1) != first(2)
