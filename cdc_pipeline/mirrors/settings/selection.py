"""Which upstream tables a pipeline mirrors, and under which names: the same question answered in Python and in Spark SQL.

The decoded tables keep everything under upstream's names. A cut reads them through `selected`: rows of tables that are
left out are not there, all others are under the names of their mirrors, and nothing behind it knows of upstream's names.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import functions as F

from cdc_pipeline.errors import DeclarationError
from cdc_pipeline.mirrors.model.shards import SOURCE_NAMES, SOURCE_OF_CHANGE
from cdc_pipeline.mirrors.settings.table_patterns import java_regex, matches, matches_any
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, DataFrame

Sources: TypeAlias = "Mapping[TableName, tuple[TableName, ...]]"
"""Upstream's tables by mirror, in order of their names: one, or several that are merged."""

_HOLE = re.compile(r"(\{[^{}]*\})")
_HOLES = {"{database}": "database", "{table}": "table"}
_NAME = "concat(coalesce(`database`, ''), '.', coalesce(`table`, ''))"


@dataclass(frozen=True)
class Route:
    """Tables that `match` (a pattern on upstream's `database.table`) are mirrored as `to`: a database and a table with a dot
    between, in which `{database}` and `{table}` stand for upstream's names. With `merge` several tables may have one mirror,
    in which each row names its own (`mirrors.model.shards`). Raises ValueError where `to` is no such text."""

    match: str
    to: str
    merge: bool = False

    def __post_init__(self) -> None:
        holes = [hole for hole in _HOLE.findall(self.to) if hole not in _HOLES]
        database, dot, table = self.to.partition(".")
        if holes or not (database and dot and table) or "." in table or re.search(r"[{}]", _HOLE.sub("", self.to)):
            raise ValueError(
                f"{self.to!r} is no name of a mirror: a database and a table with one dot between are expected, in which "
                "{database} and {table} stand for upstream's, such as {database}_eu.{table}"
            )

    def target(self, name: TableName) -> TableName:
        found = {"{database}": name.database, "{table}": name.table}
        database, table = ("".join(found.get(piece, piece) for piece in part) for part in self._parts)
        return TableName(database, table)

    @property
    def _parts(self) -> tuple[list[str], ...]:
        """The pieces of the database's name and of the table's: texts, and holes for upstream's names."""
        return tuple([piece for piece in _HOLE.split(part) if piece] for part in self.to.split("."))

    def target_sql(self) -> tuple[str, str]:
        database, table = (
            f"concat({', '.join(_piece_sql(piece) for piece in part)})"
            for part in self._parts  # one or more pieces each
        )
        return database, table


def _piece_sql(piece: str) -> str:
    if piece in _HOLES:
        return f"coalesce(`{_HOLES[piece]}`, '')"
    # by its bytes, so that no character of it means anything to SQL
    return f"decode(X'{piece.encode().hex()}', 'UTF-8')"


