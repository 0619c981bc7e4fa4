"""Random ALTER TABLE statements that are valid for a table and its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from cdc_pipeline_tests.histories.choices import Choices
from cdc_pipeline_tests.histories.ddl import (
    FIRST,
    AddColumn,
    AddKey,
    ChangeColumn,
    Clause,
    Column,
    DropColumn,
    DropKey,
    EmptyParts,
    RenameColumn,
    Repartition,
)
from cdc_pipeline_tests.histories.shapes import Row, Table
from cdc_pipeline_tests.histories.tables import values

Clauses: TypeAlias = tuple[Clause, ...]
_Maker: TypeAlias = Callable[[Table, list[Row]], Clauses | None]

# Few names, so that a dropped name is reused for another column.
_NAMES = ("note", "amount", "n", "c1", "c2", "Extra", "raw", "c3", "c4")
_TYPES = (
    *("int", "varchar(20)", "decimal(10,2)", "bigint unsigned", "varbinary(8)", "bigint", "varchar(40)"),
    *("time", "time(6)", "decimal(45,3)", "enum('a','A','b')", "set('x','X','y')", r"enum('\','C:\new','it''s')"),
)
_WIDER = {
    "varchar(20)": ("varchar(40)",),
    "varchar(40)": ("varchar(80)",),
    "int": ("bigint", "varchar(20)"),
    "bigint": ("varchar(30)",),
    "bigint unsigned": ("varchar(30)",),
    "decimal(10,2)": ("decimal(14,4)", "decimal(12,2)"),
    "decimal(12,2)": ("decimal(16,5)",),
    "varbinary(8)": ("varbinary(16)",),
    "time": ("time(3)", "time(6)"),
    "time(3)": ("time(6)",),
    "decimal(45,3)": ("decimal(60,5)",),
    "decimal(60,1)": ("decimal(63,3)",),
}
# Changes that can make two values equal, or of types that no key of the model has.
_OTHERS = {
    "time(6)": ("time", "time(3)"),
    "time(3)": ("time",),
    "decimal(10,2)": ("decimal(12,1)", "decimal(45,3)"),
    "decimal(45,3)": ("decimal(60,1)",),
    "decimal(60,5)": ("decimal(60,1)",),
    "enum('a','A','b')": ("enum('b','A','c','a')", "varchar(20)"),
    "enum('b','A','c','a')": ("enum('a','A','b','c','é')",),
    "set('x','X','y')": ("set('y','X','é','x')", "varchar(20)"),
    r"enum('\','C:\new','it''s')": (r"enum('C:\new','it''s','\','b')", "varchar(20)"),
    r"set('a\b','\','it''s \')": (r"set('\','it''s \','a\b')", "varchar(20)"),
}
# Changes that TiDB also allows in a primary key, because they rewrite no row.
_WIDER_IN_KEY = {
    "varchar(20)": ("varchar(40)",),
    "int": ("bigint",),
    "varbinary(8)": ("varbinary(16)",),
}
_MOST_COLUMNS = 7


@dataclass(frozen=True)
class Rules:
    """Which DDL a history may contain."""

    mysql: bool = False
    """Includes statements that MySQL accepts and TiDB rejects."""
    keyless: bool = True
    """Tables may lose their keys."""
    signed: bool = False
    """No integer exceeds 2^63 - 1."""
    partitions: bool = True
    """Includes DDL of table partitions."""
    plain: bool = False
    """Only CREATE, TRUNCATE and DROP TABLE."""


class Alterations:
    """Each method returns the clauses of one ALTER TABLE, or None if they are not valid for the table."""

    def __init__(self, choices: Choices, rules: Rules) -> None:
        self._choices = choices
        self._rules = rules

    def makers(self, table: Table) -> list[_Maker]:
        """The methods that may suit the table, simplest first. Repeated ones are drawn more often."""
        found: list[_Maker] = [
            *(self.add_column, self.add_columns, self.drop_column, self.rename_column, self.swap_columns),
            *(self.change_column, self.modify_column, self.modify_column, *[self.modify_spelling] * 8),
        ]
        if table.partitioning is not None and self._rules.partitions:
            found += [self.truncate_parts, self.drop_parts, self.add_part, self.reorganize] * 2
        elif self._rules.keyless:
            found += [self.drop_key, self.add_key]
            found += [self.change_key] if self._rules.mysql else []
        return found

    # ---- columns

    def add_column(self, table: Table, rows: list[Row]) -> Clauses | None:
        free = _without(_NAMES, table.names)
        if len(table.columns) >= _MOST_COLUMNS:
            return None
        return (AddColumn(self._column(self._choices.pick(free)), self._place(table.names)),)

    def add_columns(self, table: Table, rows: list[Row]) -> Clauses | None:
        """Two columns in one statement. The second may be placed after the first."""
        if len(table.columns) >= _MOST_COLUMNS - 1:
            return None
        free = _without(_NAMES, table.names)
        first = self._column(free.pop(self._choices.integer(0, len(free) - 1)))
        second = self._column(self._choices.pick(free))
        return (
            AddColumn(first, self._place(table.names)),
            AddColumn(second, self._place((first.name, *table.names))),
        )

    def drop_column(self, table: Table, rows: list[Row]) -> Clauses | None:
        options = [name for name in table.names if name not in table.key]
        # MySQL rejects a table without columns
        return (DropColumn(self._choices.pick(options)),) if options and len(table.names) > 1 else None

    def rename_column(self, table: Table, rows: list[Row]) -> Clauses | None:
        """Renames any column, also one of the key."""
        options, free = self._movable(table), _without(_NAMES, table.names)
        return (RenameColumn(self._choices.pick(options), self._choices.pick(free)),) if options else None

    def swap_columns(self, table: Table, rows: list[Row]) -> Clauses | None:
        options = self._movable(table)
        if len(options) < 2:
            return None
        one = options.pop(self._choices.integer(0, len(options) - 1))
        other = self._choices.pick(options)
        return (RenameColumn(one, other), RenameColumn(other, one))

    def change_column(self, table: Table, rows: list[Row]) -> Clauses | None:
        """CHANGE COLUMN with another name, and with a wider type if there is one."""
        options, free = self._movable(table), _without(_NAMES, table.names)
        if not options:
            return None
        name = self._choices.pick(options)
        wider = self._wider(table, name)
        mysql_type = self._choices.pick(wider) if wider else table.types[name]
        return (ChangeColumn(name, self._like(table, name, self._choices.pick(free), mysql_type)),)

    def modify_column(self, table: Table, rows: list[Row]) -> Clauses | None:
        options = [name for name in self._movable(table) if self._wider(table, name)]
        if not options:
            return None
        name = self._choices.pick(options)
        place = self._place(_without(table.names, (name,))) if self._choices.chance(0.2) else None
        return (ChangeColumn(name, self._like(table, name, name, self._choices.pick(self._wider(table, name))), place),)

    def modify_spelling(self, table: Table, rows: list[Row]) -> Clauses | None:
        """Changes the digits of a TIME or long DECIMAL, or the labels of an ENUM or SET, which changes existing values."""
        options = [name for name in self._movable(table) if name not in table.key and table.types[name] in _OTHERS]
        if not options:
            return None
        name = self._choices.pick(options)
        return (ChangeColumn(name, self._like(table, name, name, self._choices.pick(_OTHERS[table.types[name]]))),)

    # ---- keys

    def drop_key(self, table: Table, rows: list[Row]) -> Clauses | None:
        """TiDB does not drop the key of a clustered table."""
        possible = table.primary_key and (self._rules.mysql or not table.clustered)
        return (DropKey(),) if possible else None

    def add_key(self, table: Table, rows: list[Row]) -> Clauses | None:
        names = [] if table.primary_key else self._unique(table, rows)
        return (AddKey(self._choices.pick(names)),) if names else None

    def change_key(self, table: Table, rows: list[Row]) -> Clauses | None:
        names = [key for key in self._unique(table, rows) if key != table.primary_key] if table.primary_key else []
        return (DropKey(), AddKey(self._choices.pick(names))) if names else None

    @staticmethod
    def _unique(table: Table, rows: list[Row]) -> list[tuple[str, ...]]:
        """NOT NULL columns, alone or in pairs, that are unique in these rows."""
        names = [name for name in table.names if name in {*table.not_null, *table.key}]
        keys = [(name,) for name in names] + [(one, other) for one in names for other in names if one != other]
        return [key for key in keys if len({tuple(row[name] for name in key) for row in rows}) == len(rows)]

    # ---- partitions

    def truncate_parts(self, table: Table, rows: list[Row]) -> Clauses | None:
        return (EmptyParts(self._parts(table), drop=False),)

    def drop_parts(self, table: Table, rows: list[Row]) -> Clauses | None:
        assert table.partitioning is not None
        names = self._parts(table)
        possible = table.partitioning.bounds and len(names) < len(table.partitioning.names)
        return (EmptyParts(names, drop=True),) if possible else None

    def add_part(self, table: Table, rows: list[Row]) -> Clauses | None:
        parts = table.partitioning
        assert parts is not None
        if not parts.bounds:
            names = (*parts.names, f"p{len(parts.names)}")
            return (Repartition(replace(parts, names=names), added=1),) if len(names) < 6 else None
        if parts.bounds[-1] is None:
            return None
        name = _free_part(parts.names)
        bounds = (*parts.bounds, parts.bounds[-1] + 10)
        return (Repartition(replace(parts, names=(*parts.names, name), bounds=bounds), added=1),)

    def reorganize(self, table: Table, rows: list[Row]) -> Clauses | None:
        """Splits the last partition into two. The rows do not change."""
        parts = table.partitioning
        assert parts is not None
        if not parts.bounds or len(parts.names) > 5:
            return None
        top = parts.bounds[-1]
        lower = parts.bounds[-2] if len(parts.bounds) > 1 else None
        split = (lower if lower is not None else 0 if top is None else top - 10) + 5
        if top is not None and split >= top:
            return None
        names = (*parts.names[:-1], _free_part(parts.names), parts.names[-1])
        bounds = (*parts.bounds[:-1], split, top)
        return (Repartition(replace(parts, names=names, bounds=bounds), parts=parts.names[-1:]),)

    def _parts(self, table: Table) -> tuple[str, ...]:
        assert table.partitioning is not None
        names = table.partitioning.names
        start = self._choices.integer(0, len(names) - 1)
        return names[start : start + 1 + self._choices.chance(0.25)]

    # ---- parts of clauses

    def _column(self, name: str) -> Column:
        mysql_type, how = self._choices.pick(_TYPES), self._choices.integer(0, 4)
        if how < 3:
            # nullable, NOT NULL with the implicit default, nullable
            return Column(name, mysql_type, not_null=how == 1)
        usable = [value for value in values(mysql_type, signed=self._rules.signed) if _is_plain(value)]
        return Column(name, mysql_type, not_null=how == 4, default=self._choices.pick(usable))

    def _place(self, names: tuple[str, ...] | list[str]) -> str | None:
        place = self._choices.integer(0, 3)
        return None if place < 2 or not names else FIRST if place == 2 else self._choices.pick(names)

    def _wider(self, table: Table, name: str) -> tuple[str, ...]:
        tight = name in table.key and not self._rules.mysql
        wider = (_WIDER_IN_KEY if tight else _WIDER).get(table.types[name], ())
        return wider if name in table.key else (*wider, *_OTHERS.get(table.types[name], ()))

    @staticmethod
    def _like(table: Table, name: str, new_name: str, mysql_type: str) -> Column:
        return Column(new_name, mysql_type, not_null=name in table.not_null or name in table.key)

    @staticmethod
    def _movable(table: Table) -> list[str]:
        """Columns that may change their name or type: all but the partitioning column."""
        return [name for name in table.names if table.partitioning is None or name != table.partitioning.column]


def _without(names: Iterable[str], used: Iterable[str]) -> list[str]:
    present = {name.lower() for name in used}
    return [name for name in names if name.lower() not in present]


def _is_plain(value: str) -> bool:
    """Whether the value needs no escape in SQL but those of quotes and backslashes."""
    return value.isprintable() and all(character < "\x7f" or character > "\xff" for character in value)


def _free_part(names: Iterable[str]) -> str:
    return next(name for number in range(99) if (name := f"p{number}") not in names)
