"""Render the Helm chart as the tests look at it: ``python -m scripts.renderings HELM``.

Each ``NAME.values.yaml``, also of ``examples/kubernetes``, gets its ``NAME.yaml``, which begins with a
checksum of the chart: without Helm, a test can tell that it is out of date.
"""

import hashlib
import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml

_PROJECT = Path(__file__).parent.parent
CHART = _PROJECT / "deploy" / "helm" / "azure-scheduled-events-exporter"
_FOLDERS = (_PROJECT / "tests" / "deploy" / "renderings", _PROJECT / "examples" / "kubernetes")
VALUES = sorted(path for folder in _FOLDERS for path in folder.glob("*.values.yaml"))
# The oldest that the chart installs on.
KUBERNETES = "1.30.0"


def rendering(values: Path) -> Path:
    """Return the rendering that belongs to a file of values."""
    return values.with_name(values.name.replace(".values", ""))


def values_table(text: str) -> str:
    """Return the table of values that helm-docs makes of values.yaml: of keys with a comment ``# --``."""
    rows: list[str] = []
    place: list[str] = []
    said = ""
    for line in text.splitlines():
        if found := re.match(r"( *)# (-- )?(.*)", line):
            said = found[3] if found[2] else f"{said} {found[3]}" if said else ""
        elif found := re.match(r"( *)([A-Za-z]+):(.*)", line):
            place = [*place[: len(found[1]) // 2], found[2]]
            if said:
                default = json.dumps(_value(yaml.safe_load(text), place))
                rows.append(f"| {'.'.join(place)} | `{default}` | {said} |")
            said = ""
    return "\n".join(["| Key | Default | Description |", "|-----|---------|-------------|", *rows, ""])


def _value(values: Any, place: Sequence[str]) -> Any:
    for key in place:
        values = values[key]
    return values


def heading(values: Path) -> str:
    """Return the first line of a rendering of the chart as it is now, with these values."""
    files = [CHART / "Chart.yaml", CHART / "values.yaml", *sorted(CHART.glob("templates/*")), values]
    content = b"".join(path.read_bytes() for path in files)
    return f"# make renderings made this of the chart with SHA-256 {hashlib.sha256(content).hexdigest()}\n"


def is_current(values: Path) -> bool:
    """Return whether the rendering with these values is of the chart as it is now."""
    return rendering(values).read_text().startswith(heading(values))


def render(helm: str, values: Path) -> str:
    """Return what Helm makes of the chart with these values."""
    command = [helm, "template", "events", str(CHART), "--namespace", "monitoring"]
    command += ["--kube-version", KUBERNETES, "--values", str(values)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603  # the Helm we built
    return heading(values) + done.stdout


@click.command()
@click.argument("helm")
def main(helm: str) -> None:
    """Write all renderings, and the values in the README of the chart."""
    for values in VALUES:
        rendering(values).write_text(render(helm, values))
    readme, table = CHART / "README.md", values_table((CHART / "values.yaml").read_text())
    before = readme.read_text().partition("## Values\n")[0]
    readme.write_text(f"{before}## Values\n\n{table}")


if __name__ == "__main__":
    main()
