"""Table selection (`include`, `exclude`) and renaming (`routes`), in Python and as equal Spark SQL.

The decoded tables contain all upstream tables under their upstream names. A cut reads them through
`TableSelection.selected`, which filters excluded tables and applies the routes. Later stages see mirror names only.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pyspark.sql import functions as F

from cdc_pipeline.errors import DeclarationError
from cdc_pipeline.mirrors.model.source_tables import SOURCE_NAMES, SOURCE_OF_CHANGE
from cdc_pipeline.mirrors.settings.table_patterns import java_regex, matches, matches_any
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.stored_json import AS_PAIRS, StoredJson

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame

Sources: TypeAlias = Annotated[Mapping[TableName, tuple[TableName, ...]], AS_PAIRS]
"""Upstream's tables of each mirror, sorted by name: several for a merged mirror, else one."""

_PLACEHOLDER = re.compile(r"(\{[^{}]*\})")
_PLACEHOLDERS = {"{database}": "database", "{table}": "table"}
_NAME = "concat(coalesce(`database`, ''), '.', coalesce(`table`, ''))"


@dataclass(frozen=True)
class Route:
    """One entry of `routes`. Raises ValueError if `to` is not a valid template."""

    match: str
    """Pattern on upstream's `database.table`."""
    to: str
    """The mirror's `database.table`, in which `{database}` and `{table}` stand for upstream's names."""
    merge: bool = False
    """Whether several tables may share the mirror; its rows then name their source table (`mirrors.model.source_tables`)."""

    def __post_init__(self) -> None:
        unknown = [name for name in _PLACEHOLDER.findall(self.to) if name not in _PLACEHOLDERS]
        database, dot, table = self.to.partition(".")
        braces = re.search(r"[{}]", _PLACEHOLDER.sub("", self.to))
        if unknown or not (database and dot and table) or "." in table or braces:
            raise ValueError(
                f"{self.to!r} is not a mirror name: database.table with one dot is expected, where {{database}} and "
                "{table} stand for upstream's names, such as {database}_eu.{table}"
            )

    def target(self, name: TableName) -> TableName:
        values = {"{database}": name.database, "{table}": name.table}
        database, table = ("".join(values.get(piece, piece) for piece in part) for part in self._parts)
        return TableName(database, table)

    @property
    def _parts(self) -> tuple[list[str], ...]:
        """The non-empty pieces (texts and placeholders) of the database's name and of the table's."""
        return tuple([piece for piece in _PLACEHOLDER.split(part) if piece] for part in self.to.split("."))

    def target_sql(self) -> tuple[str, str]:
        database, table = (f"concat({', '.join(_piece_sql(piece) for piece in part)})" for part in self._parts)
        return database, table


def _piece_sql(piece: str) -> str:
    if piece in _PLACEHOLDERS:
        return f"coalesce(`{_PLACEHOLDERS[piece]}`, '')"
    # in hex, so that SQL interprets no character of it
    return f"decode(X'{piece.encode().hex()}', 'UTF-8')"


