"""When to try a target again: soon at first, then more and more seldom."""

FIRST_SECONDS = 1.0
MOST_SECONDS = 300.0
# During the first two minutes of an outage a target is tried at least every 20 s.
EARLY_SECONDS = 120.0
EARLY_MOST_SECONDS = 20.0


def delay_after(failures: int, *, failing_for: float, took: float, chance: float) -> float:
    """Return the seconds to wait after the ``failures``-th failure in a row (from 1).

    ``failing_for`` is how many seconds ago the first of them was, ``took`` how long the last one took. The
    delay doubles with each failure; ``chance``, from 0 to 1, takes up to half of it off, so that a fleet does
    not come back all at once.
    """
    most = EARLY_MOST_SECONDS - took if failing_for < EARLY_SECONDS else MOST_SECONDS
    whole = min(FIRST_SECONDS * 2.0 ** min(failures - 1, 20), most)
    return max(FIRST_SECONDS, whole * (1 - chance / 2))
