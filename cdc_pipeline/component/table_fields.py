"""The fields `include`, `exclude`, `routes` and `case_sensitive`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, field_validator

from cdc_pipeline.component.json_schema import YamlModel
from cdc_pipeline.mirrors.settings.selection import Route, TableSelection
from cdc_pipeline.mirrors.settings.table_patterns import require_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable


class RouteRule(YamlModel):
    """Renames the mirrors of the matching tables, or merges the tables into one mirror."""

    match: Annotated[str, Field(description="Pattern on the upstream database.table.")]
    to: Annotated[
        str,
        Field(
            description="The mirror as database.table; `{database}` and `{table}` are replaced by the upstream names."
        ),
    ]

    merge: Annotated[
        bool,
        Field(
            description="Merge matching tables with the same mirror. `_source_database` and `_source_table` name the table "
            "of a row and are part of the key."
        ),
    ] = False

    @field_validator("match")
    @classmethod
    def _is_a_pattern(cls, value: str) -> str:
        return require_pattern(value)

    @field_validator("to")
    @classmethod
    def _is_a_template(cls, value: str) -> str:
        return Route("*", value).to

    @property
    def route(self) -> Route:
        return Route(self.match, self.to, self.merge)


def require_patterns(value: list[str]) -> list[str]:
    """The unchanged patterns. Raises ValueError if one is invalid."""
    for pattern in value:
        require_pattern(pattern)
    return value


def require_include(value: list[str]) -> list[str]:
    """The unchanged patterns of `include`. Raises ValueError if there is none."""
    if not value:
        raise ValueError('[] includes no table: at least one pattern is expected, such as shop.* (["*"]: all tables)')
    return require_patterns(value)


def table_selection(
    include: Iterable[str], exclude: Iterable[str], routes: Iterable[RouteRule], *, case_sensitive: bool
) -> TableSelection:
    return TableSelection(tuple(include), tuple(exclude), tuple(rule.route for rule in routes), case_sensitive)
