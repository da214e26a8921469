"""Every command that README.md and docs/ show is run."""

import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import Block, blocks
from tests.docs.stage import NOT_HERE, Stage, stage


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("stage")) as found:
        yield found


@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_commands_succeed(block: Block, theatre: Stage) -> None:
    """Each block runs, with other addresses and directories; programs that cannot run here are replaced."""
    done = theatre.run(block)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_replaced_is_used() -> None:
    """Programs that cannot run here are listed only if the documentation names them."""
    text = "".join(block.text for block in blocks("sh"))
    assert [name for name in NOT_HERE if not re.search(rf"(^|[\s/]){name}\s", text, re.MULTILINE)] == []
