"""Encodes messages as TiCDC does.

`pkNames` is [] for a table without a primary key, even if its handle is a UNIQUE NOT NULL key (ticdc-facts §1, and
`payments` in the captures).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cdc_pipeline_tests.histories.choices import Choices
from cdc_pipeline_tests.histories.ddl import ExchangePartition, RenameTables, Statement
from cdc_pipeline_tests.histories.ddl_text import Tidb, statement_text
from cdc_pipeline_tests.histories.ddl_types import ddl_type, named_table, statement_database
from cdc_pipeline_tests.histories.early_ticdc import early_fields
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
from cdc_pipeline_tests.histories.shapes import Table
from cdc_pipeline_tests.histories.typed_texts import sent
from cdc_pipeline_tests.histories.upstream import DELETE, INSERT, UPDATE, Change, Ddl, Transaction

EXTENSION_MODES = ("extension", "only_updated", "delete_keys_only")
"""Modes with commitTs and watermarks."""
TICDC_MODES = (*EXTENSION_MODES, "default")


@dataclass
class TiCdc:
    """Net changes, one row per message. In a transaction each table's deletes come first, then updates, then inserts."""

    mode: str
    """One of `TICDC_MODES`."""
    raw_changes: bool
    """An UPDATE of the key is one message. Otherwise it is a DELETE and an INSERT.

    The default mode splits it even so if another change of the transaction takes the old key: the messages do not show
    their order, and TiCDC's sort is not stable.
    """
    partition_of: PartitionOf
    choices: Choices
    recased: bool = False
    """Statements spell the names of existing objects in any case."""
    early: bool = False
    """The default mode before v5.4.

    `ts` is 0, an INSERT has [null] in `old` and a DELETE its row, and types lack `unsigned`. Bytes that are valid UTF-8
    are sent as that text. Other bytes, which such an encoder would have lost, are sent as those of a BLOB.
    """

    @property
    def extension(self) -> bool:
        return self.mode in EXTENSION_MODES

    def ddl(self, event: Ddl) -> list[Message]:
        """One message, or one per pair of a RENAME TABLE, all with the same commitTs."""
        statement = event.statement
        if isinstance(statement, RenameTables) and len(statement.pairs) > 1:
            single = [RenameTables((pair,)) for pair in statement.pairs]
            return [self._ddl(event, "RENAME", pair, self._pair(pair), pair.pairs[0][1]) for pair in single]
        table = self._table(statement)
        sql = statement_text(statement, self._style(statement_database(statement)))
        if isinstance(statement, ExchangePartition) and table is statement.table and self.choices.chance(0.3):
            # the old architecture, if the user quoted the partition (ticdc-facts §10)
            sql = re.sub(r"(EXCHANGE PARTITION )(`\w+`)", r"\1`\2`", sql)
        return [self._ddl(event, ddl_type(statement), statement, sql, table)]

    def _ddl(self, event: Ddl, kind: str, statement: Statement, sql: str, table: Table | None) -> Message:
        name = (statement_database(statement), "") if table is None else table.full_name
        body = self._body(name, kind, event.commit_ts, {"commitTs": event.commit_ts}) | {"isDdl": True, "sql": sql}
        return ddl_message(body, event, self._order(event.commit_ts))

    def _table(self, statement: Statement) -> Table | None:
        """The table that the message names. Of EXCHANGE PARTITION the new architecture names the other table."""
        if isinstance(statement, ExchangePartition) and self.choices.chance(0.5):
            return statement.other
        return named_table(statement)

    def _pair(self, statement: RenameTables) -> str:
        style, (old, new) = self._style(""), statement.pairs[0]
        return f"RENAME TABLE {style.table(old)} TO {style.table(new, new=True)}"

    def _style(self, database: str) -> Tidb:
        return Tidb(self.choices, database, Recased(self.choices) if self.recased else None)

    def watermark(self, tso: int) -> Message:
        return Message("watermark", self._body(("", ""), "TIDB_WATERMARK", tso, {"watermarkTs": tso}), tso, tso)

    def rows(self, transaction: Transaction) -> list[Message]:
        found: list[Message] = []
        for table in dict.fromkeys(change.table for change in transaction.net):
            changes = [change for change in transaction.net if change.table is table]
            changes = [part for change in changes for part in self._split(change, changes)]
            if self.choices.chance(0.3):
                changes.reverse()
            changes.sort(key=lambda change: (DELETE, UPDATE, INSERT).index(change.op))
            found += [self._row(change) for change in changes]
        return found

    def _split(self, change: Change, all_changes: Sequence[Change]) -> list[Change]:
        if not change.changes_key or (
            self.raw_changes and (self.extension or not _leaves_to_another(change, all_changes))
        ):
            return [change]
        return [replace(change, op=DELETE, after=None), replace(change, op=INSERT, before=None)]

    def _row(self, change: Change) -> Message:
        table, row = change.table, change.row
        types = dict(table.columns)
        keys_only = self.mode == "delete_keys_only" and change.op == DELETE
        names = table.in_column_order(table.key) if keys_only else table.names
        old = None if change.op != UPDATE else change.before
        if old is not None and self.mode == "only_updated":
            old = {name: value for name, value in old.items() if value != row[name]}
        if old is not None:
            old = {name: sent(types[name], value) for name, value in old.items()}
        body = self._body(table.full_name, change.op, change.commit_ts, {"commitTs": change.commit_ts})
        body |= {
            "pkNames": table.in_column_order(table.primary_key),
            "sqlType": {name: _sql_type(types[name], row[name]) for name in names},
            "mysqlType": {name: _type_to_str(types[name]) for name in names},
            "old": None if old is None else [old],
            "data": [{name: sent(types[name], row[name]) for name in names}],
        }
        if self.early:
            body |= early_fields(body, types)
        return row_message(body, change, (change,), self.partition_of(change), self._order(change.commit_ts))

    def _order(self, commit_ts: int) -> int:
        return commit_ts if self.extension else physical_ms(commit_ts)

    def _body(self, name: tuple[str, str], kind: str, tso: int, extension: dict[str, int]) -> Body:
        return {
            "id": 0,
            "database": name[0],
            "table": name[1],
            "pkNames": None,
            "isDdl": False,
            "type": kind,
            "es": physical_ms(tso),
            "ts": None if self.early else 0,
            "sql": "",
            "sqlType": None,
            "mysqlType": None,
            "old": None,
            "data": None,
            **({"_tidb": extension} if self.extension else {}),
        }


def _leaves_to_another(change: Change, all_changes: Sequence[Change]) -> bool:
    """Whether another change of the transaction takes the old key of `change`."""
    assert change.before is not None
    left = change.table.key_of(change.before)
    return any(
        other is not change and other.after is not None and other.table.key_of(other.after) == left
        for other in all_changes
    )


def _type_to_str(mysql_type: str) -> str:
    """The type as TiCDC sends it by default, without digits."""
    return base_type(mysql_type) + (" unsigned" if mysql_type.endswith(" unsigned") else "")


def _sql_type(mysql_type: str, value: str | None) -> int:
    beyond = mysql_type == "bigint unsigned" and value is not None and int(value) > 2**63 - 1
    return 3 if beyond else SQL_TYPES[base_type(mysql_type)]
