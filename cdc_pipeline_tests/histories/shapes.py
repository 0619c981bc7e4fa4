"""Tables between two DDL statements, and their content.

A value is None or its Canal-JSON text. Each character of a VARBINARY text is one byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

from cdc_pipeline_tests.histories.typed_texts import escaped, upper_type

Row: TypeAlias = "dict[str, str | None]"
"""A row by column name. Rows are never mutated."""
Image: TypeAlias = "tuple[str | None, ...]"
"""A row's values in column order."""
Name: TypeAlias = "tuple[str, str]"
"""Database and table."""
Columns: TypeAlias = "tuple[tuple[str, str], ...]"
"""Names and MySQL types."""


class Content(NamedTuple):
    """The columns and sorted rows of a table at one moment."""

    columns: Columns
    rows: list[Image]

    def expected(self) -> tuple[list[dict[str, str]], list[list[str | None]]]:
        """Columns and rows as in `expected.json`, with bytes in hex. For `truth.differences`."""
        binary = [words.startswith("varbinary") for _, words in self.columns]
        found = [
            [
                value.encode("latin-1").hex() if value is not None and is_binary else value
                for value, is_binary in zip(row, binary, strict=True)
            ]
            for row in self.rows
        ]
        return [{"name": name, "type": words} for name, words in self.columns], found


State: TypeAlias = "dict[Name, Content]"
"""The existing tables."""


@dataclass(frozen=True)
class Partitioning:
    """How an INT column partitions a table: by RANGE or by HASH."""

    column: str
    names: tuple[str, ...]
    """Those of HASH are p0, p1 and so on."""
    bounds: tuple[int | None, ...] = ()
    """The exclusive upper bound of each RANGE partition. None: MAXVALUE. Empty for HASH."""

    def part_of(self, value: str | None) -> str | None:
        """The partition of a value. None if no partition accepts it."""
        number = int(value or 0)
        if not self.bounds:
            return self.names[abs(number) % len(self.names)]
        for name, bound in zip(self.names, self.bounds, strict=True):
            if bound is None or number < bound:
                return name
        return None

    @property
    def words(self) -> str:
        if not self.bounds:
            return f"PARTITION BY HASH (`{self.column}`) PARTITIONS {len(self.names)}"
        parts = [part_words(name, bound) for name, bound in zip(self.names, self.bounds, strict=True)]
        return f"PARTITION BY RANGE (`{self.column}`) ({', '.join(parts)})"


def part_words(name: str, bound: int | None) -> str:
    return f"PARTITION `{name}` VALUES LESS THAN ({'MAXVALUE' if bound is None else bound})"


@dataclass(frozen=True, eq=False)
class Table:
    """A table between two DDL statements.

    Compared by identity: DDL that changes a table creates another Table. A table without `primary_key` and
    `unique_not_null` is keyless.
    """

    database: str
    name: str
    columns: Columns
    primary_key: tuple[str, ...] = ()
    unique_not_null: tuple[str, ...] = ()
    clustered: bool = True
    """TiDB stores rows under the primary key, so for TiCDC an update of the key is another row."""
    kind: str = ""
    not_null: frozenset[str] = frozenset()
    """NOT NULL columns that are not in the key."""
    partitioning: Partitioning | None = None
    constraints: tuple[str, ...] = ()
    """Foreign keys, as in CREATE TABLE."""

    @property
    def full_name(self) -> Name:
        return self.database, self.name

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The handle key in index order. Empty for a keyless table."""
        return self.primary_key or self.unique_not_null

    @property
    def keyless(self) -> bool:
        return not self.key

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    @cached_property
    def types(self) -> dict[str, str]:
        return dict(self.columns)

    def in_column_order(self, names: Iterable[str]) -> list[str]:
        wanted = set(names)
        return [name for name in self.names if name in wanted]

    def key_of(self, row: Mapping[str, str | None]) -> Image:
        return tuple(row[name] for name in self.key)

    def image(self, row: Mapping[str, str | None]) -> Image:
        return tuple(row[name] for name in self.names)

    def content(self, rows: Iterable[Mapping[str, str | None]]) -> Content:
        return Content(self.columns, sorted((self.image(row) for row in rows), key=sort_key))

    def part_of(self, row: Mapping[str, str | None]) -> str | None:
        """The partition of a row. None if the table has no partitions, or none that accepts the row."""
        return None if self.partitioning is None else self.partitioning.part_of(row[self.partitioning.column])

    def create_statement(self, *, printed: bool = False) -> str:
        """CREATE TABLE with a collation that distinguishes case and trailing spaces.

        If a label has a backslash, the comment of the table ends with one. `printed`: by TiDB, which does not escape the
        backslashes of labels and comments.
        """
        needed = {*self.key, *self.not_null}
        parts = [f"`{name}` {upper_type(words)}{' NOT NULL' if name in needed else ''}" for name, words in self.columns]
        if self.primary_key:
            parts.append(f"PRIMARY KEY ({_quoted(self.primary_key)})")
        if self.unique_not_null:
            parts.append(f"UNIQUE KEY `uk_{self.name}` ({_quoted(self.unique_not_null)})")
        parts += self.constraints
        words = " COMMENT = 'dir C:\\'" if any("\\" in words for _, words in self.columns) else ""
        words += "" if self.partitioning is None else f" {self.partitioning.words}"
        sql = f"CREATE TABLE `{self.name}` ({', '.join(parts)}) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin{words}"
        return sql if printed else escaped(sql)


def _quoted(names: Iterable[str]) -> str:
    return ",".join(f"`{name}`" for name in names)


def sort_key(row: Image) -> tuple[tuple[bool, str], ...]:
    return tuple((value is not None, value or "") for value in row)
