"""An upstream database: tables, transactions over them, and the true rows of each table at every TSO.

Values are texts as Canal-JSON has them (a byte of VARBINARY is the character of the same number) or None.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from cdc_pipeline_tests.messages import EPOCH_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Row: TypeAlias = "dict[str, str | None]"
"""A row by column name. Rows are never changed in place."""
Image: TypeAlias = "tuple[str | None, ...]"
"""A row's values in the order of the columns."""
Name: TypeAlias = "tuple[str, str]"
"""Database and table."""
State: TypeAlias = "dict[Name, list[Image]]"
"""The sorted rows of each table that exists."""

INSERT, UPDATE, DELETE = "INSERT", "UPDATE", "DELETE"

TSO_SHIFT = 18
START_TSO = (EPOCH_MS - 20_000) << TSO_SHIFT
"""Below everything that any history holds."""
END_TSO = (EPOCH_MS + 86_400_000) << TSO_SHIFT
"""Above everything that any history holds."""


@dataclass(frozen=True, eq=False)
class Table:
    """A table. Without `primary_key` and `unique_not_null` it is keyless.

    `clustered`: TiDB keeps the rows under the primary key itself, so that a changed key is another row to TiCDC.
    """

    database: str
    name: str
    columns: tuple[tuple[str, str], ...]
    primary_key: tuple[str, ...] = ()
    unique_not_null: tuple[str, ...] = ()
    clustered: bool = True
    kind: str = ""

    @property
    def full_name(self) -> Name:
        return self.database, self.name

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The handle key in the order of its index; empty for a keyless table."""
        return self.primary_key or self.unique_not_null

    @property
    def keyless(self) -> bool:
        return not self.key

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    def in_column_order(self, names: Iterable[str]) -> list[str]:
        wanted = set(names)
        return [name for name in self.names if name in wanted]

    def key_of(self, row: Mapping[str, str | None]) -> Image:
        return tuple(row[name] for name in self.key)

    def image(self, row: Mapping[str, str | None]) -> Image:
        return tuple(row[name] for name in self.names)

    def expected(self, rows: Iterable[Image]) -> tuple[list[dict[str, str]], list[list[str | None]]]:
        """Columns and rows as an `expected.json` has them, for `truth.differences`: bytes are in hex."""
        binary = [words.startswith("varbinary") for _, words in self.columns]
        found = [
            [
                value.encode("latin-1").hex() if value is not None and is_binary else value
                for value, is_binary in zip(row, binary, strict=True)
            ]
            for row in rows
        ]
        return [{"name": name, "type": words} for name, words in self.columns], found

    def create_statement(self) -> str:
        """CREATE TABLE, with a collation that tells case and trailing spaces apart."""
        parts = [f"`{name}` {words.upper()}{' NOT NULL' if name in self.key else ''}" for name, words in self.columns]
        if self.primary_key:
            parts.append(f"PRIMARY KEY ({_quoted(self.primary_key)})")
        if self.unique_not_null:
            parts.append(f"UNIQUE KEY `uk_{self.name}` ({_quoted(self.unique_not_null)})")
        return f"CREATE TABLE `{self.name}` ({', '.join(parts)}) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin"


def _quoted(names: Iterable[str]) -> str:
    return ",".join(f"`{name}`" for name in names)


@dataclass(frozen=True)
class Change:
    """A change of one row. `row_id` is the row's hidden number; `statement` the number of its statement."""

    table: Table
    op: str
    before: Row | None
    after: Row | None
    commit_ts: int
    row_id: int = 0
    statement: int = 0

    @property
    def row(self) -> Row:
        """The new row where there is one, else the old one."""
        row = self.after if self.after is not None else self.before
        assert row is not None
        return row

    @property
    def changes_key(self) -> bool:
        if self.before is None or self.after is None or self.table.keyless:
            return False
        return self.table.key_of(self.before) != self.table.key_of(self.after)


@dataclass(frozen=True)
class CreateTable:
    """The table comes into being."""

    table: Table
    commit_ts: int
    kind: ClassVar[str] = "ddl"


@dataclass(frozen=True)
class Transaction:
    """`statements`: each row change as the binlog has it. `net`: what is left of each row's changes, as TiKV has it."""

    commit_ts: int
    statements: tuple[Change, ...]
    net: tuple[Change, ...]
    kind: ClassVar[str] = "rows"


Event: TypeAlias = "CreateTable | Transaction"


