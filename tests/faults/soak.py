"""The soak: five minutes of faults of every kind, checked against a model.

    SOAK_SECONDS=300 SOAK_SEED=1 python -m tests.faults.soak

The plan of faults and the events follow from the seed alone; how they meet what the exporter does at a
moment does not.
"""

import contextlib
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.faults.azure import Azure
from tests.faults.checks import batches
from tests.faults.director import Director
from tests.faults.reports import reports
from tests.faults.scene import Scene
from tests.faults.truth import Truth
from tests.notifications.receivers import http_receiver
from tests.tracing.receiver import spans


@contextlib.contextmanager
def stage(folder: Path, seed: int | str) -> Iterator[Scene]:
    """Build all that the exporter talks to; nothing of it, nor the exporter, outlives the block."""
    azure = Azure(Truth(seed), random.Random(f"{seed} IMDS"))
    try:
        with http_receiver() as one, http_receiver() as two, http_receiver() as traces, reports() as hooks:
            scene = Scene(folder, azure, (one, two), traces, hooks)
            try:
                yield scene
            finally:
                scene.close()
    finally:
        azure.misbehave("")
        azure.stop()


def soak(folder: Path, seconds: float, seed: int | str) -> Iterator[str]:
    """Run the soak, and tell its figures, line by line.

    Raises:
        AssertionError: something was lost, doubled, forbidden, or grew.
    """
    with stage(folder, seed) as scene:
        director = Director(scene, seed)
        begun = time.monotonic()
        director.run(seconds)
        yield f"{time.monotonic() - begun:.0f} s, seed {seed}; all agrees"
        yield from _figures(scene, director)


def _figures(scene: Scene, director: Director) -> Iterator[str]:
    quiet = director.quiet
    for kind, count in sorted(scene.counts.items()):
        yield f"{count:6} {kind}"
    happened = Counter(told.transition for told in quiet.history.worlds[0].state.told)
    yield f"{happened.total():6} transitions: " + ", ".join(f"{n} {t}" for t, n in sorted(happened.items()))
    for number, chat in enumerate(scene.chats, start=1):
        count = sum(len(batch) for _, batch in batches(chat))
        lost = sum(not request.answered for request in chat.requests)
        yield f"{count:6} tellings in {len(chat.requests)} messages to receiver {number}, {lost} unanswered"
    approvals = {i for talk in scene.azure.talks for i in talk.approves}
    yield f"{len(approvals):6} events approved, in {sum(t.approving for t in scene.azure.talks)} requests"
    again = sum(run.attempt > 1 for run in scene.hooks.runs)
    yield f"{len(scene.hooks.runs):6} runs of hooks, {again} of them second attempts or later"
    yield f"{len(spans(scene.traces)):6} spans"
    polls = sum(talk.who == "poller" for talk in scene.azure.talks)
    yield f"{polls:6} polls, {len(scene.processes)} lives, {len(quiet.took)} quiet moments"
    yield f"{quiet.history.most:6} possible worlds at most; {max(quiet.took):.1f} s to settle at most"
    for process in scene.processes:
        if len(process.measures) > 2:
            memory, threads, files = (
                " ".join(f"{getattr(measure, name):.{digits}f}" for measure in process.measures)
                for name, digits in (("memory", 1), ("threads", 0), ("files", 0))
            )
            yield f"       life {process.number}: MiB {memory}; threads {threads}; files {files}"


def main() -> int:
    """Run it with settings from the environment; return the exit status."""
    seconds = float(os.environ.get("SOAK_SECONDS", "300"))
    seed = os.environ.get("SOAK_SEED", "1")
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        for line in soak(folder, seconds, seed):
            sys.stdout.write(f"{line}\n")
    except AssertionError:
        sys.stdout.write(f"state and logs are in {folder}\n")
        raise
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
