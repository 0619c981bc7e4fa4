"""Rows of Dumpling's CSV and of the tab-separated files of mysqldump --tab (SELECT … INTO OUTFILE).

Dumpling's default dialect only: a header, commas, strings in double quotes with backslash escapes, `\\N` for NULL, a row a
line. Another separator, delimiter or NULL, no header, and no backslash escapes are rejected at the first line that shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from cdc_pipeline.snapshots.cell_texts import Cells, Form
from cdc_pipeline.snapshots.literals import NUMBER, unescape, unescape_all
from cdc_pipeline.snapshots.row_text import RowPattern, Taken, Text
from cdc_pipeline.snapshots.table_rows import BatchWriter, RowBatch, batches

_CONTENT = rb"[^\"\\\n\r\0]*(?:\\[0nr\"\\][^\"\\\n\r\0]*)*"
_STRING = rb"\"(%b)\"" % _CONTENT
_NO_OTHER_FORM = rb"((?!))?"
_HEADER = re.compile(rb"%b(?:,%b)*\r?\n" % (_STRING, _STRING))
_DIALECT = (
    "A line of Dumpling's default CSV (--csv-separator ',' --csv-delimiter '\"' --csv-null-value '\\N', with header and "
    "--escape-backslash) with {} columns"
)
_INCOMPLETE_LINE = re.compile(rb"[^\n]*\Z")
# a newline in a value follows a backslash
_INCOMPLETE_OUTFILE = re.compile(rb"[^\n\\]*(?:\\.[^\n\\]*)*\\?\Z", re.DOTALL)
_OUTFILE = rb"([^\t\n\\\0]*(?:\\[0\t\n\\][^\t\n\\\0]*)*)"
_LEADS = {
    **dict.fromkeys(("gbk", "gb18030", "big5"), rb"\x81-\xfe"),
    **dict.fromkeys(("sjis", "cp932"), rb"\x81-\x9f\xe0-\xfc"),
}
"""The first bytes of characters whose second byte may be a backslash, which INTO OUTFILE does not escape there."""


def read_header(text: Text) -> tuple[str, ...]:
    """The columns that the first line of a CSV file names. Raises SourceError if it is not a header of Dumpling."""
    while b"\n" not in text.text and text.fill():
        pass
    found = text.match(_HEADER)
    try:
        if found is not None:
            return tuple(unescape(name).decode() for name in re.findall(_STRING, found[0]))
    except UnicodeDecodeError:
        text.at = 0
    raise text.torn(
        "A first line with the names of the columns in double quotes, as Dumpling writes it without --no-header,"
    )


def csv_batches(text: Text, cells: Sequence[Cells], rows_per_batch: int) -> Iterator[RowBatch]:
    """The rows after the header. Raises SourceError at the first line that is not a row."""
    usual = {Form.NUMBER: rb"(%b)" % NUMBER, Form.BYTES: _STRING, Form.TEXT: _STRING}
    other = {Form.NUMBER: rb"(\"%b\")" % _CONTENT, Form.BYTES: _NO_OTHER_FORM, Form.TEXT: rb"(%b)" % NUMBER}
    values = [rb"(?:%b|\\N|%b)" % (usual[cell.form], other[cell.form]) for cell in cells]
    pattern = RowPattern(re.compile(b",".join(values) + rb"\r?\n"), _INCOMPLETE_LINE, _DIALECT.format(len(cells)))
    writer = BatchWriter(text.file, cells, [unescape_all] * len(cells), bytes_are_hex=False)
    yield from batches(_lines(text, pattern), writer, rows_per_batch)


def outfile_batches(text: Text, cells: Sequence[Cells], rows_per_batch: int) -> Iterator[RowBatch]:
    """The rows of a tab-separated file. Raises SourceError at the first line that is not a row."""
    values, unescapes = [], []
    for cell in cells:
        lead = _LEADS.get(cell.charset, b"")
        content = _OUTFILE
        if cell.form is Form.NUMBER:
            content = b"(%b)" % NUMBER
        elif lead:
            content = rb"((?:[^%b\t\n\\\0]|[%b][^\t\n\0]|\\[0\t\n\\])*)" % (lead, lead)
        values.append(rb"(?:\\N|%b)%b" % (content, _NO_OTHER_FORM))
        unescapes.append(_unescape_outfile(lead))
    # where a backslash may be half of a character, only whole columns show whether a newline ends the row
    incomplete = re.compile(rb"") if any(cell.charset in _LEADS for cell in cells) else _INCOMPLETE_OUTFILE
    expected = f"A line of SELECT … INTO OUTFILE with {len(cells)} columns between tabs"
    pattern = RowPattern(re.compile(b"\t".join(values) + b"\n"), incomplete, expected)
    yield from batches(
        _lines(text, pattern), BatchWriter(text.file, cells, unescapes, bytes_are_hex=False), rows_per_batch
    )


def _unescape_outfile(lead: bytes) -> Callable[[Sequence[bytes | None]], Sequence[bytes | None]]:
    """The bytes of values: after a backslash is a tab, a newline, a backslash or the `0` of NUL. `lead`: as in `_LEADS`."""
    parts = re.compile(rb"([%b].)|\\(.)" % lead if lead else rb"((?!))?\\(.)", re.DOTALL)

    def unescaped(content: bytes) -> bytes:
        return parts.sub(lambda part: part[1] or (b"\0" if part[2] == b"0" else part[2]), content)

    return lambda values: [unescaped(value) if value and b"\\" in value else value for value in values]


def _lines(text: Text, pattern: RowPattern) -> Iterator[Taken]:
    while True:
        yield text.take_rows(pattern)
        if text.at < len(text.text):
            text.expect_more(pattern)
        elif not text.fill():
            return
