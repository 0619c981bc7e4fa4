"""Random transactions on the tables of an `Upstream`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from cdc_pipeline_tests.histories.choices import Choices
from cdc_pipeline_tests.histories.clock import Clock
from cdc_pipeline_tests.histories.shapes import Image, Row, Table
from cdc_pipeline_tests.histories.tables import keys, values
from cdc_pipeline_tests.histories.upstream import OpenTransaction, Upstream

_Operation: TypeAlias = Callable[[OpenTransaction, Table], None]


class Workload:
    """Runs random transactions. `signed`: no integer exceeds 2^63 - 1."""

    def __init__(self, upstream: Upstream, choices: Choices, clock: Clock, *, signed: bool = False) -> None:
        self.upstream = upstream
        self._choices = choices
        self._signed = signed
        self._clock = clock
        keyed: list[_Operation] = [
            self._insert,
            self._insert,
            self._update,
            self._delete,
            self._change_key,
            self._swap_keys,
            self._delete_and_insert,
            self._shift_keys,
            self._take_freed_key,
            self._there_and_back,
            self._insert_and_delete,
            self._update_nothing,
        ]
        keyless: list[_Operation] = [
            self._insert_equal,
            self._insert_equal,
            self._update,
            self._delete,
            self._delete_and_insert,
            self._there_and_back,
            self._insert_and_delete,
            self._update_nothing,
        ]
        self._operations: dict[bool, list[_Operation]] = {True: keyless, False: keyed}

    def transaction(self) -> None:
        """A transaction of a few operations on 1 to 3 tables."""
        choices = self._choices
        transaction = self.upstream.begin(self._clock.next())
        tables = list(self.upstream.tables)
        chosen = [
            tables.pop(choices.integer(0, len(tables) - 1)) for _ in range(min(choices.integer(1, 3), len(tables)))
        ]
        for table in chosen:
            for _ in range(1 + choices.chance(0.4) + choices.chance(0.15)):
                operations = self._operations[table.keyless]
                # an empty table gets an insert
                (choices.pick(operations) if transaction.rows(table) else operations[0])(transaction, table)
        transaction.commit()

    # ---- rows

    def _values(self, table: Table, *, without: tuple[str, ...] = ()) -> Row:
        row: Row = {}
        for name, mysql_type in table.columns:
            if name not in without:
                pool = values(mysql_type, signed=self._signed)
                row[name] = self._value(table, name, pool)
        return row

    def _value(self, table: Table, name: str, pool: tuple[str, ...]) -> str | None:
        number = self._choices.integer(int(name in table.not_null), len(pool))
        return pool[number - 1] if number else None

    def _free_keys(self, transaction: OpenTransaction, table: Table) -> list[Image]:
        used = {table.key_of(row) for row in transaction.rows(table).values()}
        return [key for key in keys(table, signed=self._signed) if key not in used]

    def _new_row(self, table: Table, key: Image) -> Row:
        row = self._values(table, without=table.key) | dict(zip(table.key, key, strict=True))
        return {name: row[name] for name in table.names}

    def _changed(self, table: Table, row: Row) -> Row:
        """The row with another value in one non-key column. The drawn value may be equal."""
        names = [name for name in table.names if name not in table.key]
        if not names:  # the other columns were dropped
            return row
        name = self._choices.pick(names)
        return {**row, name: self._value(table, name, values(table.types[name], signed=self._signed))}

    def _some(self, transaction: OpenTransaction, table: Table, most: int) -> list[int]:
        """Ids of up to `most` rows, often of equal ones."""
        present = list(transaction.rows(table))
        if not present:
            return []
        start = self._choices.integer(0, len(present) - 1)
        return present[start : start + self._choices.integer(1, most)]

    # ---- operations, which do nothing if they find no row or no free key

    def _insert(self, transaction: OpenTransaction, table: Table) -> None:
        free, rows = self._free_keys(transaction, table), []
        for _ in range(min(self._choices.integer(1, 3), len(free))):
            rows.append(self._new_row(table, free.pop(self._choices.integer(0, len(free) - 1))))
        if rows:
            transaction.insert(table, rows)

    def _insert_equal(self, transaction: OpenTransaction, table: Table) -> None:
        present = list(transaction.rows(table).values())
        again = present and self._choices.chance(0.5)
        row = self._choices.pick(present) if again else self._values(table)
        transaction.insert(table, [row] * self._choices.integer(1, 4))

    def _update(self, transaction: OpenTransaction, table: Table) -> None:
        rows = transaction.rows(table)
        transaction.update_all(table, {n: self._changed(table, rows[n]) for n in self._some(transaction, table, 3)})

    def _update_nothing(self, transaction: OpenTransaction, table: Table) -> None:
        rows = transaction.rows(table)
        transaction.update_all(table, {number: rows[number] for number in self._some(transaction, table, 2)})

    def _delete(self, transaction: OpenTransaction, table: Table) -> None:
        transaction.delete(table, self._some(transaction, table, 3))

    def _there_and_back(self, transaction: OpenTransaction, table: Table) -> None:
        for number in self._some(transaction, table, 1):
            row = transaction.rows(table)[number]
            transaction.update(table, number, self._changed(table, row))
            transaction.update(table, number, row)

    def _insert_and_delete(self, transaction: OpenTransaction, table: Table) -> None:
        free = self._free_keys(transaction, table)
        if free:
            row = self._new_row(table, self._choices.pick(free))
            transaction.delete(table, transaction.insert(table, [row]))

    def _delete_and_insert(self, transaction: OpenTransaction, table: Table) -> None:
        """Reuses the key, sometimes with the same values."""
        for number in self._some(transaction, table, 1):
            row = transaction.rows(table)[number]
            transaction.delete(table, [number])
            transaction.insert(table, [self._changed(table, row)])

    def _change_key(self, transaction: OpenTransaction, table: Table) -> None:
        free = self._free_keys(transaction, table)
        for number in self._some(transaction, table, 1) if free else ():
            row = transaction.rows(table)[number]
            if self._choices.chance(0.3):
                row = self._changed(table, row)
            self._move(transaction, table, number, row, self._choices.pick(free))

    def _swap_keys(self, transaction: OpenTransaction, table: Table) -> None:
        """Swaps keys through a free key, as a user must."""
        free, numbers = self._free_keys(transaction, table), self._some(transaction, table, 2)
        if free and len(numbers) == 2:
            (first, a), (second, b) = ((number, transaction.rows(table)[number]) for number in numbers)
            self._move(transaction, table, first, a, free[0])
            self._move(transaction, table, second, b, table.key_of(a))
            self._move(transaction, table, first, a, table.key_of(b))

    def _shift_keys(self, transaction: OpenTransaction, table: Table) -> None:
        """A row takes the key that another row leaves."""
        free, numbers = self._free_keys(transaction, table), self._some(transaction, table, 2)
        if free and len(numbers) == 2:
            (first, a), (second, b) = ((number, transaction.rows(table)[number]) for number in numbers)
            self._move(transaction, table, first, a, self._choices.pick(free))
            self._move(transaction, table, second, b, table.key_of(a))

    def _take_freed_key(self, transaction: OpenTransaction, table: Table) -> None:
        """A row changes its key, and a new row takes the old one."""
        free = self._free_keys(transaction, table)
        for number in self._some(transaction, table, 1) if free else ():
            row = transaction.rows(table)[number]
            self._move(transaction, table, number, row, self._choices.pick(free))
            transaction.insert(table, [self._new_row(table, table.key_of(row))])

    def _move(self, transaction: OpenTransaction, table: Table, number: int, row: Row, key: Image) -> None:
        transaction.update(table, number, row | dict(zip(table.key, key, strict=True)))
