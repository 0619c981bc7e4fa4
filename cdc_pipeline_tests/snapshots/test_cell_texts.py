from __future__ import annotations

import pytest

from cdc_pipeline.mysql.model.table import Column, MySqlType
from cdc_pipeline.snapshots.cell_texts import OF_COLUMN, UTF8, Cells, UnreadableCellError


@pytest.mark.parametrize(
    ("kind", "charset", "value", "text"),
    [
        (MySqlType("varchar", charset="latin1"), OF_COLUMN, bytes(range(0x20, 0x100)), None),
        (MySqlType("varchar", charset="latin1"), UTF8, "ü€".encode(), "ü€"),
        (MySqlType("varchar", collation="gbk_chinese_ci"), OF_COLUMN, "中".encode("gbk"), "中"),
        (MySqlType("text", charset="utf16"), OF_COLUMN, "a😀".encode("utf-16-be"), "a😀"),
        (MySqlType("enum", members=("ü",)), OF_COLUMN, b"\xfc", "ü"),  # in the character set of the table
        (MySqlType("json"), OF_COLUMN, '{"a": "é"}'.encode(), '{"a": "é"}'),
        (MySqlType("date"), OF_COLUMN, b"0000-00-00", "0000-00-00"),
        (MySqlType("uuid"), OF_COLUMN, b"0f", "0f"),
        (MySqlType("bit", (10,)), OF_COLUMN, b"\x02\xaa", "02aa"),
        (MySqlType("point"), UTF8, b"\0\xff", "00ff"),
        (MySqlType("vector", (2,)), UTF8, b"[1,2.5]", "[1,2.5]"),
        (MySqlType("vector", (2,)), OF_COLUMN, b"\0\0\x80?\0\0 @", "[1.0,2.5]"),
        (MySqlType("int"), OF_COLUMN, b"-1", "-1"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_texts(kind: MySqlType, charset: str, value: bytes, text: str | None) -> None:
    texts = Cells(Column("c", kind), charset, "latin1").texts([value, None]).to_pylist()
    if text is None:  # MySQL's latin1 has a character for each byte
        assert len(texts[0]) == len(value)
        assert texts[0][0x80 - 0x20 :][:2] == "€\x81"
    else:
        assert texts == [text, None]


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (MySqlType("varchar"), b"\xff", "column 'c' has bytes ff that are no text in utf8mb4"),
        (MySqlType("varchar", charset="ucs2"), b"a", "bytes 61 that are no text in ucs2"),
        (MySqlType("varchar", charset="geostd8"), b"\xc0", "geostd8, which this version cannot decode"),
        (MySqlType("binary", (2,)), b"abc", "3 bytes, of at most 2"),
        (MySqlType("bit", (9,)), b"abc", "3 bytes, of at most 2"),
    ],
)
def test_values_that_cannot_be_the_columns_are_named(kind: MySqlType, value: bytes, message: str) -> None:
    with pytest.raises(UnreadableCellError, match=message) as raised:
        Cells(Column("c", kind), OF_COLUMN, "utf8mb4").texts([None, b"", value])
    assert raised.value.index == 2
