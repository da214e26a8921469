"""The Windows service's definition: what can be said of it without Windows; the workflow runs it there."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from exporter.cli import main
from exporter.config import PROGRAM

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
WINDOWS = DEPLOY / "windows"


def test_the_service_runs_the_program() -> None:
    """The definition is XML; it runs `run` with flags that exist, with few rights, and waits for its end."""
    service = ET.parse(WINDOWS / f"{PROGRAM}.xml").getroot()  # noqa: S314  # a file of ours
    assert service.findtext("id") == PROGRAM
    executable, arguments = str(service.findtext("executable")), str(service.findtext("arguments"))
    assert executable.endswith(f"{PROGRAM}.exe")
    assert arguments.split(maxsplit=1)[0] == "run"
    known = {flag for option in main.commands["run"].params for flag in option.opts}
    assert set(re.findall(r"--[a-z.-]+", arguments)) <= known
    assert service.findtext("serviceaccount/user") == "LocalService"
    assert service.findtext("stoptimeout") == "15 sec"
    assert service.find("onfailure[@action='restart']") is not None


def test_the_scripts_name_what_there_is() -> None:
    """Files of the project that they use exist, and all speak of the same service."""
    root = DEPLOY.parent
    for script in WINDOWS.glob("*.ps1"):
        text = script.read_text()
        assert f'$name = "{PROGRAM}"' in text
        for path in re.findall(r'Join-Path \$project "([^"]+)"', text):
            assert (root / path.replace("\\", "/")).exists()
    workflow = (root / ".github" / "workflows" / "ci.yml").read_text()
    assert "deploy/windows/check.ps1" in workflow
