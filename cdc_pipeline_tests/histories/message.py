"""A message of any dialect before it is sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from cdc_pipeline_tests.histories.shapes import Name, Table
from cdc_pipeline_tests.histories.upstream import TSO_SHIFT, Change, Ddl

SQL_TYPES = {"int": 4, "bigint": -5, "varchar": 12, "varbinary": 2004, "decimal": 3, "time": 92, "enum": 4, "set": -7}

Body: TypeAlias = "dict[str, Any]"
PartitionOf: TypeAlias = "Callable[[Change], int]"


@dataclass(frozen=True)
class Message:
    """The content of one Kafka record."""

    kind: str
    """row, ddl, watermark or note. Notes carry no change: heartbeats, transaction markers, false watermarks."""
    body: Body
    commit_ts: int
    order: int
    """What the mode orders by: commitTs, `es` or sequenceId."""
    partition: int = 0
    table: Table | None = None
    op: str = ""
    rows: tuple[Change, ...] = ()
    group: int = 0
    """Equal for the messages into which Canal splits one message. They have one batch number and time."""
    first: Message | None = None
    """The message of the first execution, if the binlog was played again."""
    touched: frozenset[Name] = frozenset()
    """The tables of a DDL statement."""

    def payload(self, ts: int, batch: int) -> str:
        """The message as sent at `ts` (ms) in Canal's batch `batch`."""
        body = dict(self.body)
        if "payload" in body:
            times = body["payload"]["timestamp"]
            if "systemTime" in times:
                body["payload"] = {**body["payload"], "timestamp": {**times, "systemTime": ts}}
        else:
            body["ts"] = 0 if self.body["ts"] is None else ts
            if self.body["id"]:
                body["id"] = batch
        return json.dumps(body, ensure_ascii=False)


def base_type(mysql_type: str) -> str:
    return mysql_type.split("(")[0].split(" ")[0]


def physical_ms(tso: int) -> int:
    return tso >> TSO_SHIFT


def ddl_message(body: Body, event: Ddl, order: int, *, group: int = 0) -> Message:
    touched = frozenset(table.full_name for table in event.statement.tables)
    return Message("ddl", body, event.commit_ts, order, op=body_type(body), group=group, touched=touched)


def body_type(body: Body) -> str:
    return str(body["payload"]["op"] if "payload" in body else body["type"])


def row_message(body: Body, change: Change, rows: tuple[Change, ...], partition: int, order: int) -> Message:
    return Message("row", body, change.commit_ts, order, partition, change.table, change.op, rows)
