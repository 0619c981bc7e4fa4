"""The model's tables as an export of Dumpling (captures `export-dumpling`): files of definitions and of INSERTs.

Names of the model need no percent-encoding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from cdc_pipeline_tests.histories.choices import Choices
from cdc_pipeline_tests.histories.shapes import Content, Image, Table

_HEAD = "/*!40101 SET NAMES binary*/;\n"
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", '"': '\\"', "\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z"})
_NUMBERS = ("int", "bigint", "decimal")
_PRIMARY_KEY = re.compile(r"PRIMARY KEY \([^)]*\)")


@dataclass(frozen=True)
class Moment:
    """When an export was made."""

    started: int
    finished: int
    """In ms, on the clock of the program."""
    tso: int | None = None
    """Of the rows of TiDB. None: MySQL."""

    @property
    def metadata(self) -> str:
        log, position = ("mysql-bin.000003", 4711) if self.tso is None else ("tidb-binlog", self.tso)
        return (
            f"Started dump at: {_printed(self.started)}\n"
            f"SHOW MASTER STATUS:\n\tLog: {log}\n\tPos: {position}\n\tGTID:\n\n"
            f"Finished dump at: {_printed(self.finished)}\n"
        )


def _printed(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def is_exportable(table: Table, *, tidb: bool) -> bool:
    """Whether the definition can be read: TiDB does not escape backslashes in what SHOW CREATE TABLE prints."""
    return not tidb or not any("\\" in words for _, words in table.columns)


def write_export(folder: Path, tables: Mapping[Table, Content], moment: Moment, choices: Choices) -> None:
    """Writes a folder. The choices divide the rows of a table into files and statements."""
    folder.mkdir()
    for database in {table.database for table in tables}:
        create = f"CREATE DATABASE `{database}` /*!40100 DEFAULT CHARACTER SET utf8mb4 */;\n"
        (folder / f"{database}-schema-create.sql").write_text(_HEAD + create)
    for table, content in tables.items():
        assert is_exportable(table, tidb=moment.tso is not None)
        name = ".".join(table.full_name)
        create = _definition(table, tidb=moment.tso is not None)
        (folder / f"{name}-schema.sql").write_text(f"{_HEAD}{create};\n", encoding="utf-8")
        for number, rows in enumerate(_parts(content.rows, choices), 1):
            statements = "".join(_insert(content, table.name, part) for part in _parts(rows, choices))
            (folder / f"{name}.{number:09}.sql").write_text(_HEAD + statements, encoding="utf-8")
    (folder / "metadata").write_text(moment.metadata)


def _definition(table: Table, *, tidb: bool) -> str:
    """As SHOW CREATE TABLE prints it."""
    create = table.create_statement(printed=tidb)
    if not tidb:
        return create
    kind = "CLUSTERED" if table.clustered else "NONCLUSTERED"
    return _PRIMARY_KEY.sub(lambda key: f"{key[0]} /*T![clustered_index] {kind} */", create)


def _parts(rows: Sequence[Image], choices: Choices) -> Iterator[Sequence[Image]]:
    """The rows, now and then in two parts."""
    if len(rows) > 1 and choices.chance(0.3):
        end = choices.integer(1, len(rows) - 1)
        yield rows[:end]
        rows = rows[end:]
    if rows:
        yield rows


def _insert(content: Content, name: str, rows: Sequence[Image]) -> str:
    types = [words for _, words in content.columns]
    lines = ",\n".join(f"({','.join(map(_literal, row, types))})" for row in rows)
    return f"INSERT INTO `{name}` VALUES\n{lines};\n"


def _literal(value: str | None, mysql_type: str) -> str:
    if value is None:
        return "NULL"
    if mysql_type.startswith("varbinary"):
        return f"x'{value.encode('latin-1').hex()}'"
    if mysql_type.startswith(_NUMBERS):
        return value
    return f"'{value.translate(_ESCAPES)}'"
