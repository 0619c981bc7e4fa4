"""INSERT statements of dump programs: a row a line (Dumpling, mydumper, MariaDB) or all rows in one line (MySQL)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cdc_pipeline.snapshots.cell_texts import Cells, Form
from cdc_pipeline.snapshots.literals import CONTENT, INCOMPLETE_LITERAL, LITERAL, NUMBER, unescape_all
from cdc_pipeline.snapshots.row_text import RowPattern, Taken, Text
from cdc_pipeline.snapshots.table_rows import BatchWriter, RowBatch, batches

_ROWS = "A list of rows in brackets that ends with a semicolon"
_INCOMPLETE = re.compile(
    rb"\s*(?:\((?:(?:NULL|%b)\s*,\s*)*(?:NULL|%b|%b)?\s*(?:\)\s*)?)?\Z" % (LITERAL, LITERAL, INCOMPLETE_LITERAL)
)
ANY_ROW = RowPattern(
    re.compile(rb"(?<!;)\s*\((?:(?:NULL|%b)\s*,\s*)*(?:NULL|%b)\)\s*[,;]" % (LITERAL, LITERAL)), _INCOMPLETE, _ROWS
)
"""A row of any number of values, which are not read."""
NAME = rb"(?:`(?:[^`]|``)*`|[\w$\x80-\xff]+)"
_HEAD = re.compile(
    rb"(?:INSERT|REPLACE)\s+(?:IGNORE\s+|DELAYED\s+|LOW_PRIORITY\s+)*INTO\s+(?:%b\.)?(%b)\s*(\(\s*%b(?:\s*,\s*%b)*\s*\))?\s*VALUES"
    % (NAME, NAME, NAME, NAME)
)
_BETWEEN = re.compile(rb"(?:[\s;]+|--[^\n]*\n|/\*.*?\*/)+", re.DOTALL)
_MAX_HEAD = 1 << 20
"""Bytes of the text before the rows of a statement. 4096 columns with names of 64 characters take less."""


@dataclass(frozen=True)
class Head:
    """What an INSERT says before VALUES."""

    table: str
    columns: tuple[str, ...]
    """Empty: all columns of the table."""


def unquote(name: bytes) -> str:
    text = name.decode()
    return text[1:-1].replace("``", "`") if text.startswith("`") else text


def read_head(text: Text) -> Head | None:
    """Moves past the head of an INSERT, if there is one. Raises SourceError for names that are not UTF-8."""
    found = text.match(_HEAD)
    if found is None:
        return None
    try:
        return Head(unquote(found[1]), tuple(map(unquote, re.findall(NAME, found[2] or b""))))
    except UnicodeDecodeError as error:
        raise text.file.error(f"an INSERT with names that are not UTF-8: {error}", text.row) from error


def next_head(text: Text) -> Head | None:
    """The head of the next INSERT; None at the end of the file. Comments and SET before it are skipped.

    Raises SourceError for any other text.
    """
    while True:
        text.match(_BETWEEN)
        if (head := read_head(text)) is not None:
            return head
        if text.ended or len(text.text) - text.at > _MAX_HEAD:
            if text.is_empty:
                return None
            raise text.torn("INSERT INTO … VALUES")
        text.fill()


def row_pattern(cells: Sequence[Cells], quote: bytes) -> RowPattern:
    """A row of these columns. The usual form is a string in this quote, for a number the number, for bytes `x'…'`."""
    # both forms must not match one value: backtracking would take exponential time at the end of a block
    forms = {
        Form.NUMBER: rb"(%b)|NULL|(?![-0-9])(%b)" % (NUMBER, LITERAL),
        Form.BYTES: rb"x'([0-9a-fA-F]*)'|NULL|(?!x')(%b)" % LITERAL,
        Form.TEXT: rb"%b(%b)%b|NULL|(?!%b)(%b)" % (quote, CONTENT, quote, quote, LITERAL),
    }
    values = [rb"(?:%b)\s*" % forms[cell.form] for cell in cells]
    return RowPattern(re.compile(rb"(?<!;)\s*\(" + rb",\s*".join(values) + rb"\)\s*[,;]"), _INCOMPLETE, _ROWS)


def insert_batches(
    text: Text, table: str, cells_for: Callable[[tuple[str, ...]], Sequence[Cells]], rows_per_batch: int
) -> Iterator[RowBatch]:
    """The rows of a file whose INSERTs all fill `table`. `cells_for`: the cells of the columns that an INSERT names.

    Raises SourceError for a file without an INSERT (dump programs write none for an empty table), for one of another table
    or with other columns than the first, and for text that is not a row.
    """
    head = next_head(text)
    if head is None:
        raise text.torn("INSERT INTO … VALUES")
    cells = cells_for(head.columns)
    writer = BatchWriter(text.file, cells, [unescape_all] * len(cells), bytes_are_hex=True)
    # the first quote of the rows opens a string
    found = re.compile(rb"['\"]").search(text.text, text.at)
    pattern = row_pattern(cells, b"'" if found is None else found[0])
    yield from batches(_rows(text, Head(table, head.columns), head, pattern), writer, rows_per_batch)


def _rows(text: Text, expected: Head, head: Head | None, pattern: RowPattern) -> Iterator[Taken]:
    while head is not None:
        if head != expected:
            raise text.file.error(f"an INSERT into {head}. {expected} is expected", text.row)
        while not text.ends_insert(taken := text.take_rows(pattern)):
            yield taken
            text.expect_more(pattern)
        yield taken
        head = next_head(text)
