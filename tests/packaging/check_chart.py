"""The Helm chart against a real API server: linted, rendered, installed, upgraded, tested and uninstalled.

Not among the tests that pytest finds by itself: Go builds what it needs. ``make test-kubernetes`` runs it.
"""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from scripts.renderings import CHART, RENDERINGS, render
from tests.end_to_end.program import eventually
from tests.packaging.cluster import Cluster, cluster

PROJECT = Path(__file__).parent.parent.parent
REGISTRY = ("--set", "image.registry=registry.example.com")
RELEASE = ("events", str(CHART), "--namespace", "monitoring", *REGISTRY)
NAME = "events-azure-scheduled-events-exporter"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[Cluster]:
    """Return a cluster with a namespace for the release."""
    with cluster() as found:
        found.kubectl("create", "namespace", "monitoring")
        yield found


@pytest.mark.parametrize("values", sorted(RENDERINGS.glob("*.values.yaml")), ids=lambda path: path.name)
def test_the_renderings_are_what_helm_makes(values: Path) -> None:
    """The committed renderings, which make test looks at, are of this chart."""
    rendering = values.with_name(values.name.replace(".values", ""))
    assert rendering.read_text() == render(f"{os.environ['TOOLS']}/helm", values)


def test_lint(kubernetes: Cluster) -> None:
    """Helm finds no mistake."""
    assert "0 chart(s) failed" in kubernetes.helm("lint", "--strict", str(CHART), *REGISTRY)


def test_values_that_nobody_knows_are_refused(kubernetes: Cluster) -> None:
    """By the schema, and so is an installation that does not say where the image is."""
    with pytest.raises(AssertionError, match="no_such_value"):
        kubernetes.helm("install", *RELEASE, "--set", "no_such_value=1")
    with pytest.raises(AssertionError, match=r"image\.registry is required"):
        kubernetes.helm("install", "events", str(CHART), "--namespace", "monitoring")


def test_a_release(kubernetes: Cluster) -> None:
    """All of it is accepted by the server, an upgrade changes it, and nothing is left in the end."""
    everything = [
        "prometheus.podMonitor.enabled=true",
        "prometheus.rules.enabled=true",
        "dashboards.enabled=true",
        "networkPolicy.enabled=true",
        "windows.enabled=true",
        "windows.image=registry.example.com/windows",
    ]
    kubernetes.helm("install", *RELEASE, "--set", ",".join(everything))
    rules = kubernetes.get("prometheusrule", "--namespace", "monitoring", NAME)
    assert rules["spec"] == yaml.safe_load((PROJECT / "alerts" / "scheduled-events.rules.yml").read_text())
    fleet = kubernetes.get("configmap", "--namespace", "monitoring", f"{NAME}-fleet")
    assert fleet["data"]["scheduled-events-fleet.json"] == (PROJECT / "dashboards" / "fleet.json").read_text()
    before = kubernetes.get("daemonset", "--namespace", "monitoring", NAME)
    kubernetes.helm("upgrade", *RELEASE, "--set", "config.metrics.resources=true")
    after = kubernetes.get("daemonset", "--namespace", "monitoring", NAME)
    annotations = [one["spec"]["template"]["metadata"]["annotations"] for one in (before, after)]
    assert annotations[0] != annotations[1]
    assert kubernetes.get("podmonitor", "--namespace", "monitoring")["items"] == []
    _helm_test(kubernetes)
    kubernetes.helm("uninstall", "events", "--namespace", "monitoring")
    kinds = "daemonsets,services,serviceaccounts,configmaps,pods,networkpolicies"
    left = kubernetes.get(
        kinds, "--namespace", "monitoring", "--selector", "app.kubernetes.io/instance=events"
    )
    assert left["items"] == []


def _helm_test(kubernetes: Cluster) -> None:
    """Run `helm test`; nobody runs its pod here, so that it succeeds because we say so."""

    def succeed() -> None:
        status = '{"status": {"phase": "Succeeded"}}'
        patch = ["patch", "pod", f"{NAME}-test", "--namespace", "monitoring", "--subresource", "status"]
        eventually(lambda: kubernetes.kubectl(*patch, "--patch", status), within=60, every=1)

    kubelet = threading.Thread(target=succeed)
    kubelet.start()
    assert "Phase:          Succeeded" in kubernetes.helm("test", "events", "--namespace", "monitoring")
    kubelet.join()
