"""Builds messages of each dialect and capture files for small stories. Real captures are in `data/captures`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdc_pipeline.contracts.java_types import CANAL_CODES, CODES

EPOCH_MS = 1_795_248_690_000


def tso(step: int) -> int:
    """The TSO `step` seconds after the start of the story (`EPOCH_MS`)."""
    return (EPOCH_MS + 1000 * step) << 18


def _commit_ms(step: int, extension: bool) -> int:
    """Without the extension no whole second: a stream of whole seconds only would not be TiCDC's."""
    return (tso(step) >> 18) + (0 if extension else 1)


def row(
    kind: str,
    table: str,
    step: int,
    data: dict[str, str | None],
    *,
    old: dict[str, str | None] | None = None,
    types: dict[str, str] | None = None,
    key: list[str] | None = None,
    database: str = "db",
    extension: bool = True,
) -> str:
    """A row message as TiCDC writes it."""
    es = _commit_ms(step, extension)
    message: dict[str, Any] = {
        "id": 0,
        "database": database,
        "table": table,
        "pkNames": key if key is not None else [],
        "isDdl": False,
        "type": kind,
        "es": es,
        "ts": es + 5,
        "sql": "",
        "sqlType": dict.fromkeys(data, 12),
        "mysqlType": types or dict.fromkeys(data, "varchar"),
        "old": None if old is None else [old],
        "data": [data],
    }
    if extension:
        message["_tidb"] = {"commitTs": tso(step)}
    return json.dumps(message, ensure_ascii=False)


def ddl(
    sql: str, step: int, *, table: str = "", database: str = "db", kind: str = "ALTER", extension: bool = True
) -> str:
    es = _commit_ms(step, extension)
    message: dict[str, Any] = {
        "id": 0,
        "database": database,
        "table": table,
        "pkNames": None,
        "isDdl": True,
        "type": kind,
        "es": es,
        "ts": es + 5,
        "sql": sql,
        "sqlType": None,
        "mysqlType": None,
        "data": None,
        "old": None,
    }
    if extension:
        message["_tidb"] = {"commitTs": tso(step)}
    return json.dumps(message, ensure_ascii=False)


def watermark_tso(step: int) -> int:
    """Above all changes of this step: those at exactly a watermark may follow it."""
    return tso(step) + 1


def watermark(step: int, watermark_ts: int | None = None) -> str:
    message = {
        "id": 0,
        "database": "",
        "table": "",
        "pkNames": None,
        "isDdl": False,
        "type": "TIDB_WATERMARK",
        "es": tso(step) >> 18,
        "ts": (tso(step) >> 18) + 5,
        "sql": "",
        "sqlType": None,
        "mysqlType": None,
        "data": None,
        "old": None,
        "_tidb": {"watermarkTs": watermark_tso(step) if watermark_ts is None else watermark_ts},
    }
    return json.dumps(message)


@dataclass
class Topic:
    """A topic that assigns offsets and writes its records as capture files."""

    name: str = "t"
    lines: list[str] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)

    def send(self, payload: str | None, partition: int = 0, *, sent: int | None = None) -> Topic:
        offset = self.offsets.get(partition, 0)
        self.offsets[partition] = offset + 1
        self.lines.append(record_line(payload, self.name, partition, offset, sent=sent))
        return self

    def write(self, folder: Path, name: str) -> Topic:
        """Writes the lines since the last write as the file `name`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(line + "\n" for line in self.lines), encoding="utf-8")
        self.lines = []
        return self


def sent_ms(payload: str | None, offset: int) -> int:
    """The timestamp of a record (ms): after the start of the story and not before the watermark that it contains."""
    ms = EPOCH_MS + offset
    if payload is None or '"watermarkTs"' not in payload:
        return ms
    try:
        mark = json.loads(payload)["_tidb"]["watermarkTs"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ms
    return max(ms, mark >> 18) if isinstance(mark, int) and mark < 10**13 << 18 else ms


def record_line(
    payload: str | None, topic: str = "t", partition: int = 0, offset: int = 0, *, sent: int | None = None
) -> str:
    """A record as `kcat -C -J` prints it. `sent`: its timestamp (ms)."""
    record = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "tstype": "create",
        "ts": sent_ms(payload, offset) if sent is None else sent,
        "broker": 0,
        "headers": [],
        "key": None,
        "payload": payload,
    }
    return json.dumps(record, ensure_ascii=False)


# ---- Alibaba Canal, flat messages


def canal(
    kind: str,
    table: str,
    step: int,
    data: list[dict[str, str | None]] | None,
    *,
    old: list[dict[str, str | None]] | None = None,
    types: dict[str, str] | None = None,
    sql_types: dict[str, int] | None = None,
    key: list[str] | None = None,
    database: str = "db",
    sql: str = "",
    is_ddl: bool = False,
    batch: int = 7,
) -> str:
    """A message as Canal writes it, with `es` in whole seconds. `batch`: Canal's batch number, from 1."""
    columns = list(data[0]) if data else []
    message: dict[str, Any] = {
        "data": data,
        "database": database,
        "es": EPOCH_MS + 1000 * step,
        "gtid": "",
        "id": batch,
        "isDdl": is_ddl,
        "mysqlType": types or (dict.fromkeys(columns, "varchar(20)") if data else None),
        "old": old,
        "pkNames": key,
        "sql": sql,
        "sqlType": sql_types or (_sql_types(types or dict.fromkeys(columns, "varchar")) if data else None),
        "table": table,
        "ts": EPOCH_MS + 1000 * step + 312,
        "type": kind,
    }
    return json.dumps(message, ensure_ascii=False)


def _sql_types(types: dict[str, str]) -> dict[str, int]:
    """The codes that Canal writes for these types: 12 for unknown ones."""
    words = {name: re.split(r"\W", text.strip().lower())[0] for name, text in types.items()}
    return {name: CODES.get(word, (*CANAL_CODES.get(word, ()), 12)[0]) for name, word in words.items()}


def canal_ddl(sql: str, step: int, *, table: str = "", database: str = "db", kind: str = "ALTER") -> str:
    return canal(kind, table, step, None, database=database, sql=sql, is_ddl=True)


# ---- DataWorks


def dataworks(
    op: str,
    table: str | None,
    step: int,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    types: dict[str, str] | None = None,
    key: list[str] | None = None,
    database: str = "db",
    sequence: str | None = None,
    sql: str | None = None,
) -> str:
    """A message as DataWorks writes it. `table` None: no source, as in a heartbeat."""
    columns = types or dict.fromkeys(after or before or {}, "STRING")
    event_time = EPOCH_MS + 1000 * step
    message: dict[str, Any] = {
        "schema": {
            "dataColumn": [{"name": name, "type": kind} for name, kind in columns.items()] or None,
            "primaryKey": key,
            "source": None if table is None else {"dbType": "MySQL", "dbName": database, "tableName": table},
        },
        "payload": {
            "before": None if before is None else {"dataColumn": before},
            "after": None if after is None else {"dataColumn": after},
            "sequenceId": sequence,
            "timestamp": {
                "eventTime": event_time,
                "systemTime": event_time + 779,
                "checkpointTime": event_time,
            },
            "op": op,
            "ddl": None if sql is None else {"text": sql, "ddlMeta": "rO0ABXQABQ=="},
        },
        "version": "0.0.1",
    }
    return json.dumps(message, ensure_ascii=False)
