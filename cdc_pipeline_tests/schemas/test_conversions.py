"""Which type changes are exact. Each pair is (before, after) in MySQL's words."""

from __future__ import annotations

import pytest

from cdc_pipeline.schemas.conversions import unsure_conversion
from cdc_pipeline.schemas.ddl_types import parse_mysql_type

EXACT = [
    ("int", "bigint"),
    ("bigint", "int"),
    ("int unsigned", "varchar(30)"),
    ("int", "decimal(12,0)"),
    ("decimal(12,2)", "decimal(16,4)"),
    ("decimal(12,2)", "varchar(30)"),
    ("varchar(10)", "text"),
    ("text", "json"),
    ("varbinary(4)", "blob"),
    ("float", "double"),
    ("datetime", "datetime(6)"),
    ("time(3)", "time(3)"),
    ("binary(4)", "binary(4)"),
    ("enum('a','b')", "enum('b','c','a')"),
    ("enum('a')", "varchar(3)"),
    ("set('a')", "set('b','a')"),
]
UNSURE = [
    ("decimal(16,4)", "decimal(12,2)"),
    ("datetime(6)", "datetime"),
    ("datetime", "varchar(30)"),
    ("time", "time(3)"),
    ("double", "float"),
    ("double", "varchar(30)"),
    ("varchar(10)", "int"),
    ("varchar(10)", "varbinary(10)"),
    ("binary(4)", "binary(8)"),
    ("enum('a','b')", "enum('a')"),
    ("timestamp", "datetime"),
]


@pytest.mark.parametrize(("old", "new"), EXACT)
def test_exact(old: str, new: str) -> None:
    assert unsure_conversion(parse_mysql_type(old), parse_mysql_type(new)) is None


@pytest.mark.parametrize(("old", "new"), UNSURE)
def test_unsure(old: str, new: str) -> None:
    reason = unsure_conversion(parse_mysql_type(old), parse_mysql_type(new))
    assert reason is not None
    assert str(parse_mysql_type(old)) in reason
