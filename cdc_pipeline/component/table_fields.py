"""What a pipeline's file says of its tables: `include`, `exclude` and `routes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import ConfigDict, Field, field_validator

from cdc_pipeline.component.json_schema import Described
from cdc_pipeline.mirrors.settings.selection import Route, TableSelection
from cdc_pipeline.mirrors.settings.table_patterns import require_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable


class RouteRule(Described):
    """Another name for the mirrors of some tables."""

    model_config = ConfigDict(extra="forbid")

    match: Annotated[str, Field(description="Pattern on upstream's database.table.")]
    to: Annotated[
        str,
        Field(
            description="The mirror's database and table, with one dot between; `{database}` and `{table}` stand for "
            "upstream's names."
        ),
    ]

    merge: Annotated[
        bool,
        Field(
            description="Whether the tables that match are merged where they have one mirror: its rows name theirs in "
            "`_source_database` and `_source_table`, which are part of its key."
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
    """The patterns, if each is one. Raises ValueError."""
    for pattern in value:
        require_pattern(pattern)
    return value


def require_something(value: list[str]) -> list[str]:
    """The patterns of `include`. Raises ValueError where they let nothing in."""
    if not value:
        raise ValueError('[] includes no table: one or more patterns are expected, such as shop.* (["*"]: all tables)')
    return require_patterns(value)


def table_selection(include: Iterable[str], exclude: Iterable[str], routes: Iterable[RouteRule]) -> TableSelection:
    return TableSelection(tuple(include), tuple(exclude), tuple(rule.route for rule in routes))
