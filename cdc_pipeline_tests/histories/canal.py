"""Alibaba Canal's flat messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cdc_pipeline_tests.histories.message import SQL_TYPES, Message, base_type, physical_ms, row_message
from cdc_pipeline_tests.histories.upstream import UPDATE, Change, Row, Table

if TYPE_CHECKING:
    from cdc_pipeline_tests.histories.choices import Choices
    from cdc_pipeline_tests.histories.message import Body, PartitionOf
    from cdc_pipeline_tests.histories.upstream import CreateTable, Transaction


@dataclass
class Canal:
    """Row changes in the order of the binlog, the rows of a statement in one message; `es` is a whole second.

    `old` has the changed columns, and now and then one that changed in an earlier row of the message only. A message is
    split over partitions by row, where rows of a table go to several.
    """

    partition_of: PartitionOf
    choices: Choices
    _groups: int = 0

    def ddl(self, event: CreateTable) -> list[Message]:
        table = event.table
        body = self._body(table, "CREATE", event.commit_ts) | {"isDdl": True, "sql": table.create_statement()}
        return [Message("ddl", body, event.commit_ts, body["es"], table=table, group=self._next_group())]

    def rows(self, transaction: Transaction) -> list[Message]:
        runs: dict[int, list[Change]] = {}
        for change in transaction.statements:
            runs.setdefault(change.statement, []).append(change)
        return [message for run in runs.values() for message in self._run(run)]

    def _run(self, run: list[Change]) -> list[Message]:
        """The messages of one statement: one for each partition."""
        group = self._next_group()
        parts: dict[int, list[Change]] = {}
        for change in run:
            parts.setdefault(self.partition_of(change), []).append(change)
        return [self._message(part, partition, group) for partition, part in parts.items()]

    def _message(self, changes: list[Change], partition: int, group: int) -> Message:
        first = changes[0]
        table, types = first.table, dict(first.table.columns)
        body = self._body(table, first.op, first.commit_ts) | {
            "data": [_canal_row(table, change.row) for change in changes],
            "mysqlType": {name: _canal_type(words) for name, words in table.columns},
            "old": self._old(table, changes) if first.op == UPDATE else None,
            "pkNames": table.in_column_order(table.primary_key) or None,
            "sqlType": {name: SQL_TYPES[base_type(words)] for name, words in types.items()},
        }
        return replace(row_message(body, first, tuple(changes), partition, body["es"]), group=group)

    def _old(self, table: Table, changes: list[Change]) -> list[Row]:
        found, changed_so_far = [], set[str]()
        for change in changes:
            before, after = change.before, change.after
            assert before is not None
            assert after is not None
            changed = {name for name in table.names if before[name] != after[name]}
            leaked = changed_so_far if self.choices.chance(0.5) else set()
            found.append(_canal_row(table, {name: before[name] for name in table.names if name in changed | leaked}))
            changed_so_far = changed_so_far | changed
        return found

    def _next_group(self) -> int:
        self._groups += 1
        return self._groups

    @staticmethod
    def _body(table: Table, kind: str, commit_ts: int) -> Body:
        return {
            "data": None,
            "database": table.database,
            "es": physical_ms(commit_ts) // 1000 * 1000,
            "gtid": "",
            "id": 1,
            "isDdl": False,
            "mysqlType": None,
            "old": None,
            "pkNames": None,
            "sql": "",
            "sqlType": None,
            "table": table.name,
            "ts": 0,
            "type": kind,
        }


def _canal_type(mysql_type: str) -> str:
    """The type in the words of the statement, `unsigned` in small letters."""
    return mysql_type.upper().replace(" UNSIGNED", " unsigned")


def _canal_row(table: Table, row: Row) -> Row:
    """The row with decimals as Canal writes them: 100.00 is 100.0."""
    types = dict(table.columns)
    return {
        name: f"{value[:-3]}.0"
        if value is not None and types[name].startswith("decimal") and value.endswith(".00")
        else value
        for name, value in row.items()
    }
