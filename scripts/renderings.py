"""Render the Helm chart as the tests look at it: ``python -m scripts.renderings HELM``.

Each ``tests/deploy/renderings/NAME.values.yaml`` gets its ``NAME.yaml``, which begins with a checksum of the
chart: without Helm, a test can tell that it is out of date.
"""

import hashlib
import subprocess
from pathlib import Path

import click

_PROJECT = Path(__file__).parent.parent
CHART = _PROJECT / "deploy" / "helm" / "azure-scheduled-events-exporter"
RENDERINGS = _PROJECT / "tests" / "deploy" / "renderings"
# The oldest that the chart installs on.
KUBERNETES = "1.30.0"


def heading(values: Path) -> str:
    """Return the first line of a rendering of the chart as it is now, with these values."""
    files = [CHART / "Chart.yaml", CHART / "values.yaml", *sorted(CHART.glob("templates/*")), values]
    content = b"".join(path.read_bytes() for path in files)
    return f"# make renderings made this of the chart with SHA-256 {hashlib.sha256(content).hexdigest()}\n"


def render(helm: str, values: Path) -> str:
    """Return what Helm makes of the chart with these values."""
    command = [helm, "template", "events", str(CHART), "--namespace", "monitoring"]
    command += ["--kube-version", KUBERNETES, "--values", str(values)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603  # the Helm we built
    return heading(values) + done.stdout


@click.command()
@click.argument("helm")
def main(helm: str) -> None:
    """Write all renderings."""
    for values in sorted(RENDERINGS.glob("*.values.yaml")):
        rendering = values.with_name(values.name.replace(".values", ""))
        rendering.write_text(render(helm, values))


if __name__ == "__main__":
    main()
