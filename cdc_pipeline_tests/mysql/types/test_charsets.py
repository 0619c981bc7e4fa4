from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.mysql.ddl.column_types import parse_mysql_type
from cdc_pipeline.mysql.types.charsets import charset_of_column, damaged_text

# ---- (column type, character set of the table) → character set of the column

_CHARSETS: dict[tuple[str, str | None], str | None] = {
    ("varchar(5)", None): None,
    ("varchar(5)", "gbk"): "gbk",
    ("varchar(5) character set latin1", "utf8mb4"): "latin1",
    ("varchar(5) charset UTF8MB4", "gbk"): "utf8mb4",
    ("varchar(5) collate gbk_chinese_ci", "utf8mb4"): "gbk",
    ("varchar(5) collate utf8mb4_0900_ai_ci", "latin1"): "utf8mb4",
    ("varchar(5) character set gbk collate gbk_bin", "utf8mb4"): "gbk",
    ("text ascii", "utf8mb4"): "latin1",  # MySQL's own synonym
    ("text unicode", None): "ucs2",
    ("nchar(5)", "latin1"): "utf8mb3",
    ("national varchar(5)", None): "utf8mb3",
}


@pytest.mark.parametrize(("case", "wanted"), _CHARSETS.items(), ids=str)
def test_charset_of_column(case: tuple[str, str | None], wanted: str | None) -> None:
    kind, default = case
    assert charset_of_column(parse_mysql_type(kind), default) == wanted


# ---- (column type, character set of the table) → the damaged texts of `_TEXTS`

_TEXTS = ("", " ", "abc", "\x00\x7f", "a\nb", "é", "中", "😀", "a\ufffdb", "\u0080", "a\né", "\ufffd")
_WIDE = ("é", "中", "😀", "a\ufffdb", "\u0080", "a\né", "\ufffd")
_REPLACED = ("a\ufffdb", "\ufffd")
_NEVER = None
_DAMAGED: dict[tuple[str, str | None], tuple[str, ...] | None] = {
    # UTF-8 and its subsets are decoded correctly
    **dict.fromkeys([(f"varchar(5) character set {name}", "gbk") for name in ("utf8", "utf8mb3", "utf8mb4")], _NEVER),
    ("char(5) collate utf8mb4_bin", "gbk"): _NEVER,
    ("text character set ascii", "gbk"): _NEVER,
    ("nchar(5)", "gbk"): _NEVER,
    ("longtext", "utf8mb4"): _NEVER,
    ("longtext", "utf8mb3"): _NEVER,
    # in other character sets ASCII is decoded correctly
    **dict.fromkeys([("varchar(5) character set latin1", "utf8mb4"), ("varchar(5)", "gbk")], _WIDE),
    **dict.fromkeys([(kind, "latin1") for kind in ("char(5)", "tinytext", "text", "mediumtext", "longtext")], _WIDE),
    **dict.fromkeys([("text collate gb18030_chinese_ci", None), ("text collate big5_chinese_ci", "utf8mb4")], _WIDE),
    # two or four bytes per character: only the empty text is correct
    **dict.fromkeys(
        [(f"text character set {name}", "utf8mb4") for name in ("ucs2", "utf16", "utf16le", "utf32")],
        tuple(text for text in _TEXTS if text),
    ),
    ("varchar(5)", "utf16"): tuple(text for text in _TEXTS if text),
    # unknown character set: only the replacement character counts as damage
    **dict.fromkeys([(kind, None) for kind in ("varchar(5)", "longtext", "char(5)")], _REPLACED),
    # 16 or 4 raw bytes decoded as UTF-8
    **dict.fromkeys([(kind, charset) for kind in ("uuid", "inet4", "inet6") for charset in (None, "utf8mb4")], _TEXTS),
    # types without a character set
    **dict.fromkeys(
        [
            (kind, charset)
            for kind in ("int", "decimal(5,2)", "json", "blob", "varbinary(5)", "datetime", "bit(3)", "geometry")
            for charset in (None, "latin1", "utf16")
        ],
        _NEVER,
    ),
    ("varchar(5) character set binary", "latin1"): _NEVER,
    # an ENUM is sent as its number
    ("enum('é')", "latin1"): _NEVER,
    ("set('é')", None): _NEVER,
}


@pytest.fixture(scope="module")
def damaged(spark: SparkSession) -> dict[tuple[str, str | None], tuple[str, ...] | None]:
    """The damaged texts of each case, from one query. Asserts that NULL is never damaged and no result is NULL."""
    conditions = {case: damaged_text(F.col("text"), parse_mysql_type(case[0]), case[1]) for case in _DAMAGED}
    asked = {case: condition for case, condition in conditions.items() if condition is not None}
    rows = (
        spark.createDataFrame(list(enumerate([*_TEXTS, None])), "place INT, text STRING")
        .select("place", *(condition.alias(f"c{place}") for place, condition in enumerate(asked.values())))
        .orderBy("place")
        .collect()
    )
    assert set(rows[-1][1:]) == {False}
    assert {answer for row in rows for answer in row[1:]} == {True, False}
    found: dict[tuple[str, str | None], tuple[str, ...] | None] = dict.fromkeys(_DAMAGED)
    for place, case in enumerate(asked):
        found[case] = tuple(text for text, row in zip(_TEXTS, rows, strict=False) if row[f"c{place}"])
    return found


@pytest.mark.parametrize("case", _DAMAGED, ids=str)
def test_damaged_text(
    case: tuple[str, str | None], damaged: dict[tuple[str, str | None], tuple[str, ...] | None]
) -> None:
    assert damaged[case] == _DAMAGED[case]
