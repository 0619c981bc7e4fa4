"""Values as the programs print them are read back, and no damage to the text changes a row."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.errors import SourceError
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.snapshots.cell_texts import OF_COLUMN
from cdc_pipeline.snapshots.definitions import ExportedTable
from cdc_pipeline.snapshots.insert_statements import insert_batches
from cdc_pipeline.snapshots.literals import unescape, unescape_all
from cdc_pipeline_tests.support.exports import Rows, text_of

_CREATE = "CREATE TABLE `t` (`id` bigint, `text` text, `bytes` blob, `day` date, `old` varchar(9) CHARACTER SET latin1)"
_TABLE = ExportedTable(TableName("d", "t"), f"{_CREATE} DEFAULT CHARSET=utf8mb4", "d.t-schema.sql", OF_COLUMN)
_NAMES = ["id", "text", "bytes", "day", "old"]
_ESCAPES = {0: b"\\0", 10: b"\\n", 13: b"\\r", 26: b"\\Z", 34: b'\\"', 39: b"\\'", 92: b"\\\\"}


def _read(content: bytes, block: int = 1 << 20, rows_per_batch: int = 3) -> Rows:
    batches = insert_batches(text_of(content, block), "t", _TABLE.cells, rows_per_batch)
    return [row for batch in batches for row in batch.texts.to_pylist()]


def _escaped(value: bytes) -> bytes:
    return b"".join(_ESCAPES.get(byte, bytes([byte])) for byte in value)


def _dumpling(value: bytes, is_binary: bool) -> bytes:
    return b"x'%b'" % value.hex().encode() if is_binary else b"'%b'" % _escaped(value)


def _mydumper(value: bytes, _is_binary: bool) -> bytes:
    return b'"%b"' % _escaped(value)


def _mysqldump(value: bytes, is_binary: bool) -> bytes:
    # before a byte that begins no character
    text = re.sub(rb"([\xf8-\xff])", rb"\\\1", _escaped(value)) if is_binary else _escaped(value)
    return b"%b'%b'" % (b"_binary " if is_binary else b"", text)


def _hex_blob(value: bytes, is_binary: bool) -> bytes:
    return b"0x%b" % value.hex().upper().encode() if is_binary and value else b"'%b'" % _escaped(value)


_ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none()
        | st.text()
        | st.sampled_from(["NULL", "\\N", "),(", ");\nINSERT INTO `t` VALUES (1", "'\\'", "0x00"]),
        st.none() | st.binary(),
        st.none() | st.dates().map(str),
        st.none() | st.text(st.characters(codec="latin1", exclude_categories=["Cc"])),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize(
    ("program", "between"),
    [
        (_dumpling, (b"\n", b",\n")),
        (_mydumper, (b"\n", b",\n")),
        (_mydumper, (b"", b"\n,")),  # later versions
        (_mysqldump, (b" ", b",")),
        (_hex_blob, (b"\n", b",\n")),
    ],
)
@given(rows=_ROWS, block=st.integers(1, 64), per_statement=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_printed_rows_are_read_back(program, between, rows, block: int, per_statement: int) -> None:
    printed = []
    for id_, text, content, day, old in rows:
        values = [(text, "utf-8", False), (content, None, True), (day, "ascii", False), (old, "cp1252", False)]
        cells = [b"NULL" if id_ is None else b"%d" % id_]
        for value, charset, is_binary in values:
            raw = value.encode(charset) if isinstance(value, str) else value
            cells.append(b"NULL" if raw is None else program(raw, is_binary))
        printed.append(b"(%b)" % b",".join(cells))
    first, then = between
    statements = [
        b"INSERT INTO `t` VALUES" + first + then.join(printed[start : start + per_statement]) + b";\n"
        for start in range(0, len(printed), per_statement)
    ]
    expected = [
        dict(zip(_NAMES, (None if id_ is None else str(id_), text, content and content.hex(), day, old), strict=True))
        if content != b""
        else dict(zip(_NAMES, (None if id_ is None else str(id_), text, "", day, old), strict=True))
        for id_, text, content, day, old in rows
    ]
    assert _read(b"/*!40101 SET NAMES binary*/;\n" + b"".join(statements), block) == expected


_SMALL = (
    b"/*!40101 SET NAMES binary*/;\n/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n"
    b"INSERT INTO `t` (`id`,`text`,`bytes`,`day`,`old`) VALUES\n"
    b"(1,'it\\'s \\\\',x'00ff','2026-01-01',NULL),\n(-2,'a,(b);',NULL,NULL,'\xfc');\n"
    b"INSERT INTO `t` (`id`,`text`,`bytes`,`day`,`old`) VALUES\n(3,NULL,_binary '\\0\xff',NULL,\"x\");\n"
)


def _rows_before(content: bytes, block: int) -> tuple[Rows, bool]:
    """The rows that are read one by one, and whether the text ends well."""
    rows: Rows = []
    try:
        for batch in insert_batches(text_of(content, block), "t", _TABLE.cells, 1):
            rows += batch.texts.to_pylist()
    except SourceError:
        return rows, False
    return rows, True


@pytest.mark.parametrize("block", [3, 1 << 20])
def test_a_file_cut_at_any_byte_is_rejected_behind_its_whole_rows(block: int) -> None:
    whole, is_right = _rows_before(_SMALL, block)
    assert (len(whole), is_right) == (3, True)
    statement_ends = [match.end() for match in re.finditer(rb";\n(?=INSERT|\Z)", _SMALL)]
    for length in range(len(_SMALL)):
        rows, is_right = _rows_before(_SMALL[:length], block)
        assert rows == whole[: len(rows)]
        # a semicolon ends a statement; what followed is not known to be missing
        assert is_right == (length in statement_ends[1:] or length + 1 in statement_ends[1:]), _SMALL[:length]


@pytest.mark.parametrize("removed", [1, 2, 5])
def test_removed_bytes_never_change_a_row_to_another_form(removed: int) -> None:
    """Bytes missing inside a value cannot be noticed, but those around values are."""
    for start in range(_SMALL.index(b"(1,"), len(_SMALL) - removed):
        damaged = _SMALL[:start] + _SMALL[start + removed :]
        rows, is_right = _rows_before(damaged, 1 << 20)
        if is_right:
            assert all(list(row) == _NAMES for row in rows)
            assert len(rows) == 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"'C:\\\\new'", "C:\\new"),
        (b"_utf8mb4'\xc3\xa9'", "é"),
        (b"_latin1 '\xe9'", "é"),
        (b"_latin1 x'e9'", "é"),
        (b"x'c3a9'", "é"),
        (b"0xC3A9", "é"),
        (b"2155", "2155"),
        (b'CONVERT("[1, \\"a\\"]" USING UTF8MB4)', '[1, "a"]'),
    ],
)
def test_other_literals_of_a_text(value: bytes, text: str) -> None:
    assert _read(b"INSERT INTO t VALUES (1,%b,NULL,NULL,NULL);" % value)[0]["text"] == text


@pytest.mark.parametrize(
    ("value", "digits"), [(b"b'1010101010'", "02aa"), (b"'\\0\\Z'", "001a"), (b'"a"', "61"), (b"0x0A", "0a")]
)
def test_other_literals_of_bytes(value: bytes, digits: str) -> None:
    assert _read(b"REPLACE INTO `t` VALUES (1,NULL,%b,NULL,NULL);" % value)[0]["bytes"] == digits


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b"(1,'C:\\temp',NULL,NULL,NULL)", "row 2: .*cannot be read"),  # --escape-backslash=false
        (b"(1,'it''s',NULL,NULL,NULL)", "row 2: .*cannot be read"),
        (b"(1,'a\nb',NULL,NULL,NULL)", "row 2: .*cannot be read"),
        (b"(1,'a' 'b',NULL,NULL,NULL)", "row 2: .*cannot be read"),
        (b"(1,NULL,NULL,NULL)", "row 2: .*cannot be read"),
        (b"(1,NULL,NULL,NULL,NULL,NULL)", "row 2: .*cannot be read"),
        (b"(1,now(),NULL,NULL,NULL)", "row 2: .*cannot be read"),
        (b"(1,NULL,x'123',NULL,NULL)", "row 2: column 'bytes' has an odd number"),
        (b"(1,NULL,5,NULL,NULL)", "row 2: column 'bytes' has a number"),
        (b"(1,'\xff',NULL,NULL,NULL)", "row 2: column 'text' has bytes ff that are no text in utf8mb4"),
        (b"(1,_klingon'\xff',NULL,NULL,NULL)", "klingon, which this version cannot decode"),
    ],
)
def test_what_is_no_row_is_rejected_with_its_number(row: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=re.compile(rf"t\.sql, {message}|{message}", re.DOTALL)):
        _read(b"INSERT INTO `t` VALUES\n(0,NULL,NULL,NULL,NULL),\n%b,\n(2,NULL,NULL,NULL,NULL);\n" % row)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "INSERT INTO … VALUES is expected"),
        (b"/*!40101 SET NAMES binary*/;\n", "INSERT INTO … VALUES is expected"),
        (b"INSERT INTO `u` VALUES (1);", "an INSERT into .*'u'"),
        (b"INSERT INTO `t` (`id`) VALUES (1);", "the rows of d.t have the columns"),
        (b"INSERT INTO `t` (`id`, `id`) VALUES (1,1);", "the rows of d.t have the columns"),
        (b"DELETE FROM t;", "cannot be read|the file ends behind"),
    ],
)
def test_files_without_rows_of_the_table_are_rejected(content: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        _read(content)


def test_a_value_larger_than_many_blocks_is_read_in_linear_time() -> None:
    value = b"ab\\n" * 500_000
    rows = _read(b"INSERT INTO `t` VALUES (1,'%b',x'%b',NULL,NULL);" % (value, b"ab" * 500_000), block=1000)
    assert (len(rows[0]["text"] or ""), len(rows[0]["bytes"] or "")) == (1_500_000, 1_000_000)


def _cells(names: Sequence[str]) -> list[str]:
    return [cell.charset for cell in _TABLE.cells(names)]


def test_the_columns_of_the_data() -> None:
    assert _cells(()) == ["utf8mb4", "utf8mb4", "utf8mb4", "utf8mb4", "latin1"]


@pytest.mark.parametrize("last", [b"plain", rb"a \\ b", rb"NUL \0", rb"\'"])
def test_a_column_of_escapes(last: bytes) -> None:
    values = [rb"it\'s", None, b"", rb"\"a\nb\r\Z\"", b"none", last]
    assert list(unescape_all(values)) == [None if value is None else unescape(value) for value in values]
