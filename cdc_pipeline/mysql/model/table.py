"""The definition of an upstream table in MySQL or TiDB.

`mysql.ddl.parser` creates these values, `mysql.ddl.evolution` changes them, `mysql.types.spark_types` maps them to Delta
types. They are stored in plans and mirror properties by field name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from cdc_pipeline.mysql.model.partitions import Partitioning
from cdc_pipeline.stored_json import shareable

TEXT_TYPES = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
"""The `base` of each character type."""


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A full table name as upstream spells it: without quotes, case preserved."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


_PLAIN = (("time", (0,)), ("char", (1,)), ("binary", (1,)), ("bit", (1,)))
"""Types whose number in brackets is the default, so that `str` leaves it out."""


@dataclass(frozen=True, slots=True)
class MySqlType:
    base: str
    """The type in lower case with synonyms resolved: `integer` is `int`, `numeric` is `decimal`."""
    params: tuple[int, ...] = ()
    """The numbers in brackets. A definition without them gets MySQL's: TIME is (0,), CHAR is (1,), DECIMAL is (10, 0). A
    message (`mysqlType`) without them says nothing about them."""
    unsigned: bool = False
    zerofill: bool = False
    members: tuple[str, ...] = ()
    """The labels of ENUM and SET."""
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
    """The DEFAULT of a column."""

    kind: Literal["literal", "number", "bits", "hex", "expression"]
    value: str | None
    """By kind: the text of a string (None for DEFAULT NULL), a number as written, binary digits (`b'101'`), hex digits
    (`x'0aff'`), SQL text such as `CURRENT_TIMESTAMP(6)`."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: MySqlType
    nullable: bool = True
    default: Default | None = None
    generated: Literal["virtual", "stored"] | None = None
    expression: str | None = None
    """The formula of a generated column."""
    auto_increment: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.type}"

    @property
    def has_constant_default(self) -> bool:
        """Whether the default value depends on neither the row nor the time."""
        return self.generated is None and (self.default is None or self.default.kind != "expression")


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A UNIQUE index."""

    name: str
    columns: tuple[str, ...]
    """In index order."""
    exact: bool = True
    """False if the index covers an expression or only a prefix of a column."""

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(self.columns)})"


@dataclass(frozen=True, slots=True)
class PlainIndex:
    """An index that is not UNIQUE. It matters only because MySQL's generated names of UNIQUE keys avoid its name."""

    name: str
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(self.columns)})"


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key whose actions change rows of its table."""

    name: str
    """Without a name in the statement its columns."""
    columns: tuple[str, ...]
    table: TableName
    """The referenced table. Without a database it is in that of the foreign key's table."""
    referenced: tuple[str, ...]
    """Its columns; empty for its key."""
    actions: str
    """Those that change rows, for example `ON DELETE CASCADE ON UPDATE SET NULL`."""

    def __str__(self) -> str:
        return f"{self.name} to {self.table} ({self.actions})"


@shareable
@dataclass(frozen=True, slots=True)
class TableSchema:
    """The definition of a table."""

    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    """In index order."""
    unique_keys: tuple[UniqueKey, ...] = ()
    """In order of creation."""
    charset: str | None = None
    partitioning: Partitioning | None = None
    indexes: tuple[PlainIndex, ...] = ()
    collation: str | None = None
    """The default collation of the table; None if no statement named one."""
    engine: str = ""
    """The storage engine, if it is one of `engines.UNLOGGED`; else empty."""
    foreign_keys: tuple[ForeignKey, ...] = ()

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.columns))})"

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def find(self, name: str) -> Column | None:
        """The column of this name, ignoring case as MySQL does."""
        folded = name.casefold()
        return next((column for column in self.columns if column.name.casefold() == folded), None)

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that identify a row; empty for a keyless table.

        The primary key, else the shortest UNIQUE key of NOT NULL columns that are not VIRTUAL, of those the oldest (TiCDC's
        handle key: ticdc-facts §3).
        """
        if self.primary_key:
            return self.primary_key
        usable = [key for key in self.unique_keys if key.exact and key.columns and self._not_null(key.columns)]
        return min(usable, key=lambda key: len(key.columns)).columns if usable else ()

    def _not_null(self, names: tuple[str, ...]) -> bool:
        found = [self.find(name) for name in names]
        return all(column is not None and not column.nullable and column.generated != "virtual" for column in found)

    def with_columns(self, columns: tuple[Column, ...]) -> TableSchema:
        return replace(self, columns=columns)


@dataclass(frozen=True)
class ColumnOrigin:
    """A column after ALTER TABLE and the same column before it; `before` is None for an added column."""

    after: Column
    before: Column | None

    @property
    def is_moved(self) -> bool:
        """Whether the column has other values than the old column of its name.

        The columns may look the same before and after: `DROP c, ADD c INT`, or two of one type that swap names and places.
        """
        return self.before is None or self.before.name.casefold() != self.after.name.casefold()

    @property
    def loses_nulls(self) -> bool:
        """Whether NULLs of the column have another value after the change, because it became NOT NULL.

        A strict server rejects the statement if there are any; others replace them by the type's zero, which for dates is
        NULL in a mirror. In a TIMESTAMP they may become the current time.
        """
        before, after = self.before, self.after
        is_tightened = before is not None and before.nullable and not after.nullable
        return is_tightened and after.generated is None and after.type.base not in ("date", "datetime")


def origins_by_name(before: TableSchema, columns: Iterable[Column]) -> tuple[ColumnOrigin, ...]:
    """The origin of each column: the column of the same name in `before`."""
    return tuple(ColumnOrigin(column, before.find(column.name)) for column in columns)


def names_after(before: TableSchema, origins: Iterable[ColumnOrigin]) -> dict[str, str | None]:
    """The new name of each column of `before`; None if it is dropped (the argument of `gaps.gaps_after_alter`)."""
    after = {origin.before.name: origin.after.name for origin in origins if origin.before is not None}
    return {column.name: after.get(column.name) for column in before.columns}
