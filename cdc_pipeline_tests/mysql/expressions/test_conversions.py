"""Which type changes keep values exact. Each pair is (old type, new type) as MySQL writes them."""

from __future__ import annotations

import pytest

from cdc_pipeline.mysql.ddl.column_types import parse_mysql_type
from cdc_pipeline.mysql.expressions.conversions import column_change_doubt, conversion_doubt
from cdc_pipeline.mysql.model.table import Column, TableSchema

EXACT = [
    ("int", "bigint"),
    ("int unsigned", "bigint"),
    ("int unsigned", "varchar(30)"),
    ("int", "decimal(12,0)"),
    ("decimal(12,2)", "decimal(16,4)"),
    ("decimal(12,2)", "varchar(30)"),
    ("decimal(65,30)", "varchar(67)"),
    ("varchar(10)", "text"),
    ("varbinary(4)", "blob"),
    ("float", "double"),
    ("datetime", "datetime(6)"),
    ("time(3)", "time(3)"),
    ("time", "time(0)"),
    ("binary(4)", "binary(4)"),
    ("enum('a','b')", "enum('b','c','a')"),
    ("enum('a')", "varchar(3)"),
    ("set('a')", "set('b','a')"),
    ("set('a','b')", "set('c','a','b')"),
    ("point", "geometry"),
    ("bit(3)", "bit(9)"),
]
UNSURE = [
    ("bigint", "int"),
    ("int", "int unsigned"),
    ("int", "varchar(10)"),
    ("int(5) zerofill", "varchar(30)"),
    ("int", "decimal(9,0)"),
    ("decimal(16,4)", "decimal(12,2)"),
    ("decimal(12,2)", "decimal(12,4)"),
    ("decimal(45,2)", "decimal(65,4)"),
    ("decimal(38,2)", "decimal(45,2)"),
    ("datetime(6)", "datetime"),
    ("datetime", "varchar(30)"),
    ("time", "time(3)"),
    ("double", "float"),
    ("double", "decimal(9,2)"),
    ("float(7,4)", "float(7,2)"),
    ("double", "varchar(30)"),
    ("varchar(10)", "int"),
    ("varchar(10)", "varchar(9)"),
    ("varchar(10)", "char(10)"),
    ("varchar(10)", "varbinary(10)"),
    ("text", "json"),
    ("binary(4)", "binary(8)"),
    ("enum('a','b')", "enum('a')"),
    ("set('a','b')", "set('b','a')"),
    ("timestamp", "datetime"),
    # the labels are not known, only their numbers
    ("enum", "enum('a','b')"),
    ("set", "set('a')"),
    ("enum", "varchar(9)"),
]


@pytest.mark.parametrize(("old", "new"), EXACT)
def test_exact(old: str, new: str) -> None:
    assert conversion_doubt(parse_mysql_type(old), parse_mysql_type(new)) is None


@pytest.mark.parametrize(("old", "new"), UNSURE)
def test_unsure(old: str, new: str) -> None:
    reason = conversion_doubt(parse_mysql_type(old), parse_mysql_type(new))
    assert reason is not None
    assert str(parse_mysql_type(old)) in reason


_TYPES = [
    *("tinyint", "int", "int unsigned", "bigint unsigned", "bit(8)", "year", "decimal(10,2)", "decimal(65,30)"),
    *(
        "float",
        "double",
        "date",
        "datetime",
        "datetime(6)",
        "timestamp(3)",
        "time",
        "time(6)",
        "char(9)",
        "varchar(99)",
    ),
    *("text", "binary(9)", "varbinary(99)", "blob", "enum('a','b')", "set('a','b')", "json"),
]
_INTEGERS = ("tinyint", "int", "int unsigned", "bigint unsigned")
_TEXTS = ("char(9)", "varchar(99)", "text")
_BYTES = ("binary(9)", "varbinary(99)", "blob")
_LABELS = ("enum('a','b')", "set('a','b')")
_OF_INTEGERS = (*_INTEGERS, "bit(8)", "year", "decimal(10,2)", "decimal(65,30)", "float", "double", *_TEXTS, *_BYTES)
_OF_TEXTS = (
    *(
        *_INTEGERS,
        "decimal(10,2)",
        "float",
        "double",
        "date",
        "datetime",
        "datetime(6)",
        "timestamp(3)",
        "time",
        "time(6)",
    ),
    *(*_TEXTS, *_BYTES, *_LABELS, "json"),
)
_COMPUTED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*_INTEGERS, "year"), _OF_INTEGERS),
    "bit(8)": (*_INTEGERS, "year", "decimal(10,2)", "decimal(65,30)", "float", "double"),
    "decimal(10,2)": (*_INTEGERS, "decimal(65,30)", "float", "double", *_TEXTS, *_BYTES),
    "decimal(65,30)": (*_TEXTS, *_BYTES),
    "float": (*_INTEGERS, "decimal(10,2)", "double"),
    "double": (*_INTEGERS, "decimal(10,2)", "float"),
    "date": ("datetime", "datetime(6)", "timestamp(3)", *_TEXTS, *_BYTES),
    "datetime": ("date", "datetime(6)", "timestamp(3)", *_TEXTS, *_BYTES),
    "datetime(6)": ("datetime", "timestamp(3)", *_TEXTS, *_BYTES),
    "timestamp(3)": ("datetime", "datetime(6)", *_TEXTS, *_BYTES),
    "time": ("time(6)", *_TEXTS, *_BYTES),
    "time(6)": ("time", *_TEXTS, *_BYTES),
    **dict.fromkeys(_TEXTS, _OF_TEXTS),
    **dict.fromkeys(_BYTES, (*_TEXTS, *_BYTES)),
    **dict.fromkeys(_LABELS, (*_TEXTS, *_BYTES, *_LABELS)),
    "json": (*_INTEGERS, "decimal(10,2)", "float", "double", *_TEXTS, *_BYTES),
}


@pytest.mark.parametrize("old", _TYPES)
def test_uncertain_conversions(old: str) -> None:
    """All conversions are uncertain, except the ones in `_COMPUTED`, which the documentation lists."""
    schema = TableSchema((Column("c", parse_mysql_type(old)),), primary_key=("c",))
    computed = [
        new
        for new in _TYPES
        if column_change_doubt(schema.columns[0], Column("c", parse_mysql_type(new)), schema, "UTC") is None
    ]
    assert [new for new in computed if new != old] == [new for new in _COMPUTED[old] if new != old]
    assert old in computed
