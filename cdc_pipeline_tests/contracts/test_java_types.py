"""The two types that Canal names for a column: `mysqlType` (of the table definition) and `sqlType` (of the binlog)."""

from __future__ import annotations

import pytest

from cdc_pipeline.contracts.java_types import contradictions

# mysqlType → codes of Canal 1.1.0 to 1.1.8: of values, of NULL, and of the drivers that other encoders ask
_FITTING: dict[str, tuple[int | None, ...]] = {
    "int(11)": (4, -5, None),
    "INT(8) unsigned zerofill": (4, -5),
    "bigint unsigned": (-5, 3),
    "tinyint(1)": (-6, -7, 5),
    "BOOLEAN": (-6, -7),
    "NUMERIC(5,5)": (3,),
    "float": (7, 8),
    "varchar(20)": (12,),
    "NATIONAL CHAR(5)": (1, 12),
    "longtext": (2005, -4, -1),
    "tinytext": (2005, -3),
    # Canal sends its bytes as ISO-8859-1, as if it were a BLOB
    "TEXT(100)": (2004, 2005, -3),
    "mediumtext (9)": (2004,),
    "varbinary(8)": (2004, -3),
    "binary(8)": (2004, -2),
    "point": (2004, -2),
    "json": (12, 1111, 2004, -4),
    "set('a')": (-7, 2004, -2),
    "enum('a')": (4,),
    "year": (12,),
    " datetime(6)": (93,),
    "a type of the future": (4, 12, 2004),
    "": (4,),
}
_CONTRADICTORY = {
    "int": (12, 93, 2005, 1),
    "bigint": (4, 12),
    "varchar(20)": (4, -5, 93, 3, 2004, 1),
    "TEXT(100)": (12,),
    "TEXT": (2004, 12),
    "datetime": (91, 92, 12),
    "decimal(10,2)": (8, 4),
    "json": (4, 93),
    "blob": (2005, 12),
    "enum('a')": (12, -7),
}


@pytest.mark.parametrize(("mysql_type", "code"), [(text, code) for text, codes in _FITTING.items() for code in codes])
def test_types_that_fit(mysql_type: str, code: int | None) -> None:
    assert contradictions({"a": mysql_type}, {"a": code}) == ()
    assert contradictions({"a": mysql_type}, {}) == ()


@pytest.mark.parametrize(
    ("mysql_type", "code"), [(text, code) for text, codes in _CONTRADICTORY.items() for code in codes]
)
def test_types_that_contradict_each_other(mysql_type: str, code: int) -> None:
    assert contradictions({"id": "int", "a": mysql_type}, {"id": 4, "a": code, "other": 12}) == ("a",)
