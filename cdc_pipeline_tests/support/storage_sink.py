"""Writes the messages of a capture into files as TiCDC's storage sink does (ticdc-facts §6).

Rows go into data files by table, table version, physical table and date. A DDL message becomes a schema file, after all
earlier rows are written. A watermark becomes the checkpoint.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
_TYPES = {"CREATE": 3, "ERASE": 4, "ALTER": 5, "CINDEX": 7, "DINDEX": 8, "TRUNCATE": 11, "RENAME": 14, "QUERY": 1}
_EXTENSION = re.compile(r',"_tidb":\{[^{}]*\}\}$')
_COLUMN = {"ColumnName": "id", "ColumnType": "INT", "ColumnPrecision": "11", "ColumnIsPk": "true"}


def payloads(capture: str) -> list[str]:
    """The messages of a capture, in order."""
    found: list[str] = []
    for file in sorted((CAPTURES / capture).glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8", newline="\n") as lines:
            found += [json.loads(line)["payload"] for line in lines]
    return found


def checkpoint(tso: int) -> bytes:
    return f'{{"checkpoint-ts":{tso}}}'.encode()


def schema_file(
    database: str, table: str, version: int, sql: str, action: int, columns: list[dict[str, Any]]
) -> tuple[str, bytes]:
    """Path and content of a schema file. The checksum in the name is arbitrary, because the pipeline does not check it."""
    content = {
        "Table": table,
        "Schema": database,
        "Version": 1,
        "TableVersion": version,
        "Query": sql,
        "Type": action,
        "TableColumns": columns or None,
        "TableColumnsTotal": len(columns),
    }
    folder = f"{database}/{table}" if table else database
    return f"{folder}/meta/schema_{version}_0123456789.json", json.dumps(content, indent=4).encode()


@dataclass
class StorageSink:
    """The output folder of one changefeed."""

    root: Path
    width: int = 6
    """Digits of the file index."""
    date: str = ""
    """Date folder of the data files; empty: none."""
    extension: bool = True
    """Whether rows keep their `_tidb`."""
    rows_per_file: int = 100
    terminator: bytes = b"\r\n"
    physical: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """`database.table` of a partitioned table → ids of its table partitions."""
    dispatcher: str = ""
    """Dispatcher id in the names of data files; empty: none."""

    def __post_init__(self) -> None:
        self.versions: dict[tuple[str, str], int] = {}
        self._lines: dict[str, list[bytes]] = defaultdict(list)
        self._indexes: dict[str, int] = defaultdict(int)
        self._names: dict[str, int] = {}

    def write(self, messages: Iterable[str]) -> StorageSink:
        """Writes the messages, including the rows of incomplete files."""
        for text in messages:
            message = json.loads(text)
            if message["isDdl"]:
                self._write_ddl(message)
            elif message["type"] == "TIDB_WATERMARK":
                self.flush()
                self.put("metadata", checkpoint(message["_tidb"]["watermarkTs"]))
            else:
                self._write_row(text, message)
        self.flush()
        return self

    def put(self, path: str, content: bytes) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        self._names[path] = content.count(b"\n") if "/CDC" in path else 1

    def names(self) -> list[str]:
        """`file line` of each record."""
        kept = {
            path: lines for path, lines in self._names.items() if path != "metadata" and not path.endswith(".index")
        }
        return [f"{path} {line}" for path, lines in kept.items() for line in range(lines)]

    def flush(self) -> None:
        for folder in [folder for folder, lines in self._lines.items() if lines]:
            self._close(folder)

    def _write_ddl(self, message: dict[str, Any]) -> None:
        self.flush()
        database, table, version = message["database"], message["table"], message["_tidb"]["commitTs"]
        self.versions[database, table] = version
        self.define(database, table, version, message["sql"], _TYPES[message["type"]], [_COLUMN] if table else [])
        if "EXCHANGE PARTITION" in message["sql"]:
            other = message["sql"].rsplit("`", 2)[1]
            self.versions[database, other] = version
            self.define(database, other, version, "", 0, [_COLUMN, {"ColumnName": "v", "ColumnType": "VARCHAR"}])

    def define(
        self, database: str, table: str, version: int, sql: str, action: int, columns: list[dict[str, Any]]
    ) -> None:
        path, content = schema_file(database, table, version, sql, action, columns)
        self.put(path, content)

    def _write_row(self, text: str, message: dict[str, Any]) -> None:
        name = f"{message['database']}.{message['table']}"
        parts = [message["database"], message["table"], str(self.versions[message["database"], message["table"]])]
        if ids := self.physical.get(name):
            # any rule that sends equal rows to the same table partition
            parts.append(str(ids[len(json.dumps(message["data"][0])) % len(ids)]))
        folder = "/".join([*parts, *([self.date] if self.date else [])])
        line = (text if self.extension else _EXTENSION.sub("}", text)).encode()
        self._lines[folder].append(line)
        if len(self._lines[folder]) == self.rows_per_file:
            self._close(folder)

    def _close(self, folder: str) -> None:
        self._indexes[folder] += 1
        dispatcher = f"_{self.dispatcher}_" if self.dispatcher else ""
        name = f"CDC{dispatcher}{self._indexes[folder]:0{self.width}}.json"
        self.put(f"{folder}/meta/CDC.index", f"{name}\n".encode())
        self.put(f"{folder}/{name}", b"".join(line + self.terminator for line in self._lines.pop(folder)))
