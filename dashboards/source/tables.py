"""Tables: rows merged from several queries by the labels that they share."""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grafana_foundation_sdk.builders import common, table
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig, DynamicConfigValue

from dashboards.source import style
from dashboards.source.panels import About
from dashboards.source.queries import DATASOURCE, Query, Shape, targets


@dataclass(frozen=True)
class Column:
    """A column: a label, or the values of an expression whose rows the labels identify.

    ``states`` shows values as words in colours, ``steps`` colours them, ``link`` is where a click leads;
    ``hidden`` are values whose labels alone matter.
    """

    title: str
    label: str = ""
    expression: str = ""
    unit: str = ""
    width: int | None = None
    decimals: int | None = None
    states: Mapping[int, tuple[str, str]] | Mapping[str, tuple[str, str]] = field(default_factory=dict)
    steps: Mapping[float, str] = field(default_factory=dict)
    link: str = ""
    hidden: bool = False


def table_of(
    about: About, columns: Sequence[Column], *, sort: str, descending: bool = False, then: str = ""
) -> table.Panel:
    """Build a table, sorted by a column; equals are sorted by ``then``."""
    queries = [Query(column.expression, shape=Shape.ROWS) for column in columns if column.expression]
    fields = _fields(columns)
    panel = (
        table.Panel()
        .title(about.title)
        .description(about.description)
        .unit(about.unit)
        .no_value(about.empty)
        .datasource(DATASOURCE)
        .targets(list(targets(queries)))
        .with_transformation(DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(_organized(fields, columns))
        .sort_by([common.TableSortByFieldState().display_name(sort).desc(descending)])
    )
    # The words for a panel without data would stand in every empty cell otherwise.
    panel.override_by_regexp("/.*/", [DynamicConfigValue("noValue", "")])
    if then:
        panel.with_transformation(
            DataTransformerConfig(id_val="sortBy", options={"fields": {}, "sort": [{"field": then}]})
        )
    for column in columns:
        properties = _properties(column)
        if properties:
            panel.override_by_name(column.title, properties)
    return panel


def _fields(columns: Sequence[Column]) -> list[str]:
    """Name the field of each column as Grafana does: of one query `Value`, of several `Value #A`."""
    letters = iter(string.ascii_uppercase)
    several = sum(bool(column.expression) for column in columns) > 1
    return [column.label or (f"Value #{next(letters)}" if several else "Value") for column in columns]


def _organized(fields: Sequence[str], columns: Sequence[Column]) -> DataTransformerConfig:
    return DataTransformerConfig(
        id_val="organize",
        options={
            "excludeByName": {"Time": True}
            | {name: True for name, column in zip(fields, columns, strict=True) if column.hidden},
            "indexByName": {name: index for index, name in enumerate(fields)},
            "renameByName": {name: column.title for name, column in zip(fields, columns, strict=True)},
        },
    )


def _properties(column: Column) -> list[DynamicConfigValue]:
    values: dict[str, Any] = {}
    if column.unit:
        values["unit"] = column.unit
    if column.width is not None:
        values["custom.width"] = column.width
    if column.decimals is not None:
        values["decimals"] = column.decimals
    if column.states:
        values["mappings"] = style.words(column.states)
    if column.steps:
        values["thresholds"] = style.thresholds(column.steps, "text").build()
    if column.states or column.steps:
        background = bool(column.states)
        values["custom.cellOptions"] = {"type": "color-background" if background else "color-text"}
    if column.link:
        values["links"] = [{"title": "Open", "url": column.link}]
    return [DynamicConfigValue(name, value) for name, value in values.items()]
