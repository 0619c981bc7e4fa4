from __future__ import annotations

import pytest

from cdc_pipeline.mysql.ddl.column_definitions import read_column
from cdc_pipeline.mysql.ddl.column_types import parse_mysql_type
from cdc_pipeline.mysql.ddl.tokens import Cursor, DdlSyntaxError
from cdc_pipeline.mysql.model.table import MySqlType
from cdc_pipeline_tests.support.notation import cases, change_as_text, column_as_text, type_as_text


@pytest.mark.parametrize(("text", "expected"), cases("types.yaml"))
def test_type(text: str, expected: str) -> None:
    assert type_as_text(parse_mysql_type(text)) == expected


def test_type_has_its_parts() -> None:
    assert parse_mysql_type("enum('a','c,d','it''s')") == MySqlType("enum", members=("a", "c,d", "it's"))
    assert parse_mysql_type("int(8) unsigned zerofill") == MySqlType("int", (8,), unsigned=True, zerofill=True)
    assert parse_mysql_type("NUMERIC(5,5)") == MySqlType("decimal", (5, 5))


@pytest.mark.parametrize("text", ["enum('a", "", "  ", "'int'", "`int`", "int(", "decimal(1,", "varchar(1.5)"])
def test_unknown_types(text: str) -> None:
    with pytest.raises(DdlSyntaxError):
        parse_mysql_type(text)


@pytest.mark.parametrize("case", cases("columns.yaml"), ids=lambda case: str(case["def"]))
def test_column(case: dict[str, str]) -> None:
    cursor = Cursor(case["def"])
    if "error" in case:
        with pytest.raises(DdlSyntaxError) as error:
            read_column(cursor)
        assert case["error"] in str(error.value)
        return
    parsed = read_column(cursor)
    assert cursor.at_end
    assert column_as_text(parsed.column) == case["expect"]
    assert [change_as_text(key) for key in parsed.keys] == case.get("keys", [])