class OpenTransaction:
    """A transaction that has not committed yet. Rows are named by their hidden numbers."""

    def __init__(self, upstream: Upstream, commit_ts: int) -> None:
        self._upstream = upstream
        self._commit_ts = commit_ts
        self._before: dict[Table, dict[int, Row]] = {}
        self._changes: list[Change] = []
        self._statement = 0

    def rows(self, table: Table) -> dict[int, Row]:
        """The rows as this transaction sees them."""
        return self._upstream.rows[table]

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables it has touched."""
        return tuple(self._before)

    def insert(self, table: Table, rows: Iterable[Row]) -> list[int]:
        """One INSERT of several rows; their hidden numbers."""
        self._begin(table)
        numbers = []
        for row in rows:
            numbers.append(self._upstream.next_row_id())
            self._record(table, INSERT, numbers[-1], None, row)
        return numbers

    def update(self, table: Table, row_id: int, new: Row) -> None:
        """One UPDATE of a row. Where nothing changes no stream shows it."""
        self._begin(table)
        old = self.rows(table)[row_id]
        if old != new:
            self._record(table, UPDATE, row_id, old, new)

    def update_all(self, table: Table, rows: Mapping[int, Row]) -> None:
        """One UPDATE of several rows, which keep their keys."""
        self._begin(table)
        for row_id, new in rows.items():
            old = self.rows(table)[row_id]
            if old != new:
                self._record(table, UPDATE, row_id, old, new)

    def delete(self, table: Table, row_ids: Iterable[int]) -> None:
        """One DELETE of several rows."""
        self._begin(table)
        for row_id in row_ids:
            self._record(table, DELETE, row_id, self.rows(table)[row_id], None)

    def commit(self) -> Transaction:
        net = [change for table, rows in self._before.items() for change in self._net(table, rows)]
        transaction = Transaction(self._commit_ts, tuple(self._changes), tuple(net))
        self._upstream.add(transaction, self.tables)
        return transaction

    def _begin(self, table: Table) -> None:
        self._statement += 1
        self._before.setdefault(table, dict(self.rows(table)))

    def _record(self, table: Table, op: str, row_id: int, before: Row | None, after: Row | None) -> None:
        rows = self.rows(table)
        if after is None:
            del rows[row_id]
        else:
            clash = not table.keyless and any(
                table.key_of(row) == table.key_of(after) for number, row in rows.items() if number != row_id
            )
            assert not clash, f"{table.full_name} has {table.key_of(after)} already"
            rows[row_id] = after
        self._changes.append(Change(table, op, before, after, self._commit_ts, row_id, self._statement))

    def _net(self, table: Table, rows_before: dict[int, Row]) -> Iterable[Change]:
        by_key = table.clustered and bool(table.primary_key)
        before = _by_identity(table, rows_before, by_key)
        after = _by_identity(table, self.rows(table), by_key)
        for identity in {**before, **after}:
            (old_id, old), (new_id, new) = before.get(identity, (0, None)), after.get(identity, (0, None))
            if old != new:
                op = INSERT if old is None else DELETE if new is None else UPDATE
                yield Change(table, op, old, new, self._commit_ts, new_id or old_id)


def _by_identity(table: Table, rows: dict[int, Row], by_key: bool) -> dict[object, tuple[int, Row]]:
    return {table.key_of(row) if by_key else number: (number, row) for number, row in rows.items()}


@dataclass
class Upstream:
    """The database, with its whole history."""

    tables: list[Table] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    rows: dict[Table, dict[int, Row]] = field(default_factory=dict)
    _states: dict[Table, list[tuple[int, list[Image]]]] = field(default_factory=dict)
    _row_ids: int = 0

    def create(self, table: Table, commit_ts: int) -> None:
        self.tables.append(table)
        self.rows[table] = {}
        self.add(CreateTable(table, commit_ts), [table])

    def begin(self, commit_ts: int) -> OpenTransaction:
        assert not self.events or commit_ts > self.events[-1].commit_ts
        return OpenTransaction(self, commit_ts)

    def add(self, event: Event, tables: Iterable[Table]) -> None:
        """Takes the event in, and the rows of the tables that it touched."""
        self.events.append(event)
        for table in tables:
            rows = sorted((table.image(row) for row in self.rows[table].values()), key=sort_key)
            self._states.setdefault(table, []).append((event.commit_ts, rows))

    def next_row_id(self) -> int:
        self._row_ids += 1
        return self._row_ids

    def state_at(self, tso: int) -> State:
        """The tables that exist at a TSO, each with its sorted rows."""
        found = {}
        for table, states in self._states.items():
            if place := bisect_right(states, tso, key=lambda state: state[0]):
                found[table.full_name] = states[place - 1][1]
        return found


def sort_key(row: Image) -> tuple[tuple[bool, str], ...]:
    return tuple((value is not None, value or "") for value in row)
