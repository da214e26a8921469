"""Writes the dashboards: `python -m dashboards.build`."""

import json
from collections.abc import Mapping
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.source.exporter import exporter
from dashboards.source.fleet import fleet
from dashboards.source.instance import instance

FOLDER = Path(__file__).parent


def encode(dashboard: Dashboard) -> str:
    """Write a dashboard as the JSON that Grafana imports."""
    plain = json.loads(json.dumps(dashboard, cls=JSONEncoder))
    # The SDK puts every link into a menu of Grafana 12, where nobody on call would look for it.
    for link in plain["links"]:
        link.pop("placement", None)
    return json.dumps(plain, indent=2, sort_keys=True) + "\n"


def build() -> Mapping[str, str]:
    """Return the JSON of each dashboard, by the name of its file."""
    builders = {"fleet.json": fleet, "instance.json": instance, "exporter.json": exporter}
    return {name: encode(builder()) for name, builder in builders.items()}


def main() -> None:
    """Write the files."""
    for name, text in build().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
