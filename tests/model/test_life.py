"""The product against the model over random histories, and what that comparison is worth."""

from collections import Counter
from datetime import timedelta

import pytest

from tests.model import life
from tests.model.compare import difference, disagreements, report
from tests.model.histories import history


@pytest.mark.parametrize("part", range(6))
def test_the_product_does_as_the_documentation_says(part: int) -> None:
    """For any documents, the product reports and stores the same as the model."""
    assert "\n\n".join(disagreements(f"suite {part}", 250, 1)) == ""


def test_a_disagreement_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fault in one of the two, the report shows the documents that matter."""
    monkeypatch.setattr(life, "SWITCHED_OFF", timedelta(0))
    steps = next(steps for steps in map(history, range(1000)) if difference(steps))
    found = difference(steps)
    assert found is not None
    assert {line.outcome for line in found.expected} == {"vanished"}
    assert {line.outcome for line in found.got} == {"cancelled"}
    assert f"got:      {found.got[0]}" in report(steps, found)


def test_the_histories_have_everything_in_them() -> None:
    """Every transition occurs for this VM and for others, and so does all that the model distinguishes."""
    seen: Counter[str] = Counter()
    for seed in range(800):
        followed = [*life.follow(history(seed))]
        told = [each for _, words in followed for each in words]
        lives = followed[-1][0].lives
        seen.update(f"{each.transition} {each.life.target}" for each in told)
        seen["impact"] += sum(each.impact is not None for each in told)
        seen["joined"] += sum(each.silent for each in lives)
        seen["third life"] += sum(each.number == 3 for each in lives)
        seen["renewed twice"] += sum(len(each.ids) == 3 for each in lives)
        seen["two events after all"] += sum(bool(each.apart) for each in lives)
        seen["another type"] += sum(each.changed_to is not None for each in lives)
        seen["name unknown"] += sum(each.unsure for each in lives)
        seen["unwatched start"] += sum(each.has("started") and each.started is None for each in lives)
    transitions = [word for words in life.ORDER for word in words]
    wanted = {f"{transition} {target}" for transition in transitions for target in ("self", "other")}
    wanted |= {"impact", "joined", "third life", "renewed twice", "name unknown", "unwatched start"}
    wanted |= {"another type", "two events after all"}
    assert {what for what in wanted if seen[what] < 5} == set()
