"""Which type changes keep values exact. Each pair is (old type, new type) as MySQL writes them."""

from __future__ import annotations

import pytest

from cdc_pipeline.mysql.ddl.column_types import parse_mysql_type
from cdc_pipeline.mysql.expressions.conversions import column_change_doubt, conversion_doubt, converted_value
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
    ("varchar(63)", "tinytext"),
    ("tinytext", "varchar(255)"),
    ("text(50)", "tinytext"),
    ("varbinary(255)", "tinyblob"),
    ("int", "decimal(65,0)"),
    ("decimal(9,2)", "decimal(9,2)"),
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
    # more than 38 digits are a text with all digits of the scale
    ("int", "decimal(65,30)"),
    ("decimal(9,2)", "decimal(9,2) unsigned"),
    ("varchar(64)", "tinytext"),
    ("mediumtext", "text"),
    ("text", "text(63)"),
    ("varbinary(256)", "tinyblob"),
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


@pytest.mark.parametrize("new", ["time(6)", "time(3)", "varchar(99)"])
def test_digits_of_a_second_that_messages_do_not_name(new: str) -> None:
    """TiCDC's default mode names `time` for TIME(3) too."""
    old, other = Column("c", parse_mysql_type("time")), Column("c", parse_mysql_type(new))
    reason = column_change_doubt(old, other, TableSchema((old,)), "UTC", inferred=True)
    assert (reason is None) == (new == "time(6)")


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize(("new", "is_sure"), [("date", True), ("varchar(99)", False)])
def test_zero_dates_are_no_null_of_other_types(new: str, is_sure: bool, nullable: bool) -> None:
    """A mirror has NULL for them, also in a column that may be NULL."""
    old = Column("c", parse_mysql_type("datetime"), nullable)
    found = converted_value(old, Column("c", parse_mysql_type(new)), TableSchema((old,)), "UTC")
    assert found is not None
    assert (found.doubtful is None) == is_sure


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
