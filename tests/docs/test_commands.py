"""The commands that README.md and docs/ show; `make test-deb` installs and runs what README.md says."""

import re
import shlex
import subprocess

import pytest

from exporter.cli import main
from exporter.config import PROGRAM
from tests.docs.pages import ROOT, Block, blocks
from tests.web.support import application

_RUN = re.compile(rf"^(?:[A-Z_]+=\S+ )*{PROGRAM} (.+)$", re.MULTILINE)
_PATH = re.compile(r"http://localhost:9843(/\S*)")
_FILE = re.compile(r"[\s\"=]((?:alerts|dashboards|deploy|docs|examples|requirements)/[\w./-]+)")


@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_a_block_names_what_there_is(block: Block) -> None:
    """Bash can read it; the program's commands and flags, addresses of the exporter, and files exist."""
    subprocess.run(["bash", "-n", "-c", block.text], check=True)
    text = block.text.replace("\\\n", " ")
    for words in _RUN.findall(text):
        name, *rest = shlex.split(words)
        flags = {flag for parameter in main.commands[name].params for flag in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= flags
    assert {*_PATH.findall(text)} <= application().routes.keys()
    assert [file for file in _FILE.findall(text) if not (ROOT / file).exists()] == []


def test_the_program_is_found_in_blocks() -> None:
    """Commands are read as they are written."""
    assert sum(bool(_RUN.findall(block.text)) for block in blocks("sh")) > 10
