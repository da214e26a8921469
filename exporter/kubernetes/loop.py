"""The loops that keep the Node of this VM as it should be."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from exporter.config.kubernetes import DRAIN, Kubernetes
from exporter.kubernetes.reports import DrainResults
from exporter.model.views import NodeView, Snapshot
from exporter.work import Loop

if TYPE_CHECKING:
    from exporter.kubernetes.drain import Drainer
    from exporter.kubernetes.keeper import NodeReconciler


class _Parts(NamedTuple):
    """What one configuration brings about; without a ``keeper``, it wants nothing of any Node.

    The ``leavers`` take back the marks of Nodes that it does not want marked; they outlive configurations.
    """

    keeper: "NodeReconciler | None" = None
    drainer: "Drainer | None" = None
    leavers: tuple["NodeReconciler", ...] = ()

    def stop(self) -> None:
        """Send no more evictions, and keep no connections."""
        if self.drainer is not None:
            self.drainer.stop()
        for keeper in (self.keeper, *self.leavers):
            if keeper is not None:
                keeper.client.close()


class NodeLoop:
    """Compares the Node with what it should be, and acts; the threads are started once there is a Node.

    The drain has its own, so that nothing else waits for it.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], reports: DrainResults) -> None:
        self._snapshot = snapshot
        self._reports = reports
        self._parts = _Parts()
        self._loop = Loop("kubernetes", self.step)
        self._drain = Loop("kubernetes drain", self._step_drain)

    @property
    def view(self) -> NodeView | None:
        keeper, drainer, _ = self._parts
        if keeper is None:
            return None
        return NodeView(keeper.name, keeper.cordoned, drainer.doing if drainer is not None else "")

    def configure(self, settings: Kubernetes, environ: Mapping[str, str]) -> None:
        name, drain, before = settings.node_name(environ), settings.drain, self._parts
        if not (name or before.keeper or before.leavers):
            return
        # Imported here, with the library for requests, because most VMs are not Nodes.
        from exporter.kubernetes.client import Client
        from exporter.kubernetes.drain import Drainer
        from exporter.kubernetes.keeper import NodeReconciler

        reports, snapshot = self._reports, self._snapshot
        leaving = [one for one in before.leavers if not one.is_done]
        if before.keeper is not None and before.keeper.name != name and before.keeper.client.has_account:
            leaving.append(NodeReconciler(before.keeper.client, before.keeper.name, None, reports, snapshot))
        client, keeper, drainer = Client(settings.service_account, environ), None, None
        if name and (settings.conditions or drain.enabled):
            keeper = NodeReconciler(client, name, settings, reports, snapshot, changed=self._drain.wake)
            if drain.enabled:
                reports.metrics.hooking([DRAIN])
                reports.metrics.draining()
                if drain.mode != "cordon":
                    drainer = Drainer(keeper, drain, reports, snapshot, changed=self._loop.wake)
        leaving = [one for one in leaving if one.name != name]
        if name and keeper is None and client.has_account:
            # An earlier configuration, perhaps that of a former process, may have marked it.
            leaving.append(NodeReconciler(client, name, None, reports, snapshot))
        leavers = tuple(leaving)
        self._parts = _Parts(keeper, drainer, leavers)
        before.stop()
        for one in (before.keeper, before.drainer, *before.leavers):
            if one is not None and one not in leavers:
                one.close()
        self._loop.start()
        self._loop.wake()
        if drainer is not None:
            self._drain.start()
        self._drain.wake()

    def wake(self) -> None:
        self._loop.wake()
        self._drain.wake()

    def step(self) -> float | None:
        keeper, _, leavers = self._parts
        keepers = [one for one in (keeper, *leavers) if one is not None and not one.is_done]
        return min((one.step() for one in keepers), default=None)

    def _step_drain(self) -> float | None:
        drainer = self._parts.drainer
        return drainer.step() if drainer is not None else None

    def stop(self, timeout: float) -> bool:
        deadline = self._reports.clock.monotonic() + timeout
        self._parts.stop()
        for loop in (self._loop, self._drain):
            loop.stop()
        ended = [loop.join(deadline - self._reports.clock.monotonic()) for loop in (self._loop, self._drain)]
        return all(ended)
