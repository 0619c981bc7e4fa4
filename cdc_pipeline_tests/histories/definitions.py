"""Random DDL on the tables of an upstream, between its transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from cdc_pipeline_tests.histories.alterations import Alterations, Rules
from cdc_pipeline_tests.histories.choices import Choices
from cdc_pipeline_tests.histories.clock import Clock
from cdc_pipeline_tests.histories.ddl import (
    CreateDatabase,
    CreateLike,
    CreateTable,
    DropDatabase,
    DropTables,
    ExchangePartition,
    RenameTables,
    Statement,
    TruncateTable,
    alter,
)
from cdc_pipeline_tests.histories.shapes import Name, Table
from cdc_pipeline_tests.histories.tables import BESIDE, KINDS, PLAIN_KINDS, keyed_kinds, table_of
from cdc_pipeline_tests.histories.upstream import Upstream

_Operation: TypeAlias = Callable[[], bool]

_MOST_TABLES = 7
_NAMES = ("t1", "t2", "t3", "t4")


class Definitions:
    """Runs random DDL."""

    def __init__(
        self, upstream: Upstream, choices: Choices, clock: Clock, databases: tuple[str, str], rules: Rules
    ) -> None:
        self._upstream = upstream
        self._choices = choices
        self._clock = clock
        self._databases = databases
        self._rules = rules
        self._alterations = Alterations(choices, rules)
        self._gone: set[str] = set()
        """Dropped databases."""
        self._used = [table.full_name for table in upstream.tables]
        kinds = KINDS if rules.partitions else PLAIN_KINDS
        self._kinds = kinds if rules.keyless else keyed_kinds(kinds)
        plain: list[_Operation] = [self._truncate, self._drop, self._create, self._recreate]
        others: list[_Operation] = [
            *[self._alter] * 9,
            *[self._rename] * 3,
            self._swap_tables,
            self._there_and_back,
            self._replaced_and_reverted,
            self._create_like,
            self._drop_database,
            *([self._exchange] * 3 if rules.partitions else ()),
        ]
        self._operations = plain if rules.plain else others + plain

    def change(self) -> None:
        """Runs one random change of one or a few statements. Draws another change if one does not apply."""
        for operation in self._choices.attempts(self._operations):
            if operation():
                break
        if not self._upstream.tables:
            self._create()

    def _run(self, statement: Statement) -> bool:
        for database in dict.fromkeys(table.database for table in statement.tables if table.database in self._gone):
            self._gone.discard(database)
            self._upstream.execute(CreateDatabase(database), self._clock.next_of_ddl())
        self._upstream.execute(statement, self._clock.next_of_ddl())
        self._used += [table.full_name for table in statement.tables if table.full_name not in self._used]
        return True

    # ---- tables and names

    def _table(self) -> Table | None:
        """A random table. Partitioned tables are drawn more often."""
        tables = self._upstream.tables
        partitioned = [table for table in tables if table.partitioning is not None]
        if partitioned and self._choices.chance(0.4):
            return self._choices.pick(partitioned)
        return self._choices.pick(tables) if tables else None

    def _free_name(self) -> Name:
        """An unused name in one of the databases, often one that a table had before."""
        present = {table.full_name for table in self._upstream.tables}
        free = [name for name in self._used if name not in present]
        if free and self._choices.chance(0.6):
            return self._choices.pick(free)
        unused = [(database, name) for name in _NAMES for database in self._databases]
        return self._choices.pick([name for name in unused if name not in present])

    def _is_full(self) -> bool:
        return len(self._upstream.tables) >= _MOST_TABLES

    # ---- operations, which return whether they apply

    def _alter(self) -> bool:
        table = self._table()
        if table is None:
            return False
        rows = list(self._upstream.rows[table].values())
        for make in self._choices.attempts(self._alterations.makers(table)):
            if clauses := make(table, rows):
                return self._run(alter(table, *clauses))
        return False

    def _rename(self) -> bool:
        table = self._table()
        if table is None:
            return False
        new = _named(table, self._free_name())
        others = [other for other in self._upstream.tables if other is not table]
        # another table may take the old name
        if others and self._choices.chance(0.3):
            return self._run(
                RenameTables(((table, new), (other := self._choices.pick(others), _named(other, table.full_name))))
            )
        return self._run(RenameTables(((table, new),)))

    def _swap_tables(self) -> bool:
        tables = self._upstream.tables
        if len(tables) < 2:
            return False
        one = tables.pop(self._choices.integer(0, len(tables) - 1))
        other = self._choices.pick(tables)
        temporary = _named(one, self._free_name())
        pairs = (
            (one, temporary),
            (other, _named(other, one.full_name)),
            (temporary, _named(temporary, other.full_name)),
        )
        return self._run(RenameTables(pairs))

    def _there_and_back(self) -> bool:
        """Renames a table and back. Often another table then takes the temporary name."""
        table = self._table()
        if table is None:
            return False
        temporary = _named(table, self._free_name())
        self._run(RenameTables(((table, temporary),)))
        self._run(RenameTables(((temporary, table),)))
        if not self._is_full() and self._choices.chance(0.6):
            self._run(CreateTable(self._new_table(temporary.full_name)))
        return True

    def _replaced_and_reverted(self) -> bool:
        """Replaces a table by a copy of its own, as online DDL tools do, and reverts that now and then."""
        table = self._table()
        if table is None or self._is_full():
            return False
        copy = _named(table, self._free_name())
        self._run(CreateLike(copy, table))
        old = _named(table, self._free_name())
        self._run(RenameTables(((table, old), (copy, table))))
        if self._choices.chance(0.5):
            self._run(RenameTables(((table, copy), (old, table))))
        return True

    def _truncate(self) -> bool:
        table = self._table()
        return table is not None and self._run(TruncateTable(table))

    def _drop(self) -> bool:
        """One table, or two in one statement of MySQL."""
        tables = self._upstream.tables
        if len(tables) < 2:
            return False
        count = 1 + (self._rules.mysql and len(tables) > 2 and self._choices.chance(0.3))
        return self._run(DropTables(tuple(tables.pop(self._choices.integer(0, len(tables) - 1)) for _ in range(count))))

    def _create(self) -> bool:
        return not self._is_full() and self._run(CreateTable(self._new_table(self._free_name())))

    def _recreate(self) -> bool:
        """Another table with the same name."""
        table = self._table()
        if table is None:
            return False
        return self._run(DropTables((table,))) and self._run(CreateTable(self._new_table(table.full_name)))

    def _create_like(self) -> bool:
        source = self._table()
        if source is None or self._is_full():
            return False
        return self._run(CreateLike(_named(source, self._free_name()), source))

    def _drop_database(self) -> bool:
        """Drops one of the databases with its tables. The next table in it creates it again."""
        database = self._choices.pick(self._databases)
        tables = tuple(table for table in self._upstream.tables if table.database == database)
        if database in self._gone or len(tables) in (0, len(self._upstream.tables)):
            return False
        self._run(DropDatabase(tables, database))
        self._gone.add(database)
        return True

    def _exchange(self) -> bool:
        """Exchanges a partition with a table of its shape. If there is none, creates one first."""
        tables = self._upstream.tables
        partitioned = [table for table in tables if table.partitioning is not None]
        fitting = [
            (table, part, other)
            for table in partitioned
            for other in tables
            if table.partitioning is not None and other.partitioning is None and _same_shape(table, other)
            for part in table.partitioning.names
            if all(table.part_of(row) == part for row in self._upstream.rows[other].values())
        ]
        # prefer a table with rows
        full = [found for found in fitting if self._upstream.rows[found[2]]]
        if fitting:
            return self._run(ExchangePartition(*self._choices.pick(full or fitting)))
        if not partitioned or self._is_full():
            return False
        shape = self._choices.pick(partitioned)
        return self._run(CreateTable(replace(_named(shape, self._free_name()), kind=BESIDE, partitioning=None)))

    def _new_table(self, name: Name) -> Table:
        clustered = not self._choices.chance(0.4)
        return table_of(self._choices.pick(self._kinds), *name, clustered=clustered)


def _named(table: Table, name: Name) -> Table:
    return replace(table, database=name[0], name=name[1])


def _same_shape(one: Table, other: Table) -> bool:
    return (one.columns, one.primary_key, one.unique_not_null, one.not_null, one.clustered) == (
        other.columns,
        other.primary_key,
        other.unique_not_null,
        other.not_null,
        other.clustered,
    )
