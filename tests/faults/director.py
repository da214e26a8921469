"""Going through a plan: faults begin and end, the truth changes, and now and then all is to be quiet."""

import contextlib
import time
from collections.abc import Callable
from typing import Any, Protocol

from tests.faults import plan
from tests.faults.plan import Fault
from tests.faults.quiet import Quiet
from tests.faults.scene import Scene

TICK = 0.02
LOOK_SECONDS = 0.2
# From that part of the time on nothing restarts, so that growth would show.
CALM_PART = 0.6


class Lift(Protocol):
    """Ends a fault; where its end was put off, only if forced to."""

    def __call__(self, *, force: bool = False) -> None:
        """Do so."""


class Director:
    """Leads one run."""

    def __init__(self, scene: Scene, seed: int | str) -> None:
        self.scene = scene
        self.quiet = Quiet(scene)
        self._look_at = 0.0
        self._faults = plan.faults(seed)
        self._changes = plan.changes(seed)
        self._quiet_points = plan.quiet_points(seed)
        self._undo: list[tuple[float, Lift]] = []
        self._lift: dict[str, float] = {}
        # Seconds of the plan, which stand still at quiet moments.
        self._now = 0.0
        self._soon = float("inf")

    def run(self, seconds: float) -> None:
        """Go through the plan for so long, and then settle."""
        scene = self.scene
        begun = last = time.monotonic()
        scene.start()
        change, quiet, fault = next(self._changes), next(self._quiet_points), next(self._faults)
        while (passed := time.monotonic() - begun) < seconds:
            time.sleep(TICK)
            # What took long, as a stop may, shall not make the plan catch up in a rush.
            self._now += min(time.monotonic() - last, 10 * TICK)
            last = time.monotonic()
            while self._now >= change:
                scene.azure.truth.change()
                scene.counts["change"] += 1
                change = next(self._changes)
            if self._now >= fault.at:
                self._do(fault, calm=passed > CALM_PART * seconds)
                fault = next(self._faults)
            self._tick()
            if self._now >= min(quiet, self._soon):
                self._soon = float("inf")
                self._settle()
                while quiet <= self._now:
                    quiet = next(self._quiet_points)
                last = time.monotonic()
        self._settle()
        scene.azure.truth.clear()
        self._settle()
        self.quiet.end()

    def _settle(self) -> None:
        self.scene.note("a quiet moment")
        for _, undo in self._undo:
            undo(force=True)
        self._undo = []
        self.scene.start()
        self.quiet.settle()

    def _do(self, fault: Fault, *, calm: bool) -> None:
        if calm and fault.kind in plan.RESTARTS:
            return
        self.scene.note(str(fault))
        try:
            done = self._begin(fault)
        except OSError:
            done = False
        if done:
            name = f"{fault.kind} {fault.value}" if fault.kind == "imds" else fault.kind
            self.scene.counts[name] += 1

    def _begin(self, fault: Fault) -> bool:
        """Inject a fault; return False where that is not possible now."""
        scene, value = self.scene, fault.value
        match fault.kind:
            case "imds":
                scene.azure.misbehave(str(value))
                self._later("imds", fault, lambda: scene.azure.misbehave(""))
                return True
            case "receiver":
                number, _, mood = str(value).partition(" ")
                self._spoil(f"receiver {number}", fault, scene.chats[int(number)], mood)
                return True
            case "traces":
                self._spoil("traces", fault, scene.traces, str(value))
                return True
            case "clock":
                scene.set_clock(float(value))
                return True
        if not scene.alive:
            return False
        return self._upset(fault)

    def _upset(self, fault: Fault) -> bool:
        scene, value = self.scene, fault.value
        process = scene.process
        match fault.kind:
            case "disk":
                scene.fill_disk(int(value))
                self._later("disk", fault, scene.free_disk)
            case "pause" if not process.stopped:
                process.stop()
                self._later("pause", fault, process.go_on)
            case "kill" | "stop":
                if scene.disk_in_doubt:
                    # Several such ends in a row would leave too many possible worlds to follow.
                    self._soon = self._now + 2.5
                scene.end(fault.kind)
                self._later("down", fault, scene.start)
            case "reload" if scene.reloading is None and not process.stopped:
                scene.reload(str(value))
            case "bad reload" if scene.reloading is None and not process.stopped:
                scene.reload_badly(int(value))
            case "log" if not process.deaf:
                process.close_log()
            case _:
                return False
        return True

    def _spoil(self, name: str, fault: Fault, receiver: Any, mood: str) -> None:
        receiver.mood = int(mood) if mood.isdigit() else mood

        def mend() -> None:
            receiver.mood = 200
            receiver.released.set()
            receiver.released = type(receiver.released)()

        self._later(name, fault, mend)

    def _later(self, name: str, fault: Fault, undo: Callable[[], None]) -> None:
        """Undo a fault when its time is over; a newer one of its kind postpones that."""
        self._lift[name] = fault.at + fault.seconds

        def lift(*, force: bool = False) -> None:
            if force or self._now >= self._lift[name]:
                undo()

        self._undo.append((fault.at + fault.seconds, lift))

    def _tick(self) -> None:
        due = [undo for at, undo in self._undo if at <= self._now]
        self._undo = [entry for entry in self._undo if entry[1] not in due]
        for undo in due:
            undo()
        scene = self.scene
        if scene.alive:
            died = scene.process.died()
            assert died is None, f"the exporter ended by itself: {died}; {scene.process.lines[-3:]}"
            if not scene.process.stopped and time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + LOOK_SECONDS
                with contextlib.suppress(OSError):
                    scene.look_at_reload()
                    scene.look_at_disk()
