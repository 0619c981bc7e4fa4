"""Encodes messages as Alibaba Canal's flat messages."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cdc_pipeline_tests.histories.choices import Choices
from cdc_pipeline_tests.histories.ddl_text import user_text
from cdc_pipeline_tests.histories.ddl_types import ddl_type, named_table, statement_database
from cdc_pipeline_tests.histories.message import (
    SQL_TYPES,
    Body,
    Message,
    PartitionOf,
    base_type,
    ddl_message,
    physical_ms,
    row_message,
)
from cdc_pipeline_tests.histories.recased import Recased
from cdc_pipeline_tests.histories.shapes import Name, Row, Table
from cdc_pipeline_tests.histories.typed_texts import sent, upper_type
from cdc_pipeline_tests.histories.upstream import UPDATE, Change, Ddl, Transaction

_SQL_TYPES = SQL_TYPES | {"set": 2004}
"""See canal-facts 23."""


@dataclass
class Canal:
    """Row changes in binlog order, all rows of a statement in one message.

    `es` is the start of the statement in whole seconds. `old` has the changed columns. Now and then it also has a column
    that changed only in an earlier row of the message. A message is split into one per partition if its rows go to
    several partitions.
    """

    partition_of: PartitionOf
    choices: Choices
    late: bool = False
    """Some statements start seconds before they are logged."""
    recased: bool = False
    """The upstream has `lower_case_table_names=1`, and statements spell names in any case."""
    numbered: bool = True
    """`id` is the batch number. Services that write Canal's format without batches write 0."""
    _groups: int = 0

    def ddl(self, event: Ddl) -> list[Message]:
        """One message with the user's text, also for a statement on several tables. `isDdl` is false now and then."""
        statement, table = event.statement, named_table(event.statement)
        recased = Recased(self.choices, new=True) if self.recased else None
        sql, database = user_text(statement, self.choices, recased), statement_database(statement)
        # Canal takes the names from the statement, else the session's database, which is in lower case
        spelled = {} if recased is None else recased.spelled
        database = spelled.get(database, database)
        if table is None and "`" in sql:
            database = f"`{database}`"
        name = (database, "" if table is None else spelled.get(table.name, table.name))
        kind = ddl_type(statement, canal=True)
        marked = kind == "QUERY" or not self.choices.chance(0.05)
        body = self._body(name, kind, event.commit_ts) | {"isDdl": marked, "sql": sql}
        return [ddl_message(body, event, body["es"], group=self._next_group())]

    def rows(self, transaction: Transaction) -> list[Message]:
        runs: dict[int, list[Change]] = {}
        for change in transaction.statements:
            runs.setdefault(change.statement, []).append(change)
        return [message for run in runs.values() for message in self._run(run)]

    def _run(self, run: list[Change]) -> list[Message]:
        """The messages of one statement: one per partition."""
        group = self._next_group()
        parts: dict[int, list[Change]] = {}
        for change in run:
            parts.setdefault(self.partition_of(change), []).append(change)
        body = self._body(run[0].table.full_name, run[0].op, run[0].commit_ts)
        return [self._message(body, part, partition, group) for partition, part in parts.items()]

    def _message(self, begun: Body, changes: list[Change], partition: int, group: int) -> Message:
        first = changes[0]
        table, types = first.table, dict(first.table.columns)
        body = begun | {
            "data": [_canal_row(table, change.row) for change in changes],
            "mysqlType": {name: _canal_type(mysql_type) for name, mysql_type in table.columns},
            "old": self._old(table, changes) if first.op == UPDATE else None,
            "pkNames": table.in_column_order(table.primary_key) or None,
            "sqlType": {name: _SQL_TYPES[base_type(mysql_type)] for name, mysql_type in types.items()},
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

    def _body(self, name: Name, kind: str, commit_ts: int) -> Body:
        waited = self.choices.integer(1, 3000) if self.late and self.choices.chance(0.3) else 0
        return {
            "data": None,
            "database": name[0],
            "es": (physical_ms(commit_ts) - waited) // 1000 * 1000,
            "gtid": "",
            "id": int(self.numbered),
            "isDdl": False,
            "mysqlType": None,
            "old": None,
            "pkNames": None,
            "sql": "",
            "sqlType": None,
            "table": name[1],
            "ts": 0,
            "type": kind,
        }


def _canal_type(mysql_type: str) -> str:
    """The type as the statement spells it, with `unsigned` in lower case, and without escapes in labels."""
    return upper_type(mysql_type).replace(" UNSIGNED", " unsigned")


def _canal_row(table: Table, row: Row) -> Row:
    """The row with decimals in Canal's form: 100.00 becomes 100.0."""
    types = dict(table.columns)
    return {
        name: f"{value.split('.')[0]}.0"
        if value is not None and types[name].startswith("decimal") and not value.split(".")[1].strip("0")
        else sent(types[name], value)
        for name, value in row.items()
    }
