"""Check that a tag names the version of everything that has one: ``python3 -m scripts.version v1.2.3``.

It needs nothing but Python, as a release begins with it.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHART = "deploy/helm/azure-scheduled-events-exporter/Chart.yaml"
# Where a version stands, and how.
PLACES = (
    ("exporter/__init__.py", r'^__version__ = "(.+)"$'),
    (CHART, r"^version: (.+)$"),
    (CHART, r"^appVersion: (.+)$"),
    ("CHANGELOG.md", r"^## \[?(\d[^\s\]]*)"),
)


def problems(tag: str) -> list[str]:
    """Return where another version stands than in the tag."""
    wrong = []
    for path, pattern in PLACES:
        found = re.search(pattern, (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
        version = found[1].strip('"') if found else "none"
        if tag != f"v{version}":
            wrong.append(f"{path}: the version is {version}, and the tag {tag}")
    return wrong


if __name__ == "__main__":
    sys.exit("\n".join(problems(sys.argv[1])) or None)