@dataclass(frozen=True)
class TableSelection:
    """`include` and `exclude` are patterns on upstream's `database.table`: a table is in where one of the first matches and
    none of the second. Of `routes` the first that matches counts; a table without one keeps its name."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether all tables are in, under their own names."""
        return self.all_in and not self.routes

    @property
    def all_in(self) -> bool:
        return "*" in self.include and not self.exclude

    def is_in(self, name: TableName) -> bool:
        return matches_any(str(name), self.include) and not matches_any(str(name), self.exclude)

    def routed(self, name: TableName) -> TableName:
        """The mirror's name of a table that is in."""
        found = self._route(name)
        return name if found is None else found.target(name)

    def merges(self, name: TableName) -> bool:
        """Whether the table is in, and its mirror may be of others, too."""
        found = self._route(name)
        return found is not None and found.merge and self.is_in(name)

    def _route(self, name: TableName) -> Route | None:
        return next((route for route in self.routes if matches(str(name), route.match)), None)

    # ---- the same in Spark SQL, over the columns `database` and `table`

    def is_in_sql(self) -> str:
        """A boolean that is never NULL."""
        return f"({_any_sql(self.include)}) AND NOT ({_any_sql(self.exclude)})"

    def routed_sql(self) -> tuple[str, str]:
        """The mirror's database and its table."""
        targets = [(_matches_sql(route.match), *route.target_sql()) for route in self.routes]
        database = " ".join(f"WHEN {condition} THEN {name}" for condition, name, _ in targets)
        table = " ".join(f"WHEN {condition} THEN {name}" for condition, _, name in targets)
        if not targets:
            return "`database`", "`table`"
        return f"CASE {database} ELSE `database` END", f"CASE {table} ELSE `table` END"

    def merges_sql(self) -> str:
        """Whether the table is merged with others: a boolean that is never NULL."""
        if not any(route.merge for route in self.routes):
            return "false"
        cases = " ".join(f"WHEN {_matches_sql(route.match)} THEN {str(route.merge).lower()}" for route in self.routes)
        return f"CASE {cases} ELSE false END"

    def selected(self, frame: DataFrame) -> DataFrame:
        """The rows of tables that are in, under the names of their mirrors. Where tables are merged, images and key of
        their row changes have the names of the table, and so have `source_database` and `source_table`, which are empty
        for other rows."""
        inside = frame if self.all_in else frame.where(self.is_in_sql())
        if not self.routes:
            return inside
        database, table = self.routed_sql()
        names = {"database": F.expr(database), "table": F.expr(table)}
        if not any(route.merge for route in self.routes) or "after" not in frame.columns:
            return inside.withColumns(names)
        return inside.withColumns(names | _with_source(F.expr(self.merges_sql())))

    def left_out(self, frame: DataFrame) -> DataFrame:
        """The other rows, under upstream's names."""
        return frame.where(f"NOT ({self.is_in_sql()})")

    # ---- written down with each cut

    def to_json(self) -> str:
        plain = {
            "include": self.include,
            "exclude": self.exclude,
            "routes": [
                {"match": route.match, "to": route.to} | ({"merge": True} if route.merge else {})
                for route in self.routes
            ],
        }
        return json.dumps(plain, ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> TableSelection:
        plain: dict[str, Any] = json.loads(text)
        routes = tuple(Route(route["match"], route["to"], route.get("merge", False)) for route in plain["routes"])
        return TableSelection(tuple(plain["include"]), tuple(plain["exclude"]), routes)


ALL_TABLES = TableSelection()


def _with_source(merged: Column) -> dict[str, Column]:
    """The columns of row changes in which those of merged tables name their own."""
    own = {
        name: F.coalesce(F.col(column), F.lit(""))
        for name, column in zip(SOURCE_NAMES, ("database", "table"), strict=True)
    }
    pairs = F.create_map(*(part for name, value in own.items() for part in (F.lit(name), value)))
    said = F.concat(
        F.lit("routes: a column of a merged table has a name that merging needs: "), F.concat_ws(".", *own.values())
    )

    def with_names(image: str) -> Column:
        # one that comes without DDL; a table that has it from its start is refused before (`CutStreams.check_names`)
        taken = F.map_contains_key(image, SOURCE_NAMES[0]) | F.map_contains_key(image, SOURCE_NAMES[1])
        return F.when(taken, F.raise_error(said)).otherwise(F.map_concat(pairs, image))

    key = F.when(F.size("key_names") > 0, F.concat(F.array(*map(F.lit, SOURCE_NAMES)), "key_names"))
    return {
        **{image: F.when(merged, with_names(image)).otherwise(F.col(image)) for image in ("before", "after")},
        "key_names": F.when(merged, F.coalesce(key, F.col("key_names"))).otherwise(F.col("key_names")),
        **{
            column: F.when(merged, own[name]).otherwise(F.lit(""))
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
    """`known` with those of the names that are in.

    Raises DeclarationError where two tables would have one mirror and are not to be merged: their rows must never mix.
    """
    found = dict(known)
    for name in sorted(set(names)):
        if not selection.is_in(name):
            continue
        mirror = selection.routed(name)
        others = found.get(mirror, ())
        if name in others:
            continue
        apart = next((other for other in (name, *others) if not selection.merges(other)), None)
        if others and apart is not None:
            other = others[0]
            raise DeclarationError(
                f"routes: {other} and {name} would both be mirrored as {mirror}, and tables are not merged; nothing was "
                "touched. Route one of them to another name, or exclude it; a route with merge: true for all of them merges"
            )
        found[mirror] = tuple(sorted((*others, name)))
    return found
