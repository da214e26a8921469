"""The mixin has the rules and the dashboards."""

import json

import _jsonnet

from scripts.alerts import ALERTS, groups
from scripts.project import ROOT


def test_the_mixin_is_what_the_files_are() -> None:
    """Tools of others get the same rules and dashboards from it."""
    text = "local mixin = import 'mixin.libsonnet'; [mixin.prometheusAlerts.groups, mixin.grafanaDashboards]"
    found, boards = json.loads(_jsonnet.evaluate_snippet(str(ALERTS / "mixin" / "-"), text))
    assert found == groups()
    assert boards == {name: json.loads((ROOT / "dashboards" / name).read_text()) for name in boards}
    assert len(boards) == 3
