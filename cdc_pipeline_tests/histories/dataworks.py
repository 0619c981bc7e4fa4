"""Encodes messages as DataWorks does."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace

from cdc_pipeline_tests.histories.choices import Choices
from cdc_pipeline_tests.histories.ddl import AlterTable
from cdc_pipeline_tests.histories.ddl_text import clauses_text, user_text
from cdc_pipeline_tests.histories.ddl_types import ddl_type, named_table, statement_database
from cdc_pipeline_tests.histories.message import (
    Body,
    Message,
    PartitionOf,
    base_type,
    ddl_message,
    physical_ms,
    row_message,
)
from cdc_pipeline_tests.histories.shapes import Row, Table
from cdc_pipeline_tests.histories.upstream import UPDATE, Change, Ddl, Transaction

ROW_ID = "#alibaba_rds_row_id#"
_TYPES = {"int": "LONG", "bigint": "LONG", "varchar": "STRING", "varbinary": "BYTES", "decimal": "DOUBLE"}
_TYPES |= dict.fromkeys(("time", "enum", "set"), "STRING")
_FIRST_SEQUENCE = 1_795_248_688_000_000_000


@dataclass
class DataWorks:
    """Row changes in binlog order, one row per message, one `sequenceId` per change.

    An UPDATE is one UPDATE_AFTER with both images, or UPDATE_BEFOR and UPDATE_AFTER with one image each.
    """

    partition_of: PartitionOf
    choices: Choices
    markers: bool = False
    """Sends TRANSACTION_BEGIN, TRANSACTION_END and heartbeats too."""
    _sequence: int = _FIRST_SEQUENCE

    def ddl(self, event: Ddl) -> list[Message]:
        """One message with the table's columns at that time, also for a statement on several tables.

        As in the format document, an ALTER TABLE may have its clauses only.
        """
        statement, sequence = event.statement, self._next_sequence()
        text, op = user_text(statement, self.choices), ddl_type(statement, canal=True)
        if isinstance(statement, AlterTable) and op == "ALTER" and self.choices.chance(0.2):
            text = clauses_text(statement, self.choices)
        body = self._body(named_table(statement), op, event.commit_ts, sequence, statement_database(statement))
        body["payload"]["ddl"] = {"text": text, "ddlMeta": "rO0ABXQABQ=="}
        return [ddl_message(body, event, sequence)]

    def rows(self, transaction: Transaction) -> list[Message]:
        pairs = self.choices.chance(0.5)
        markers = self.markers and bool(transaction.statements)
        found: list[Message] = []
        if markers and self.choices.chance(0.2):
            found.append(self._note("MHEARTBEAT", transaction.commit_ts, None))
        if markers:
            found.append(self._note("TRANSACTION_BEGIN", transaction.commit_ts, self._next_sequence()))
        for change in transaction.statements:
            found += self._change(change, pairs)
        if markers:
            found.append(self._note("TRANSACTION_END", transaction.commit_ts, self._next_sequence()))
        return found

    def _change(self, change: Change, pairs: bool) -> list[Message]:
        sequence = self._next_sequence()
        before, after = (_typed(change, row) for row in (change.before, change.after))
        if change.op != UPDATE:
            return [self._row(change, change.op, before, after, sequence)]
        if not pairs:
            return [self._row(change, "UPDATE_AFTER", before, after, sequence)]
        return [
            self._row(replace(change, after=None), "UPDATE_BEFOR", before, None, sequence),
            self._row(replace(change, before=None), "UPDATE_AFTER", None, after, sequence),
        ]

    def _row(self, change: Change, op: str, before: Body | None, after: Body | None, sequence: int) -> Message:
        body = self._body(change.table, op, change.commit_ts, sequence)
        body["payload"]["before"] = None if before is None else {"dataColumn": before}
        body["payload"]["after"] = None if after is None else {"dataColumn": after}
        return replace(row_message(body, change, (change,), self.partition_of(change), sequence), op=op)

    def _note(self, op: str, commit_ts: int, sequence: int | None) -> Message:
        body = self._body(None, op, commit_ts, sequence)
        if op == "MHEARTBEAT":
            del body["payload"]["timestamp"]["systemTime"]
        return Message("note", body, commit_ts, sequence or 0, op=op)

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    @staticmethod
    def _body(table: Table | None, op: str, commit_ts: int, sequence: int | None, database: str = "") -> Body:
        columns, source = None, {"dbType": "MySQL", "dbName": database, "tableName": None} if database else None
        if table is not None:
            columns = [{"name": name, "type": _TYPES[base_type(mysql_type)]} for name, mysql_type in table.columns]
            columns += [{"name": ROW_ID, "type": "LONG"}] if table.keyless and op != "CREATE" else []
            source = {"dbType": "MySQL", "dbName": table.database, "tableName": table.name}
        key = table.in_column_order(table.primary_key) if table is not None else []
        event_time = physical_ms(commit_ts)
        return {
            "schema": {"dataColumn": columns, "primaryKey": key or None, "source": source},
            "payload": {
                "before": None,
                "after": None,
                "sequenceId": None if sequence is None else str(sequence),
                "timestamp": {"eventTime": event_time, "systemTime": 0, "checkpointTime": event_time},
                "op": op,
                "ddl": None,
            },
            "version": "0.0.1",
        }


def _typed(change: Change, row: Row | None) -> Body | None:
    if row is None:
        return None
    found = {name: _typed_value(base_type(mysql_type), row[name]) for name, mysql_type in change.table.columns}
    return found | ({ROW_ID: change.row_id} if change.table.keyless else {})


def _typed_value(base: str, value: str | None) -> object:
    if value is None:
        return None
    if base in ("int", "bigint"):
        return int(value)
    if base == "decimal":
        return float(value)
    return base64.b64encode(value.encode("latin-1")).decode() if base == "varbinary" else value
