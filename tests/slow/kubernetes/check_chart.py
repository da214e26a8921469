"""The Helm chart against a real API server: linted, rendered, installed, upgraded, tested and uninstalled.

Not among the tests that pytest finds by itself: Go builds what it needs. ``make test-kubernetes`` runs it.
"""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.alerts import groups
from scripts.renderings import CHART, VALUES, render, rendering
from tests.end_to_end.program import eventually
from tests.slow.kubernetes.cluster import Cluster, cluster

PROJECT = Path(__file__).parents[3]
REGISTRY = ("--set", "image.registry=registry.example.com")
RELEASE = ("events", str(CHART), "--namespace", "monitoring", *REGISTRY)
NAME = "events-azure-scheduled-events-exporter"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[Cluster]:
    with cluster() as found:
        found.create("/api/v1/namespaces", "Namespace", {"metadata": {"name": "monitoring"}})
        yield found


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.name)
def test_the_renderings_are_what_helm_makes(values: Path) -> None:
    """The committed renderings, which make test looks at, are of this chart."""
    assert rendering(values).read_text() == render(f"{os.environ['TOOLS']}/helm", values)


def test_lint(kubernetes: Cluster) -> None:
    """Helm finds no mistake."""
    assert "0 chart(s) failed" in kubernetes.helm("lint", "--strict", str(CHART), *REGISTRY)


def test_values_that_nobody_knows_are_refused(kubernetes: Cluster) -> None:
    """The schema names them."""
    with pytest.raises(AssertionError, match="no_such_value"):
        kubernetes.helm("install", *RELEASE, "--set", "no_such_value=1")


def found(kubernetes: Cluster, group: str, plural: str) -> Any:
    return kubernetes.get(f"/apis/{group}/v1/namespaces/monitoring/{plural}/{NAME}")


def test_a_release(kubernetes: Cluster, tmp_path: Path) -> None:
    """The server accepts all of the packaged chart, an upgrade changes it, and nothing is left in the end."""
    kubernetes.helm("package", str(CHART), "--destination", str(tmp_path))
    (package,) = tmp_path.iterdir()
    release = ("events", str(package), *RELEASE[2:])
    everything = [
        "prometheus.podMonitor.enabled=true",
        "prometheus.serviceMonitor.enabled=true",
        "prometheus.rules.enabled=true",
        "dashboards.enabled=true",
        "networkPolicy.enabled=true",
        "drain.enabled=true",
        "drain.excludeFromLoadBalancers=true",
        "windows.enabled=true",
        "windows.image=registry.example.com/windows",
    ]
    kubernetes.helm("install", *release, "--set", ",".join(everything))
    rules = found(kubernetes, "monitoring.coreos.com", "prometheusrules")
    assert rules["spec"]["groups"] == groups()
    fleet = kubernetes.get(f"/api/v1/namespaces/monitoring/configmaps/{NAME}-fleet")
    assert fleet["data"]["scheduled-events-fleet.json"] == (PROJECT / "dashboards" / "fleet.json").read_text()
    before = found(kubernetes, "apps", "daemonsets")
    kubernetes.helm("upgrade", *release, "--set", "config.metrics.resources=true")
    after = found(kubernetes, "apps", "daemonsets")
    annotations = [one["spec"]["template"]["metadata"]["annotations"] for one in (before, after)]
    assert annotations[0] != annotations[1]
    assert kubernetes.get("/apis/monitoring.coreos.com/v1/podmonitors")["items"] == []
    _helm_test(kubernetes)
    _uninstall(kubernetes)


def _uninstall(kubernetes: Cluster) -> None:
    kubernetes.helm("uninstall", "events", "--namespace", "monitoring")
    for path in ("apps/v1/daemonsets", "rbac.authorization.k8s.io/v1/clusterroles"):
        left = kubernetes.get(f"/apis/{path}", labelSelector="app.kubernetes.io/instance=events")
        assert left["items"] == []


def test_the_values_of_another_chart(kubernetes: Cluster) -> None:
    """An upgrade that would keep the defaults of another chart is refused."""
    with pytest.raises(AssertionError, match="upgrade with --reset-then-reuse-values"):
        kubernetes.helm("install", *RELEASE, "--set", "rbac=null")


def _helm_test(kubernetes: Cluster) -> None:
    """Run `helm test`; nobody runs its pod here, so that it succeeds because we say so."""

    def succeed() -> None:
        path = f"/api/v1/namespaces/monitoring/pods/{NAME}-test/status"
        patch = {"status": {"phase": "Succeeded"}}
        eventually(lambda: kubernetes.ask("PATCH", path, patch), within=60, every=1)

    kubelet = threading.Thread(target=succeed)
    kubelet.start()
    assert "Phase:          Succeeded" in kubernetes.helm("test", "events", "--namespace", "monitoring")
    kubelet.join()
