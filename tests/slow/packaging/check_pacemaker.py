"""The hook of examples/pacemaker, at work in a real cluster of one node, in a Debian that systemd boots.

Not among the tests that pytest finds by itself: ``make test-pacemaker`` runs it, as root.
"""

import shutil
from pathlib import Path

import pytest

from tests.slow.packaging.debian import PYTHON, boot, root

HOOK = Path(__file__).parents[3] / "examples" / "pacemaker" / "set_health"


@pytest.mark.timeout(900)
def test_resources_move_away_and_come_back(check: Path) -> None:
    """Each step of pacemaker.sh succeeds."""
    shutil.copy(HOOK, check)
    packages = ("pacemaker", "corosync", "pacemaker-cli-utils", "pacemaker-resource-agents")
    boot(root("pacemaker", (*PYTHON, *packages)), check, "pacemaker.sh")
