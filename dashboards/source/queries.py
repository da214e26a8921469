"""Queries of panels, and the reference to the datasource that the user chooses."""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.models.common import DataSourceRef
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
"""What the variable `datasource` says, so that no dashboard knows of any particular one."""


class Shape(Enum):
    """What a query gives to its panel."""

    SERIES = auto()
    """Values over the period."""
    EXEMPLARS = auto()
    """Values over the period, with the exemplars that lead to traces."""
    NOW = auto()
    """Values at the end of the period."""
    ROWS = auto()
    """Values at its end as rows of a table, with a column for each label."""


@dataclass(frozen=True)
class Query:
    """An expression, and how its series are named: with `{{label}}` in place of values of labels."""

    expression: str
    name: str = ""
    shape: Shape = Shape.SERIES


def targets(queries: Sequence[Query]) -> list[prometheus.Dataquery]:
    """Build the queries of one panel, with the ids A, B, C and so on that make them distinct."""
    return [_target(query, letter) for query, letter in zip(queries, string.ascii_uppercase, strict=False)]


def _target(query: Query, letter: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().datasource(DATASOURCE).expr(query.expression).ref_id(letter)
    if query.name:
        target = target.legend_format(query.name)
    if query.shape in (Shape.SERIES, Shape.EXEMPLARS):
        target = target.range().exemplar(query.shape is Shape.EXEMPLARS)
        return target.format(PromQueryFormat.TIME_SERIES)
    is_table = query.shape is Shape.ROWS
    return target.instant().format(PromQueryFormat.TABLE if is_table else PromQueryFormat.TIME_SERIES)
