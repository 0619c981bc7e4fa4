"""The schema of an upstream table, as MySQL or TiDB has it.

Plain values only: no Spark, no Dagster. `ddl_parser` makes them from statements, `evolution` changes them, and
`spark_types` says what they become in a mirror.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc_pipeline.mysql.model.partitions import Partitioning

TEXT_TYPES = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
"""The base words of the types that hold characters."""


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table's full name, each part exactly as upstream spells it (no quotes, case kept)."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


_PLAIN = (("time", (0,)), ("char", (1,)), ("binary", (1,)), ("bit", (1,)))
"""Types that a definition may write without their number."""


@dataclass(frozen=True, slots=True)
class MySqlType:
    """A column's MySQL type.

    `base` is the lower-case word after synonyms are resolved (`integer` is `int`, `bool` is `tinyint(1)`,
    `numeric` is `decimal`); `params` are the numbers in brackets; `members` are the labels of enum and set. What messages
    call `time`, `char` or `decimal` may have any digits or length; a definition's TIME is (0,), its CHAR (1,), its DECIMAL
    (10, 0).
    """

    base: str
    params: tuple[int, ...] = ()
    unsigned: bool = False
    zerofill: bool = False
    members: tuple[str, ...] = ()
    charset: str | None = None
    collation: str | None = None

    def __str__(self) -> str:
        text = self.base
        if self.members:
            labels = ",".join("'" + member.replace("'", "''") + "'" for member in self.members)
            text += f"({labels})"
        elif self.params and (self.base, self.params) not in _PLAIN:
            text += f"({','.join(str(number) for number in self.params)})"
        if self.unsigned:
            text += " unsigned"
        if self.zerofill:
            text += " zerofill"
        return text


@dataclass(frozen=True, slots=True)
class Default:
    """A column's DEFAULT clause.

    `literal`: `value` is the text of a string, `None` for DEFAULT NULL.
    `number`: a number as the statement writes it. `bits`: a string of 0 and 1 (`b'101'`). `hex`: hex digits (`x'0aff'`).
    `expression`: the SQL text, such as `CURRENT_TIMESTAMP(6)` or `(UUID())`.
    """

    kind: Literal["literal", "number", "bits", "hex", "expression"]
    value: str | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `generated` is None for a plain column; then `expression` is None too."""

    name: str
    type: MySqlType
    nullable: bool = True
    default: Default | None = None
    generated: Literal["virtual", "stored"] | None = None
    expression: str | None = None
    auto_increment: bool = False

    @property
    def has_constant_default(self) -> bool:
        """Whether a row that does not name the column gets a value that depends on neither the row nor the time."""
        return self.generated is None and (self.default is None or self.default.kind != "expression")


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A UNIQUE index, columns in index order. A key over an expression or prefix only has `exact` False."""

    name: str
    columns: tuple[str, ...]
    exact: bool = True


@dataclass(frozen=True, slots=True)
class PlainIndex:
    """An index that is no key. It says nothing of rows; its name is taken, which UNIQUE keys without one step aside for."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's columns in table order, its primary key in index order, its UNIQUE keys in order of creation."""

    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    unique_keys: tuple[UniqueKey, ...] = ()
    charset: str | None = None
    partitioning: Partitioning | None = None
    indexes: tuple[PlainIndex, ...] = ()
    collation: str | None = None
    """The table's default for columns that name none; None where no statement has said it."""

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def find(self, name: str) -> Column | None:
        """The column of that name; MySQL compares column names without case."""
        folded = name.casefold()
        return next((column for column in self.columns if column.name.casefold() == folded), None)

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that identify a row, empty where rows have no identity.

        The primary key, else the UNIQUE key whose columns are all NOT NULL with the fewest columns, the earliest of
        those (TiDB's handle key: ticdc-facts §3).
        """
        if self.primary_key:
            return self.primary_key
        usable = [key for key in self.unique_keys if key.exact and key.columns and self._not_null(key.columns)]
        return min(usable, key=lambda key: len(key.columns)).columns if usable else ()

    def _not_null(self, names: tuple[str, ...]) -> bool:
        found = [self.find(name) for name in names]
        return all(column is not None and not column.nullable for column in found)

    def to_json(self) -> str:
        """One line of JSON that `stored_schema.schema_of_json` reads back to an equal schema."""
        return json.dumps(_as_plain(self), ensure_ascii=False, separators=(",", ":"))

    def with_columns(self, columns: tuple[Column, ...]) -> TableSchema:
        return replace(self, columns=columns)


@dataclass(frozen=True)
class ColumnOrigin:
    """A column after ALTER TABLE and the column it was before; `before` is None for an added one."""

    after: Column
    before: Column | None


def origins_by_name(before: TableSchema, columns: Iterable[Column]) -> tuple[ColumnOrigin, ...]:
    """Each of the columns, which was the one that had its name before."""
    return tuple(ColumnOrigin(column, before.find(column.name)) for column in columns)


def _as_plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_as_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _as_plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value
