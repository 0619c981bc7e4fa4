"""Table selection (`include`, `exclude`) and renaming (`routes`), in Python and as equal Spark SQL.

The decoded tables contain all upstream tables under their upstream names. A cut reads them through
`TableSelection.selected`, which filters excluded tables and names each mirror by its key. Later stages see keys only.

Names are compared without case, as by TiDB and by MySQL with `lower_case_table_names` above 0: the key of a table or mirror
is its name in lower case. A mirror has the spelling under which it was created. With `case_sensitive` a key is the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.errors import DeclarationError
from cdc_pipeline.mirrors.model.source_tables import SOURCE_NAMES, SOURCE_OF_CHANGE, SPELLED
from cdc_pipeline.mirrors.settings.table_patterns import java_regex, matches
from cdc_pipeline.mysql.model.change_names import folded
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.stored_json import StoredJson

_PLACEHOLDER = re.compile(r"(\{[^{}]*\})")
_PLACEHOLDERS = {"{database}": "database", "{table}": "table"}


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
    case_sensitive: bool = False
    """Whether upstream has tables whose names differ in case only (MySQL with `lower_case_table_names=0`)."""

    @property
    def is_identity(self) -> bool:
        """Whether all tables are included under their own names."""
        return self.includes_all and not self.routes

    def key(self, name: TableName) -> TableName:
        """The name by which a table or mirror is found."""
        return name if self.case_sensitive else folded(name)

    def by_key(self, names: Iterable[TableName]) -> dict[TableName, TableName]:
        """Key → name. Raises DeclarationError if two names have one key."""
        found: dict[TableName, TableName] = {}
        for name in sorted(names):
            if (other := found.setdefault(self.key(name), name)) != name:
                raise DeclarationError(
                    f"case_sensitive: the names of the mirrors {other} and {name} differ in case only. No mirror was "
                    "changed. Set case_sensitive: true, or rebuild all tables without it"
                )
        return found

    @property
    def includes_all(self) -> bool:
        """Whether all tables are included, under any names."""
        return "*" in self.include and not self.exclude

    def includes(self, name: TableName) -> bool:
        return self._matches_any(name, self.include) and not self._matches_any(name, self.exclude)

    def mirror_name(self, name: TableName) -> TableName:
        """The mirror's name of an included table, spelled as this name and the route are."""
        route = self._route(name)
        return name if route is None else route.target(name)

    def mirror_key(self, name: TableName) -> TableName:
        """The key of an included table's mirror."""
        return self.key(self.mirror_name(name))

    def merges(self, name: TableName) -> bool:
        """Whether the table is included and its route merges tables."""
        route = self._route(name)
        return route is not None and route.merge and self.includes(name)

    def _route(self, name: TableName) -> Route | None:
        return next((route for route in self.routes if self._matches_any(name, [route.match])), None)

    def _matches_any(self, name: TableName, patterns: Iterable[str]) -> bool:
        return any(matches(str(name), pattern, exact=self.case_sensitive) for pattern in patterns)

    # ---- the same in Spark SQL, over the columns `database` and `table`

    def is_in_sql(self) -> str:
        """A boolean that is never NULL."""
        return f"({self._any_sql(self.include)}) AND NOT ({self._any_sql(self.exclude)})"

    def key_sql(self) -> tuple[str, str]:
        """Database and table of the mirror's key."""
        targets = [route.target_sql() for route in self.routes]
        database = self._route_sql([name for name, _ in targets], "`database`")
        return self._key_sql(database), self._key_sql(self._route_sql([name for _, name in targets], "`table`"))

    def merges_sql(self) -> str:
        """Whether the table's route merges tables: a boolean that is never NULL."""
        return self._route_sql([str(route.merge).lower() for route in self.routes], "false")

    def _route_sql(self, values: Sequence[str], default: str) -> str:
        """The value of the first route that matches."""
        cases = [
            f"WHEN {self._matches_sql(route.match)} THEN {value}"
            for route, value in zip(self.routes, values, strict=True)
        ]
        return f"CASE {' '.join(cases)} ELSE {default} END" if cases else default

    def _key_sql(self, name: str) -> str:
        return name if self.case_sensitive else f"lower({name})"

    def _matches_sql(self, pattern: str) -> str:
        name = self._key_sql("concat(coalesce(`database`, ''), '.', coalesce(`table`, ''))")
        return f"{name} RLIKE r'{java_regex(pattern if self.case_sensitive else pattern.lower())}'"

    def _any_sql(self, patterns: Iterable[str]) -> str:
        return " OR ".join(map(self._matches_sql, patterns)) or "false"

    def selected(self, frame: DataFrame) -> DataFrame:
        """The rows of included tables, with `database` and `table` of their mirrors' keys. Row changes also get `SPELLED`.

        For merged tables, images and key of row changes get the source columns, and `SOURCE_OF_CHANGE` has the keys of
        upstream's names.
        """
        included = frame if self.includes_all else frame.where(self.is_in_sql())
        database, table = self.key_sql()
        names: dict[str, Column] = {"database": F.expr(database), "table": F.expr(table)}
        if "after" not in frame.columns:
            return included.withColumns(names)
        names[SPELLED] = F.struct("database", "table")
        if not any(route.merge for route in self.routes):
            return included.withColumns(names)
        return included.withColumns(names | self._source_columns(F.expr(self.merges_sql())))

    def excluded(self, frame: DataFrame) -> DataFrame:
        """The rows of excluded tables, under upstream's names."""
        return frame.where(f"NOT ({self.is_in_sql()})")

    def _source_columns(self, merged: Column) -> dict[str, Column]:
        """Columns of row changes in which rows of merged tables name their source table. `merged` is a boolean column."""
        source = {
            name: F.expr(self._key_sql(f"coalesce(`{column}`, '')"))
            for name, column in zip(SOURCE_NAMES, ("database", "table"), strict=True)
        }
        entries = F.create_map(*(part for name, value in source.items() for part in (F.lit(name), value)))

        def with_source(image: str) -> Column:
            # a column of upstream with such a name stays one in another case, which the planner refuses
            own = F.transform_keys(image, lambda key, _: F.when(key.isin(*SOURCE_NAMES), F.upper(key)).otherwise(key))
            return F.map_concat(entries, own)

        key = F.when(F.size("key_names") > 0, F.concat(F.array(*map(F.lit, SOURCE_NAMES)), "key_names"))
        return {
            **{image: F.when(merged, with_source(image)).otherwise(F.col(image)) for image in ("before", "after")},
            "key_names": F.when(merged, F.coalesce(key, F.col("key_names"))).otherwise(F.col("key_names")),
            **{
                column: F.when(merged, source[name]).otherwise(F.lit(""))
                for name, column in zip(SOURCE_NAMES, SOURCE_OF_CHANGE, strict=True)
            },
        }


SELECTION_JSON = StoredJson(TableSelection)
ALL_TABLES = TableSelection()
