"""Copies the JSON schema of the configuration into that of the chart's values."""

import json
from typing import Any

from exporter.commands.schema import schema
from scripts.project import ROOT

_VALUES = ROOT / "deploy/helm/azure-scheduled-events-exporter/values.schema.json"


def values_schema() -> str:
    """Return the schema of the chart's values, with the current one of `config`."""
    values: dict[str, Any] = json.loads(_VALUES.read_text())
    values["properties"]["config"] = {"$ref": "#/definitions/Config"}
    values["definitions"] = schema()["definitions"]
    return json.dumps(values, indent=2) + "\n"


def is_current() -> bool:
    return values_schema() == _VALUES.read_text()


if __name__ == "__main__":
    _VALUES.write_text(values_schema())
