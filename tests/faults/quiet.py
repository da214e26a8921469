"""A quiet moment: nothing fails any more, and everything has to agree."""

import time
from datetime import UTC, datetime
from typing import Any

from tests.end_to_end.program import eventually
from tests.faults import checks, growth
from tests.faults.history import History
from tests.faults.leaves import Leaves
from tests.faults.model import OVER, View, World, view
from tests.faults.scene import HASTE, TARGETS, Scene

# A target that was down for some seconds may be left alone for 20 more, IMDS for 10, the disk for 10.
SETTLE_SECONDS = 60.0
# The lives of each event, by its first id in small letters.
Shown = dict[str, list[dict[str, Any]]]


class Quiet:
    """Waits until everything has settled, and checks it."""

    def __init__(self, scene: Scene) -> None:
        self.history = History(scene)
        self.took: list[float] = []
        self._scene = scene
        self._leaves = Leaves(scene, datetime.now(UTC), time.monotonic())

    def settle(self) -> None:
        """Wait for all that must come, check that nothing else has, and measure."""
        begun = time.monotonic()
        eventually(self._has_settled, within=SETTLE_SECONDS, every=0.2)
        eventually(self.history.read)
        shown = self._shown()
        self.history.agree(_view(shown))
        eventually(lambda: self._agrees(shown), within=SETTLE_SECONDS, every=0.3)
        self.took.append(time.monotonic() - begun)
        growth.check_rest(self._scene.process)
        checks.logs(self._scene.processes)
        # What fails next shall not reach back to before this moment.
        time.sleep(2 * HASTE)

    def end(self) -> None:
        """End the last life cleanly, and check what is left to check."""
        self._scene.end("stop")
        assert self._scene.process.status == 0
        checks.logs(self._scene.processes)
        for process in self._scene.processes:
            growth.check(process)

    def _has_settled(self) -> bool:
        scene = self._scene
        newest = scene.azure.truth.newest
        samples, status = scene.api.samples(), scene.api.status()
        listed = {event.id.lower() for event in newest.events if event.state not in OVER}
        shown = [{i.lower() for i in life["ids"]} for life in scene.api.events()["current"]]
        return (
            bool(status["up"])
            and status["document_incarnation"] == newest.incarnation
            and listed <= set().union(*shown)
            and all(listed & ids for ids in shown)
            and all(samples[f'notifications_pending{{target="{target}"}}'] == 0 for target in TARGETS)
            and scene.look_at_reload()
            and scene.look_at_disk()
            and scene.hooks.idle()
        )

    def _shown(self) -> Shown:
        found: Shown = {}
        events = self._scene.api.events()
        for life in (*events["current"], *events["past"]):
            found.setdefault(str(life["id"]).lower(), []).append(life)
        return found

    def _agrees(self, before: Shown) -> bool:
        """Check all for every possible world; one has to stand, and those that do not are left behind."""
        shown = self._shown()
        assert _view(shown) == _view(before)
        checks.spans(self._scene)
        standing, problem = [], None
        for world in self.history.worlds:
            try:
                self._check(world, shown)
                standing.append(world)
            except AssertionError as error:
                problem = error
        if problem is not None and not standing:
            raise problem
        # Each of those with one future explains what was told until now; nothing of that comes any more.
        self.history.worlds = list({world.state.future: world for world in standing}.values())
        return True

    def _check(self, world: World, shown: Shown) -> None:
        scene = self._scene
        told = self._leaves.check(world, shown) + checks.updates(world, shown)
        told += checks.failures(scene, shown)
        for chat in scene.chats:
            checks.messages(scene, chat, world, told)
        checks.hooks(scene, world, shown)


def _view(shown: Shown) -> View:
    """Return what happened to each event by Azure's doing."""
    return {
        key: view((life["target"], [entry["transition"] for entry in life["transitions"]]) for life in lives)
        for key, lives in shown.items()
    }
