"""The loop that keeps the Node of this VM as it should be."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from exporter.config.kubernetes import DRAIN, Kubernetes
from exporter.kubernetes.reports import Reports
from exporter.model.views import NodeView, Snapshot
from exporter.work import Loop

if TYPE_CHECKING:
    from exporter.kubernetes.keeper import Keeper


class NodeLoop:
    """Compares the Node with what it should be, and acts; the thread is started once there is a Node."""

    def __init__(self, snapshot: Callable[[], Snapshot], reports: Reports) -> None:
        self._snapshot = snapshot
        self._reports = reports
        self._keeper: Keeper | None = None
        self._loop = Loop("kubernetes", self.step)

    @property
    def view(self) -> NodeView | None:
        keeper = self._keeper
        return keeper.view if keeper is not None else None

    def configure(self, settings: Kubernetes, environ: Mapping[str, str]) -> None:
        name, drain = settings.node_name(environ), settings.drain
        replaced, self._keeper = self._keeper, None
        if replaced is not None:
            replaced.stop()
        # What it has marked is to be undone.
        is_left = replaced is not None and replaced.view.name == name
        if not name or not (settings.conditions or drain.enabled or is_left):
            self._reports.begin()
            self._reports.end()
            return
        if drain.enabled:
            self._reports.metrics.hooking([DRAIN])
            self._reports.metrics.draining()
        # Imported here, with the library for requests, because most VMs are not Nodes.
        from exporter.kubernetes.keeper import Keeper

        self._keeper = Keeper(name, settings, environ, self._reports)
        self._loop.start()
        self._loop.wake()

    def wake(self) -> None:
        self._loop.wake()

    def step(self) -> float | None:
        keeper = self._keeper
        return keeper.step(self._snapshot()) if keeper is not None else None

    def stop(self, timeout: float) -> bool:
        keeper = self._keeper
        if keeper is not None:
            keeper.stop()
        self._loop.stop()
        return self._loop.join(timeout)
