"""Finds the tables and rows in a file of mysqldump, of MariaDB or MySQL.

One pass reads the file to its end: where the rows of a table are, and how many. A line begins a statement, except in the
rows of an INSERT and between two DELIMITER lines: these programs escape newlines in strings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.snapshots.cell_texts import UTF8
from cdc_pipeline.snapshots.definitions import ExportedTable, created_table, is_sequence
from cdc_pipeline.snapshots.files import DataFile
from cdc_pipeline.snapshots.insert_statements import ANY_ROW, Head, read_head, unquote
from cdc_pipeline.snapshots.position import ExportPosition, with_statement
from cdc_pipeline.snapshots.row_text import Text

_MAX_STATEMENT = 16 << 20
"""Bytes of a statement other than INSERT: a routine, or a CREATE TABLE."""
_BLANK = re.compile(rb"\s+")
_COMMENT = re.compile(rb"--([^\n]*)(?:\n|\Z)")
_EXECUTABLE = re.compile(rb"((?:/\*.*?\*/[ \t]*)+);*[ \t]*\r?\n", re.DOTALL)
_ROUTINES = re.compile(rb"DELIMITER\s.*?\nDELIMITER ;[ \t]*\r?\n", re.DOTALL | re.IGNORECASE)
_STATEMENT = re.compile(
    rb"((?:SET|DROP|CREATE|LOCK|UNLOCK|USE|DO|ALTER|CHANGE|START|STOP|BEGIN|COMMIT|FLUSH|GRANT|INSTALL)\b.*?);[ \t]*\r?\n",
    re.DOTALL | re.IGNORECASE,
)
_DATABASE = re.compile(r" Host: .*\bDatabase: (.+?)\s*$")
_USE = re.compile(r"USE (`(?:[^`]|``)*`|[^\s;]+)", re.IGNORECASE)
_NAMES = re.compile(r"SET NAMES '?(\w+)")
_TIME_ZONE = re.compile(r"SET TIME_ZONE='([^']+)'")
_DATA = re.compile(r" Dumping data for table ([`\"]?)(.+)\1\s*$")
_NO_SECTION = "it has no section for rows, as by --no-data or --ignore-table-data"
_COMPLETED = re.compile(r" Dump completed(?: on (.*?))?\s*$")
_MULTIBYTE = frozenset({"gbk", "gb18030", "gb2312", "big5", "sjis", "cp932", "ujis", "eucjpms", "euckr"})


@dataclass
class SessionSettings:
    """What SET in the header of a file says of the text behind it."""

    charset: str = UTF8
    """Of SET NAMES. The default of the programs is utf8mb4."""
    time_zone: str | None = None
    """In which TIMESTAMPs are printed. None: in that of the server."""

    def read(self, statement: str) -> None:
        if (found := _NAMES.search(statement)) is not None:
            self.charset = found[1].lower()
        if self.time_zone is None and (found := _TIME_ZONE.search(statement)) is not None:
            self.time_zone = found[1]


@dataclass
class DumpFile:
    """What is in the file, once `read` has read it."""

    file: DataFile
    part_bytes: int
    tables: dict[TableName, ExportedTable] = field(default_factory=dict)
    position: ExportPosition = field(default_factory=ExportPosition)
    settings: SessionSettings = field(default_factory=SessionSettings)
    _database: str = ""
    _skipped: set[TableName] = field(default_factory=set)
    """Sequences."""
    _filled: TableName | None = None
    """The table of the statement before, if that is an INSERT."""
    _sections: dict[TableName, str] = field(default_factory=dict)
    """Table with a section for its rows → what the section lacks. That of an empty table has no INSERT."""
    _is_complete: bool = False

    def read(self, text: Text) -> None:
        """Reads the file to its end. Raises SourceError if it is cut short, torn or XML, or has rows without a table."""
        text.fill()
        if text.text.lstrip()[:5] == b"<?xml":
            raise self.file.error("an export of mysqldump --xml. SQL is expected: repeat the export without --xml")
        try:
            while not text.is_empty:
                self._read_statement(text)
        except UnicodeDecodeError as error:
            raise self.file.error("a definition or name is not UTF-8. Repeat the export with utf8mb4") from error
        if not self._is_complete:
            raise self.file.error(
                "the last line is not '-- Dump completed': the export was cut short, or written with --skip-comments or "
                "--compact. Repeat it without them"
            )
        for name, table in self.tables.items():
            if lack := self._sections.get(name, "" if table.files else _NO_SECTION):
                self.tables[name] = replace(table, lack=f"{self.file.path}: {lack}")

    def _read_statement(self, text: Text) -> None:
        if text.match(_BLANK) is not None:
            return
        if text.text.find(b"\n", text.at) < 0 and (text.fill() or text.is_empty):
            return
        start = text.position
        if (comment := text.match(_COMMENT)) is not None:
            self._read_comment(comment[1].decode(errors="replace"))
            return
        self._is_complete = False
        if (head := read_head(text)) is not None:
            self._read_rows(text, head, start)
            return
        self._filled = None
        if (other := text.match(_EXECUTABLE) or text.match(_STATEMENT)) is not None:
            self._read_other(other[1].decode())
        elif text.match(_ROUTINES) is None and (len(text.text) - text.at > _MAX_STATEMENT or not text.fill()):
            raise text.torn("A statement of mysqldump")

    def _read_comment(self, comment: str) -> None:
        if (found := _DATABASE.match(comment)) is not None:
            self._database = found[1]
        elif (data := _DATA.match(comment)) is not None:
            self._sections[self._named(data[2].replace("``", "`"))] = ""
        elif comment.startswith(" WHERE:") and self._sections:
            self._sections[next(reversed(self._sections))] = "it was exported with --where"
        elif (completed := _COMPLETED.match(comment)) is not None:
            self._is_complete = True
            self.position = replace(self.position, finished=completed[1])
        else:
            self.position = with_statement(self.position, comment)

    def _read_other(self, statement: str) -> None:
        self.settings.read(statement)
        self.position = with_statement(self.position, statement)
        if (used := _USE.match(statement)) is not None:
            self._database = unquote(used[1].encode())
        elif (table := created_table(statement)) is not None:
            name = self._named(table)
            if is_sequence(statement):
                self._skipped.add(name)
            elif name in self.tables:
                raise self.file.error(f"the definition of {name} is in the file twice. Repeat the export")
            else:
                self.tables[name] = ExportedTable(name, statement, self.file.path, self._charset())

    def _named(self, table: str) -> TableName:
        if not self._database:
            raise self.file.error(f"no USE and no '-- Host: … Database: …' names the database of {table!r}")
        return TableName(self._database, table)

    def _charset(self) -> str:
        if self.settings.charset in _MULTIBYTE:
            raise self.file.error(
                f"written with --default-character-set={self.settings.charset}, in which a backslash may be a part of a "
                "character. Repeat the export with utf8mb4"
            )
        return self.settings.charset

    def _read_rows(self, text: Text, head: Head, start: int) -> None:
        name = self._named(head.table)
        table = self.tables.get(name)
        if table is None and name not in self._skipped:
            raise self.file.error(
                f"rows of {name} without its CREATE TABLE. Repeat the export without --no-create-info"
            )
        parts = () if table is None else table.files
        last = parts[-1] if parts else None
        text.row = first = 1 if last is None else last.first_row + (last.rows or 0)
        while not text.ends_insert(text.skip_rows(ANY_ROW)):
            text.expect_more(ANY_ROW)
        if table is None:
            return
        rows, end = text.row - first, text.position
        if last is not None and self._filled == name and end - last.start <= self.part_bytes:
            parts, rows, first, start = parts[:-1], rows + (last.rows or 0), last.first_row, last.start
        self._filled = name
        part = replace(self.file, start=start, end=end, first_row=first, rows=rows)
        self.tables[name] = replace(table, files=(*parts, part))
