"""The instructions for the dashboards work as they stand; `scripts.dashboards` checks the files."""

import json
import re
import shutil
import subprocess
from pathlib import Path

from tests.dashboards.reading import FOLDER, NAMES


def test_the_commands_of_the_instructions_do_what_they_say(tmp_path: Path) -> None:
    """Files and pages that they name exist, and another job's name gets to where the variable looks."""
    text = (FOLDER.parent / "docs" / "grafana.md").read_text(encoding="utf-8")
    files = re.findall(r"--from-file=(\S+)", text)
    assert {Path(file).name for file in files} == {f"{name}.json" for name in NAMES}
    named = [*files, *(f"docs/{link}" for link in re.findall(r"\]\((?!https?:)([^)#]+)", text))]
    assert all((FOLDER.parent / file).exists() for file in named)
    (program,) = re.findall(r"sed -i '([^']+)'", text)
    for name in NAMES:
        file = tmp_path / f"{name}.json"
        shutil.copy(FOLDER / file.name, file)
        subprocess.run(["sed", "-i", program, file], check=True)
        renamed = json.loads(file.read_text(encoding="utf-8"))["templating"]["list"]
        assert {"selected": True, "text": ["my-job"], "value": ["my-job"]} in [
            v.get("current") for v in renamed
        ]
