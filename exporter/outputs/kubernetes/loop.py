"""The loops that keep the Node of this VM as it should be."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from exporter.config.kubernetes import DRAIN
from exporter.config.loading import Loaded
from exporter.model.lifecycle import Transition
from exporter.model.views import NodeView, WorkView
from exporter.outputs.kubernetes.results import DrainResults
from exporter.outputs.kubernetes.section import KubernetesSection
from exporter.outputs.output import Core, Output
from exporter.work import Loop

if TYPE_CHECKING:
    from exporter.outputs.kubernetes.drain import Drainer
    from exporter.outputs.kubernetes.reconciler import NodeReconciler


class _Parts(NamedTuple):
    """What one configuration brings about; without a ``reconciler``, it wants nothing of any Node.

    The ``leavers`` take back the marks of Nodes that it does not want marked; they outlive configurations.
    """

    reconciler: "NodeReconciler | None" = None
    drainer: "Drainer | None" = None
    leavers: tuple["NodeReconciler", ...] = ()

    def stop(self) -> None:
        """Send no more evictions, and keep no connections."""
        if self.drainer is not None:
            self.drainer.stop()
        for reconciler in (self.reconciler, *self.leavers):
            if reconciler is not None:
                reconciler.client.close()


class NodeLoop(Output):
    """Makes the Node what it should be; nothing waits for the drain, which has a thread of its own."""

    name = "kubernetes"
    section = KubernetesSection()

    def __init__(self, core: Core) -> None:
        self._views = core.views
        self._results = DrainResults(core)
        self._parts = _Parts()
        self._loop = Loop("kubernetes", self.step)
        self._drain = Loop("kubernetes drain", self._step_drain)

    @property
    def node(self) -> NodeView | None:
        reconciler, drainer, _ = self._parts
        if reconciler is None:
            return None
        return NodeView(reconciler.name, reconciler.cordoned, drainer.doing if drainer is not None else "")

    def configure(self, loaded: Loaded, environ: Mapping[str, str]) -> None:
        settings = loaded.config.kubernetes
        name, drain, before = settings.node_name(environ), settings.drain, self._parts
        if not (name or before.reconciler or before.leavers):
            return
        # Imported here, because most VMs are not Nodes.
        from exporter.outputs.kubernetes.client import Client
        from exporter.outputs.kubernetes.drain import Drainer
        from exporter.outputs.kubernetes.reconciler import NodeReconciler

        results, views = self._results, self._views
        leaving = [leaver for leaver in before.leavers if not leaver.is_done]
        former = before.reconciler
        if former is not None and former.name != name and former.client.has_account:
            leaving.append(NodeReconciler(former.client, former.name, None, results, views))
        client, reconciler, drainer = Client(settings.service_account, environ), None, None
        if name and (settings.conditions or drain.enabled):
            reconciler = NodeReconciler(client, name, settings, results, views, changed=self._drain.wake)
            if drain.enabled:
                results.metrics.hooks.expect([DRAIN])
                results.metrics.expect(Transition.HOOK_FAILED)
                results.evictions.expect()
                if drain.mode != "cordon":
                    drainer = Drainer(reconciler, drain, results, views, changed=self._loop.wake)
        leaving = [leaver for leaver in leaving if leaver.name != name]
        if name and reconciler is None and client.has_account:
            # An earlier configuration, perhaps that of a former process, may have marked it.
            leaving.append(NodeReconciler(client, name, None, results, views))
        leavers = tuple(leaving)
        self._parts = _Parts(reconciler, drainer, leavers)
        before.stop()
        for part in (former, before.drainer, *before.leavers):
            if part is not None and part not in leavers:
                part.close()
        self._loop.start()
        self._loop.wake()
        if drainer is not None:
            self._drain.start()
        self._drain.wake()

    def work(self, life_key: str) -> list[WorkView]:
        return self._results.jobs.views(life_key, "hook")

    def wake(self) -> None:
        self._loop.wake()
        self._drain.wake()

    def step(self) -> float | None:
        reconciler, _, leavers = self._parts
        reconcilers = [
            candidate
            for candidate in (reconciler, *leavers)
            if candidate is not None and not candidate.is_done
        ]
        return min((candidate.step() for candidate in reconcilers), default=None)

    def _step_drain(self) -> float | None:
        drainer = self._parts.drainer
        return drainer.step() if drainer is not None else None

    def stop(self, timeout: float) -> bool:
        deadline = self._results.clock.monotonic() + timeout
        self._parts.stop()
        for loop in (self._loop, self._drain):
            loop.stop()
        ended = [loop.join(deadline - self._results.clock.monotonic()) for loop in (self._loop, self._drain)]
        return all(ended)
