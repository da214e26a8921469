"""Every command that README.md and docs/ show is run."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks
from tests.docs.stage import NOT_HERE, Stage, stage


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Run an exporter and a simulated Azure for all commands."""
    with stage(tmp_path_factory.mktemp("stage")) as found:
        yield found


@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_commands_succeed(block: Block, theatre: Stage) -> None:
    """Each block runs as it stands, but for addresses and directories; what cannot run here is replaced."""
    done = theatre.run(block)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_replaced_is_used() -> None:
    """Programs that cannot run here are listed only if the documentation names them."""
    text = "".join(block.text for block in blocks("sh"))
    assert [name for name in NOT_HERE if not re.search(rf"(^|[\s/]){name}\s", text, re.MULTILINE)] == []


def test_targets_of_make_exist() -> None:
    """What the documentation has one make is a target."""
    text = "".join(page.read_text() for page in [ROOT / "README.md", *Path(ROOT / "docs").glob("*.md")])
    targets = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([\w-]+)", text, re.MULTILINE)) <= targets
