"""An upstream database: transactions and DDL on its tables, and the true state at every TSO."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

from cdc_pipeline_tests.histories.ddl import Statement
from cdc_pipeline_tests.histories.shapes import Content, Row, State, Table
from cdc_pipeline_tests.support.messages import EPOCH_MS

INSERT, UPDATE, DELETE = "INSERT", "UPDATE", "DELETE"

TSO_SHIFT = 18
START_TSO = (EPOCH_MS - 20_000) << TSO_SHIFT
"""Below all changes of any history."""
END_TSO = (EPOCH_MS + 86_400_000) << TSO_SHIFT
"""Above all changes of any history."""


@dataclass(frozen=True)
class Change:
    """A change of one row. `row_id`: the row's internal id. `statement`: the number of the statement in its transaction."""

    table: Table
    op: str
    before: Row | None
    after: Row | None
    commit_ts: int
    row_id: int = 0
    statement: int = 0
    hidden: bool = False
    """A foreign key has made it, and the binlog lacks it."""

    @property
    def row(self) -> Row:
        """The new row, or the old one of a DELETE."""
        row = self.after if self.after is not None else self.before
        assert row is not None
        return row

    @property
    def changes_key(self) -> bool:
        if self.before is None or self.after is None or self.table.keyless:
            return False
        return self.table.key_of(self.before) != self.table.key_of(self.after)


@dataclass(frozen=True)
class Ddl:
    """A DDL statement that was run."""

    statement: Statement
    commit_ts: int
    kind: ClassVar[str] = "ddl"


@dataclass(frozen=True)
class Transaction:
    """`statements`: each row change, as in the binlog. `net`: the net change of each row, as in TiKV."""

    commit_ts: int
    statements: tuple[Change, ...]
    net: tuple[Change, ...]
    kind: ClassVar[str] = "rows"


Event: TypeAlias = "Ddl | Transaction"


class OpenTransaction:
    """An open transaction. Rows are identified by internal ids."""

    def __init__(self, upstream: Upstream, commit_ts: int) -> None:
        self._upstream = upstream
        self._commit_ts = commit_ts
        self._before: dict[Table, dict[int, Row]] = {}
        self._changes: list[Change] = []
        self._statement = 0

    def rows(self, table: Table) -> dict[int, Row]:
        """The rows as the transaction sees them."""
        return self._upstream.rows[table]

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables that the transaction has touched."""
        return tuple(self._before)

    def insert(self, table: Table, rows: Iterable[Row]) -> list[int]:
        """One INSERT of several rows. Returns their ids."""
        self._begin(table)
        numbers = []
        for row in rows:
            numbers.append(self._upstream.next_row_id())
            self._record(table, INSERT, numbers[-1], None, row)
        return numbers

    def update(self, table: Table, row_id: int, new: Row, *, hidden: bool = False) -> None:
        """One UPDATE of a row. An update without effect appears in no stream."""
        self._begin(table)
        old = self.rows(table)[row_id]
        if old != new:
            self._record(table, UPDATE, row_id, old, new, hidden)

    def update_all(self, table: Table, rows: Mapping[int, Row]) -> None:
        """One UPDATE of several rows that keep their keys."""
        self._begin(table)
        for row_id, new in rows.items():
            old = self.rows(table)[row_id]
            if old != new:
                self._record(table, UPDATE, row_id, old, new)

    def delete(self, table: Table, row_ids: Iterable[int], *, hidden: bool = False) -> None:
        """One DELETE of several rows."""
        self._begin(table)
        for row_id in row_ids:
            self._record(table, DELETE, row_id, self.rows(table)[row_id], None, hidden)

    def commit(self) -> Transaction:
        net = [change for table, rows in self._before.items() for change in self._net(table, rows)]
        transaction = Transaction(self._commit_ts, tuple(self._changes), tuple(net))
        self._upstream.add(transaction, self.tables)
        return transaction

    def _begin(self, table: Table) -> None:
        self._statement += 1
        self._before.setdefault(table, dict(self.rows(table)))

    def _record(
        self, table: Table, op: str, row_id: int, before: Row | None, after: Row | None, hidden: bool = False
    ) -> None:
        rows = self.rows(table)
        if after is None:
            del rows[row_id]
        else:
            clash = not table.keyless and any(
                table.key_of(row) == table.key_of(after) for number, row in rows.items() if number != row_id
            )
            assert not clash, f"{table.full_name} has {table.key_of(after)} already"
            rows[row_id] = after
        self._changes.append(Change(table, op, before, after, self._commit_ts, row_id, self._statement, hidden))

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
    """The database with its whole history. `rows`: the existing tables."""

    events: list[Event] = field(default_factory=list)
    rows: dict[Table, dict[int, Row]] = field(default_factory=dict)
    replays: dict[int, Event] = field(default_factory=dict)
    """What was played again: commit TSO → the event, which is in `events` only once."""
    _states: list[tuple[int, dict[Table, Content]]] = field(default_factory=list)
    _row_ids: int = 0

    @property
    def tables(self) -> list[Table]:
        return list(self.rows)

    def execute(self, statement: Statement, commit_ts: int) -> None:
        """Runs DDL."""
        statement.run(self.rows)
        names = [table.full_name for table in self.rows]
        assert len(names) == len(set(names)), statement
        self.add(Ddl(statement, commit_ts), statement.tables)

    def run(self, event: Event) -> None:
        """Does to `rows` what the event did."""
        if isinstance(event, Ddl):
            event.statement.run(self.rows)
            return
        for change in event.statements:
            if change.after is None:
                del self.rows[change.table][change.row_id]
            else:
                self.rows[change.table][change.row_id] = change.after

    def play_again(self, event: Event, commit_ts: int) -> None:
        """Executes the event once more. The binlog keeps the time of its first execution."""
        self.run(event)
        self.replays[commit_ts] = event
        self._add_state(commit_ts, self.rows)

    def begin(self, commit_ts: int) -> OpenTransaction:
        return OpenTransaction(self, commit_ts)

    def logged_events(self) -> list[Event]:
        """The events without hidden changes."""
        return [
            event
            if isinstance(event, Ddl)
            else replace(event, statements=tuple(change for change in event.statements if not change.hidden))
            for event in self.events
        ]

    def add(self, event: Event, touched: Iterable[Table]) -> None:
        """Appends the event, and the state with the new rows of the touched tables."""
        assert not self.events or event.commit_ts > self.events[-1].commit_ts
        self.events.append(event)
        self._add_state(event.commit_ts, touched)

    def _add_state(self, commit_ts: int, touched: Iterable[Table]) -> None:
        known = self._states[-1][1] if self._states else {}
        changed = set(touched)
        state = {
            table: known[table] if table in known and table not in changed else table.content(rows.values())
            for table, rows in self.rows.items()
        }
        self._states.append((commit_ts, state))

    def next_row_id(self) -> int:
        self._row_ids += 1
        return self._row_ids

    def tables_at(self, tso: int) -> Mapping[Table, Content]:
        """The tables that exist at a TSO, with their columns and sorted rows at that time."""
        index = bisect_right(self._states, tso, key=lambda state: state[0])
        return self._states[index - 1][1] if index else {}

    def state_at(self, tso: int) -> State:
        """`tables_at` by name."""
        return {table.full_name: content for table, content in self.tables_at(tso).items()}