@dataclass(frozen=True)
class TableSelection:
    """`include`, `exclude` and `routes` of the YAML file. Patterns match upstream's `database.table`."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    """Wins over `include`."""
    routes: tuple[Route, ...] = ()
    """The first match wins. A table without a match keeps its name."""

    @property
    def is_identity(self) -> bool:
        """Whether all tables are included under their own names."""
        return self.includes_all and not self.routes

    @property
    def includes_all(self) -> bool:
        """Whether all tables are included, under any names."""
        return "*" in self.include and not self.exclude

    def includes(self, name: TableName) -> bool:
        return matches_any(str(name), self.include) and not matches_any(str(name), self.exclude)

    def mirror_name(self, name: TableName) -> TableName:
        """The mirror's name of an included table."""
        route = self._route(name)
        return name if route is None else route.target(name)

    def merges(self, name: TableName) -> bool:
        """Whether the table is included and its route merges tables."""
        route = self._route(name)
        return route is not None and route.merge and self.includes(name)

    def _route(self, name: TableName) -> Route | None:
        return next((route for route in self.routes if matches(str(name), route.match)), None)

    # ---- the same in Spark SQL, over the columns `database` and `table`

    def is_in_sql(self) -> str:
        """A boolean that is never NULL."""
        return f"({_any_sql(self.include)}) AND NOT ({_any_sql(self.exclude)})"

    def routed_sql(self) -> tuple[str, str]:
        """The mirror's database and table."""
        targets = [(_matches_sql(route.match), *route.target_sql()) for route in self.routes]
        database = " ".join(f"WHEN {condition} THEN {name}" for condition, name, _ in targets)
        table = " ".join(f"WHEN {condition} THEN {name}" for condition, _, name in targets)
        if not targets:
            return "`database`", "`table`"
        return f"CASE {database} ELSE `database` END", f"CASE {table} ELSE `table` END"

    def merges_sql(self) -> str:
        """Whether the table's route merges tables: a boolean that is never NULL."""
        if not any(route.merge for route in self.routes):
            return "false"
        cases = " ".join(f"WHEN {_matches_sql(route.match)} THEN {str(route.merge).lower()}" for route in self.routes)
        return f"CASE {cases} ELSE false END"

    def selected(self, frame: DataFrame) -> DataFrame:
        """The rows of included tables, with `database` and `table` of their mirrors.

        For merged tables, images and key of row changes get the source columns, and `SOURCE_OF_CHANGE` has upstream's names.
        """
        included = frame if self.includes_all else frame.where(self.is_in_sql())
        if not self.routes:
            return included
        database, table = self.routed_sql()
        names = {"database": F.expr(database), "table": F.expr(table)}
        if not any(route.merge for route in self.routes) or "after" not in frame.columns:
            return included.withColumns(names)
        return included.withColumns(names | _source_columns(F.expr(self.merges_sql())))

    def excluded(self, frame: DataFrame) -> DataFrame:
        """The rows of excluded tables, under upstream's names."""
        return frame.where(f"NOT ({self.is_in_sql()})")


SELECTION_JSON = StoredJson(TableSelection)
ALL_TABLES = TableSelection()


def _source_columns(merged: Column) -> dict[str, Column]:
    """Columns of row changes in which rows of merged tables name their source table. `merged` is a boolean column."""
    source = {
        name: F.coalesce(F.col(column), F.lit(""))
        for name, column in zip(SOURCE_NAMES, ("database", "table"), strict=True)
    }
    entries = F.create_map(*(part for name, value in source.items() for part in (F.lit(name), value)))
    message = F.concat(
        F.lit(f"routes: a merged table must not have a column {' or '.join(SOURCE_NAMES)} of its own: "),
        F.concat_ws(".", *source.values()),
    )

    def with_source(image: str) -> Column:
        # `CutStreams.check_names` rejects tables that have such a column when they appear; this one came later, without DDL
        conflict = F.map_contains_key(image, SOURCE_NAMES[0]) | F.map_contains_key(image, SOURCE_NAMES[1])
        return F.when(conflict, F.raise_error(message)).otherwise(F.map_concat(entries, image))

    key = F.when(F.size("key_names") > 0, F.concat(F.array(*map(F.lit, SOURCE_NAMES)), "key_names"))
    return {
        **{image: F.when(merged, with_source(image)).otherwise(F.col(image)) for image in ("before", "after")},
        "key_names": F.when(merged, F.coalesce(key, F.col("key_names"))).otherwise(F.col("key_names")),
        **{
            column: F.when(merged, source[name]).otherwise(F.lit(""))
            for name, column in zip(SOURCE_NAMES, SOURCE_OF_CHANGE, strict=True)
        },
    }


@functools.lru_cache(maxsize=1024)
def _matches_sql(pattern: str) -> str:
    return f"{_NAME} RLIKE r'{java_regex(pattern)}'"


def _any_sql(patterns: Iterable[str]) -> str:
    return " OR ".join(map(_matches_sql, patterns)) or "false"


def sources_with(
    known: Sources, names: Iterable[TableName], selection: TableSelection
) -> dict[TableName, tuple[TableName, ...]]:
    """`known` plus the included tables among `names`.

    Raises DeclarationError if two tables would share a mirror without a route that merges them.
    """
    sources = dict(known)
    for name in sorted(set(names)):
        if not selection.includes(name):
            continue
        mirror = selection.mirror_name(name)
        others = sources.get(mirror, ())
        if name in others:
            continue
        if others and not all(map(selection.merges, (name, *others))):
            raise DeclarationError(
                f"routes: {others[0]} and {name} would both be mirrored as {mirror}, and their routes do not merge tables. "
                "No mirror was changed. Route or exclude one of them, or set merge: true on the routes of all"
            )
        sources[mirror] = tuple(sorted((*others, name)))
    return sources
