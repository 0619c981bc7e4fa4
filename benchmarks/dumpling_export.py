"""An export of one table, as Dumpling writes it from TiDB with `--filetype sql -F 256MiB`: about 200 bytes a row.

The twelve columns have usual types. A few texts have escapes, each JSON document has escaped quotes, and two columns are
NULL in one row of eight.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from pathlib import Path

from cdc_pipeline.mysql.model.table import TableName

TABLE = TableName("shop", "orders")
FILE_BYTES = 256 << 20
_STATEMENT_BYTES = 1_000_000
"""Dumpling's default `--statement-size`."""
_SET_NAMES = "/*!40101 SET NAMES binary*/;\n"
_DEFINITION = """CREATE TABLE `orders` (
  `id` bigint(20) NOT NULL,
  `customer` varchar(64) NOT NULL,
  `amount` decimal(12,2) NOT NULL,
  `ordered_at` datetime NOT NULL,
  `changed_at` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
  `quantity` int(11) NOT NULL,
  `comment` text DEFAULT NULL,
  `attributes` json DEFAULT NULL,
  `weight` double DEFAULT NULL,
  `due` date DEFAULT NULL,
  `status` tinyint(4) NOT NULL,
  `token` varbinary(16) DEFAULT NULL,
  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
"""
_METADATA = """Started dump at: 2026-11-29 01:00:00
SHOW MASTER STATUS:
\tLog: tidb-binlog
\tPos: {tso}
\tGTID:

Finished dump at: 2026-11-29 01:00:01
"""
_WORDS = """express parcel fragile gift invoice customer returned blue green small large second third paid open late Zürich
München warehouse counter pickup north south spare replaced ordered weekly"""
_PLAIN = _WORDS.split()
_WITH_ESCAPES = [*_PLAIN * 8, r"it\'s", r"line\nbreak", r"\"quoted\""]
_FEW = 0xFFF
"""One less than the number of prepared texts of a kind."""


def write_export(folder: Path, rows: int, tso: int, file_bytes: int = FILE_BYTES) -> int:
    """Writes the export into a new folder. Returns the bytes of the files with rows."""
    folder.mkdir()
    (folder / "metadata").write_text(_METADATA.format(tso=tso), encoding="utf-8")
    (folder / f"{TABLE.database}-schema-create.sql").write_text(f"{_SET_NAMES}CREATE DATABASE `{TABLE.database}`;\n")
    (folder / f"{TABLE}-schema.sql").write_text(_SET_NAMES + _DEFINITION, encoding="utf-8")
    total = number = size = 0
    for statement in _statements(rows):
        if number == 0 or size >= file_bytes:
            number, size, statement = number + 1, 0, f"{_SET_NAMES}{statement}"
        with (folder / f"{TABLE}.{number:09}.sql").open("ab") as file:
            written = file.write(statement.encode())
        size, total = size + written, total + written
    return total


def _statements(rows: int) -> Iterator[str]:
    waiting: list[str] = []
    size = 0
    for row in row_texts(rows):
        waiting.append(row)
        size += len(row)
        if size >= _STATEMENT_BYTES:
            yield _insert(waiting)
            waiting, size = [], 0
    if waiting:
        yield _insert(waiting)


def _insert(rows: Iterable[str]) -> str:
    lines = ",\n".join(rows)  # one row a line
    return f"INSERT INTO `{TABLE.table}` VALUES\n{lines};\n"


def row_texts(rows: int) -> Iterator[str]:
    """The rows, in brackets, with the ids from 1 in order. Always the same."""
    source = random.Random(59)
    few = range(_FEW + 1)
    names = [" ".join(source.sample(_PLAIN, 2)) for _ in few]
    phrases = [" ".join(source.sample(_WITH_ESCAPES, 2)) for _ in few]
    days = [str(date(2015, 1, 1) + timedelta(days=number)) for number in few]
    times = [f"{hour:02}:{minute:02}:{hour * minute % 60:02}" for hour in range(24) for minute in range(60)]
    documents = [rf"{{\"city\": \"{source.choice(_PLAIN)}\", \"points\": {source.randrange(99)}}}" for _ in few]
    bits = source.getrandbits
    for number in range(1, rows + 1):
        a, b, c, d, mixed = bits(12), bits(12), bits(12), bits(12), bits(60)
        comment = "NULL" if a & 7 == 0 else f"'{phrases[b]} {phrases[c]}'"
        due = "NULL" if b & 7 == 0 else f"'{days[a]}'"
        yield (
            f"({number},'{names[a]} {b}',{mixed % 10_000_000}.{a % 90 + 10},'{days[c]} {times[d % 1440]}',"
            f"'{days[d]} {times[a % 1440]}',{b},{comment},'{documents[d]}',{c}.{a % 9 + 1},{due},{d % 100 - 50},"
            f"x'{mixed:016x}')"
        )
