import os
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.config import Overrides
from exporter.config.loading import load

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/exporter.yml")), ids=lambda file: file.parent.name)
def test_configurations(file: Path) -> None:
    """`check-config` accepts them, and each file that a hook runs is there."""
    command = [sys.executable, "-m", "exporter", "check-config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    # The hooks need not be installed where the configuration is checked.
    warnings = done.stderr.splitlines()
    assert [line for line in warnings if not line.endswith(" does not exist")] == []
    for hook in load(file, Overrides()).hooks:
        words = [word for word in hook.command if word.startswith("/opt/scheduled-events/")]
        assert words
        for word in words:
            assert (EXAMPLES / word.removeprefix("/opt/scheduled-events/")).is_file()


@pytest.mark.parametrize("hook", [path for path in EXAMPLES.glob("*/*") if path.suffix in ("", ".py")])
def test_hooks_are_short(hook: Path) -> None:
    """Each has at most 40 lines besides comments, so that it can be read before it is trusted."""
    lines = [line.strip() for line in hook.read_text().splitlines()]
    assert sum(bool(line) and not line.startswith("#") for line in lines) <= 40


PACEMAKER = """#!/bin/sh
case ${0##*/} in
crm_node) echo node-1 ;;
crm_attribute) echo "$*" >>"${0%/*}/calls" ;;
crm_mon)
    echo . >>"${0%/*}/looks"
    cat "${0%/*}/answer-$(wc -l <"${0%/*}/looks")" ;;
esac
"""


def test_an_unknown_cluster_is_not_an_empty_node(tmp_path: Path) -> None:
    """While `crm_mon` fails or prints something else, the hook waits: success would let the event start."""
    for name in ("crm_node", "crm_attribute", "crm_mon"):
        (tmp_path / name).write_text(PACEMAKER)
        (tmp_path / name).chmod(0o755)
    # The first answer is missing: crm_mon fails.
    (tmp_path / "answer-2").write_text("")
    (tmp_path / "answer-3").write_text(
        '<pacemaker-result><resource id="a" active="true"/></pacemaker-result>'
    )
    (tmp_path / "answer-4").write_text(
        '<pacemaker-result><resource id="a" active="false"/></pacemaker-result>'
    )
    environ = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "EVENT_ID": "C7061BAC",
        "EVENT_TRANSITION": "scheduled",
    }
    script = str(EXAMPLES / "pacemaker" / "set_health")
    done = subprocess.run([script], env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "no resource runs on node-1\n")
    assert len((tmp_path / "looks").read_text().splitlines()) == 4
