"""The hook of examples/pacemaker, at work in a real cluster of one node, in a Debian that systemd boots.

Not among the tests that pytest finds by itself: ``make test-pacemaker`` runs it, as root.
"""

import shutil
from pathlib import Path

import pytest

from tests.packaging.debian import boot, root

HOOK = Path(__file__).parent.parent.parent / "examples" / "pacemaker" / "set_health"
SCRIPT = Path(__file__).with_name("pacemaker.sh")


@pytest.mark.timeout(900)
def test_resources_move_away_and_come_back(tmp_path: Path) -> None:
    """Each step of pacemaker.sh succeeds."""
    check = tmp_path / "check"
    check.mkdir()
    shutil.copy(HOOK, check)
    shutil.copy(SCRIPT, check)
    debian = root("pacemaker", "pacemaker", "corosync", "pacemaker-cli-utils", "pacemaker-resource-agents")
    log = boot(debian, check, SCRIPT.name)
    assert log.endswith("the resource came back\n"), log
