"""Dumpling's CSV and the files of --tab: printed values are read back, other dialects are rejected."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.errors import SourceError
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.snapshots.cell_texts import OF_COLUMN, UTF8
from cdc_pipeline.snapshots.csv_files import csv_batches, outfile_batches, read_header
from cdc_pipeline.snapshots.definitions import ExportedTable
from cdc_pipeline.snapshots.table_rows import RowBatch
from cdc_pipeline_tests.support.exports import Rows, text_of

_CREATE = (
    'CREATE TABLE `t` (`id` bigint, `te"xt` text, `bytes` blob, `old` varchar(9) CHARACTER SET gbk, `b8` binary(8))'
)
_NAMES = ["id", 'te"xt', "bytes", "old", "b8"]
_HEADER = b'"id","te\\"xt","bytes","old","b8"\n'


def _table(charset: str) -> ExportedTable:
    return ExportedTable(TableName("d", "t"), f"{_CREATE} DEFAULT CHARSET=utf8mb4", "d.t-schema.sql", charset)


def _rows(batches: Iterator[RowBatch]) -> Rows:
    return [row for batch in batches for row in batch.texts.to_pylist()]


def _csv(content: bytes, block: int = 1 << 20) -> Rows:
    text = text_of(content, block)
    return _rows(csv_batches(text, _table(UTF8).cells(read_header(text)), 2))


def _outfile(content: bytes, block: int = 1 << 20) -> Rows:
    return _rows(outfile_batches(text_of(content, block), _table(OF_COLUMN).cells(()), 2))


def _escaped(value: bytes, escapes: dict[int, bytes]) -> bytes:
    return b"".join(escapes.get(byte, bytes([byte])) for byte in value)


def _csv_line(values: list[bytes | None]) -> bytes:
    escapes = {0: b"\\0", 10: b"\\n", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
    first, *others = (b"\\N" if value is None else _escaped(value, escapes) for value in values)
    return b",".join([first, *(text if text == b"\\N" else b'"%b"' % text for text in others)]) + b"\n"


def _outfile_line(values: list[bytes | None]) -> bytes:
    escapes = {0: b"\\0", 9: b"\\\t", 10: b"\\\n", 92: b"\\\\"}
    cells = [b"\\N" if value is None else _escaped(value, escapes) for value in values]
    if (old := values[3]) is not None:  # the server does not escape the second byte of a character
        characters = (character.encode("gbk") for character in old.decode("gbk"))
        cells[3] = b"".join(each if len(each) > 1 else _escaped(each, escapes) for each in characters)
    return b"\t".join(cells) + b"\n"


_ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.text() | st.sampled_from(["NULL", "N", '","', "\\N ", "\n\\", "\t"]),
        st.none() | st.binary(),
        st.none() | st.text(st.sampled_from('a中文誠\\\n\t,"僜乗')),
        st.none() | st.binary(min_size=8, max_size=8),
    ),
    max_size=6,
)


def _read_back(rows: list[tuple], line: Callable[[list[bytes | None]], bytes], old: str) -> tuple[bytes, Rows]:
    content, expected = b"", []
    for id_, text, data, other, fixed in rows:
        id_text = None if id_ is None else str(id_)
        content += line(
            [
                id_text and id_text.encode(),
                None if text is None else text.encode(),
                data,
                None if other is None else other.encode(old),
                fixed,
            ]
        )
        digits = (None if value is None else value.hex() for value in (data, fixed))
        expected.append(dict(zip(_NAMES, (id_text, text, next(digits), other, next(digits)), strict=True)))
    return content, expected


@given(rows=_ROWS, block=st.integers(1, 50))
@settings(max_examples=100, deadline=None)
def test_csv_is_read_back(rows: list[tuple], block: int) -> None:
    content, expected = _read_back(rows, _csv_line, "utf-8")
    assert _csv(_HEADER + content, block) == expected
    assert _csv((_HEADER + content).replace(b"\n", b"\r\n"), block) == expected


@given(rows=_ROWS, block=st.integers(1, 50))
@settings(max_examples=100, deadline=None)
def test_outfiles_are_read_back(rows: list[tuple], block: int) -> None:
    content, expected = _read_back(rows, _outfile_line, "gbk")
    assert _outfile(content, block) == expected


@pytest.mark.parametrize("block", [2, 1 << 20])
def test_a_file_cut_at_any_byte_is_rejected_behind_its_whole_lines(block: int) -> None:
    content = _HEADER + b'1,"a\\n","\\0\xff",\\N,"12345678"\n-2,\\N,\\N,"",\\N\n'
    whole = _csv(content)
    for length in range(len(content)):
        cut = content[:length]
        if cut.endswith(b"\n"):
            assert _csv(cut, block) == whole[: cut.count(b"\n") - 1]
        else:
            with pytest.raises(SourceError):
                _csv(cut, block)
    line = b"1\ta\\\nb\t\\0\t\\N\t12345678\n"
    for length in range(1, len(line)):
        with pytest.raises(SourceError, match="row 1: the file ends behind"):
            _outfile(line[:length], block)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'1,"a","b","c","12345678"\n', "names of the columns in double quotes"),  # --no-header
        (b'id,te"xt,bytes,old,b8\n1,a,b,c,12345678\n', "names of the columns in double quotes"),  # --csv-delimiter ''
        (b'"id"|"te\\"xt"|"bytes"|"old"|"b8"\n', "names of the columns in double quotes"),  # --csv-separator '|'
        (_HEADER + b'1,"a""b","b","c","12345678"\n', "row 1: .*escape-backslash"),  # --escape-backslash=false
        (_HEADER + b'1,"a","b","c","12345678"\n1,,"b","c","12345678"\n', "row 2: .*csv-null-value"),
        (_HEADER + b'1,"a","b","c"\n', "with 5 columns"),
        (_HEADER + b'1,"a","b","c","3132333435363738"\n', "row 1: column 'b8' has 16 bytes, of at most 8"),
        (b'"id","other"\n1,"a"\n', r"the rows of d\.t have the columns"),
    ],
)
def test_other_dialects_are_rejected(content: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        _csv(content)
