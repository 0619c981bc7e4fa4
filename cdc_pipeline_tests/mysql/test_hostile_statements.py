"""Hostile statements: each is parsed in bounded time, none raises, and exceeding a limit gives a named reason."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc_pipeline.mysql.ddl.column_types import type_or_text
from cdc_pipeline.mysql.ddl.evolution import altered, row_shape
from cdc_pipeline.mysql.ddl.parser import parse_ddl
from cdc_pipeline.mysql.ddl.statements import event_changes
from cdc_pipeline.mysql.expressions.translation import ExpressionError, translate, translate_assignment
from cdc_pipeline.mysql.model.limits import MAX_TRANSLATED_CHARACTERS
from cdc_pipeline.mysql.model.schema_changes import AlterTable, CreateTable, NotSupported, SchemaConflictError
from cdc_pipeline.mysql.model.table import Column, TableName, TableSchema
from cdc_pipeline.stored_json import StoredJson

_T = TableName("db", "t")
_SCHEMA_JSON = StoredJson(TableSchema)
_MANY = 60_000
_BEYOND = {
    "CREATE TABLE t (c BINARY(2000000000))": "binary: length 2,000,000,000: at most 255",
    "ALTER TABLE t ADD c CHAR(256)": "char: length 256: at most 255",
    "ALTER TABLE t ADD c BIT(65)": "bit: bits 65: at most 64",
    "ALTER TABLE t ADD c DECIMAL(66,2)": "decimal: digits 66: at most 65",
    "ALTER TABLE t ADD c DECIMAL(65,39)": "decimal: scale 39: at most 38",
    "ALTER TABLE t ADD c DECIMAL(5,6)": "decimal: scale 6: at most 5, its digits",
    "ALTER TABLE t ADD c TIME(7)": "time: digits of a second 7: at most 6",
    "ALTER TABLE t ADD c VECTOR(16384)": "vector: dimensions 16,384: at most 16,383",
    "ALTER TABLE t ADD c INT(1,2,3)": "int: numbers in brackets 3: at most 1",
    "ALTER TABLE t ADD c SET(" + ",".join(f"'{number}'" for number in range(65)) + ")": "set: labels 65: at most 64",
    "ALTER TABLE t ADD c ENUM(" + ",".join(f"'{number}'" for number in range(65_536)) + ")": (
        "enum: labels 65,536: at most 65,535"
    ),
    "CREATE TABLE t (" + ",".join(f"c{number} INT" for number in range(_MANY)) + ")": "columns 4,097: at most 4,096",
    "CREATE TABLE t (a INT," + ",".join(["UNIQUE(a)"] * 20_000) + ")": "indexes 513: at most 512",
    "ALTER TABLE t ADD INDEX i (" + ",".join(["a"] * _MANY) + ")": "columns of a key 60,000: at most 64",
    f"ALTER TABLE t ADD {'c' * 65} INT": "characters of a column name 65: at most 64",
    f"ALTER TABLE t COMMENT '{'x' * 2**20}'": "characters of the statement 1,048,600: at most 1,048,576",
}


@pytest.mark.parametrize(("sql", "text"), _BEYOND.items(), ids=lambda text: text[:50])
def test_a_statement_beyond_a_limit_names_limit_and_table(sql: str, text: str) -> None:
    began = time.process_time()
    (change,) = parse_ddl(sql, "db", "t")
    assert isinstance(change, NotSupported)
    assert text in change.reason
    assert change.name == _T
    assert len(change.reason) < 400
    assert time.process_time() - began < 60


@pytest.mark.parametrize("text", ["binary(2000000000)", "decimal(99,2)", "x" * 10**6, "enum(" + "('" * 9999])
def test_a_message_type_beyond_a_limit_is_unknown(text: str) -> None:
    kind = type_or_text(text)
    assert kind.params == ()
    assert kind.base == text[:200] + (f"… ({len(text):,} characters)" if len(text) > 200 else "")


def test_a_too_long_varchar_becomes_text_as_without_strict_mode() -> None:
    (change,) = parse_ddl("CREATE TABLE t (a VARCHAR(65536), b VARBINARY(17000000), c VARCHAR(65535))", "db")
    assert isinstance(change, CreateTable)
    assert [str(column.type) for column in change.schema.columns] == ["mediumtext", "longblob", "varchar(65535)"]


def test_many_clauses_over_many_columns_take_linear_time() -> None:
    (created,) = parse_ddl("CREATE TABLE t (" + ",".join(f"c{number} INT" for number in range(4000)) + ")", "db")
    (changed,) = parse_ddl(
        "ALTER TABLE t "
        + ",".join(f"CHANGE c{number} d{number} BIGINT AFTER c{number - 1}" for number in range(3999, 0, -1))
        + "".join([", ADD COLUMN IF NOT EXISTS c0 INT"] * 5000),
        "db",
    )
    assert isinstance(created, CreateTable)
    assert isinstance(changed, AlterTable)
    began = time.process_time()
    with pytest.raises(SchemaConflictError, match="for AFTER"):
        altered(created.schema, changed.clauses)
    renamed = tuple(clause for clause in changed.clauses if getattr(clause, "position", None) is None)
    assert altered(created.schema, renamed) == created.schema
    assert time.process_time() - began < 20


def test_any_error_makes_a_statement_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RecursionError("maximum recursion depth exceeded" + "!" * 10_000)

    monkeypatch.setattr("cdc_pipeline.mysql.ddl.parser.read_create_table", lambda *_, **__: broken())
    (change,) = parse_ddl("CREATE TABLE t (a INT)", "db", "other")
    assert isinstance(change, NotSupported)
    assert change.name == _T
    assert change.reason.startswith("cannot be read: RecursionError: maximum recursion depth exceeded")
    assert len(change.reason) < 300


# ---- random mutations

_FOLDER = Path(__file__).parent / "cases" / "ddl"


def _statements() -> list[str]:
    """All statements of the captures and the cases."""
    found: list[str] = []

    def collect(item: Any) -> None:
        if isinstance(item, str) and " " in item:
            found.append(item)
        elif isinstance(item, dict):
            for key, value in item.items():
                collect(key)
                collect(value)
        elif isinstance(item, list):
            for value in item:
                collect(value)

    for path in sorted(_FOLDER.glob("*.yaml")):
        collect(yaml.safe_load(path.read_text(encoding="utf-8")))
    return list(dict.fromkeys(found))


_LONE = "\ud800"
"""A surrogate without its pair: Spark and Delta never hold one, so no schema that is stored does."""
_PIECES = st.sampled_from(
    [
        *("(", ")", "((((((((", "'", '"', "`", ",", ";", "/*", "*/", "/*!50000", "--", "\\", "\0", "é", "😀", _LONE),
        *("99999999999999999999", "1e9999999999", "0x", "b'2'", "-1", ".5", "NULL", "DEFAULT", "ENUM", "SET('a'", "{"),
        *("PARTITION BY", "VALUES LESS THAN", "AFTER", "UNIQUE", "AS (", "DECIMAL(", "COLLATE", "IF NOT EXISTS"),
    ]
)


@st.composite
def _mutated(draw: st.DrawFn, statements: list[str]) -> str:
    text = draw(st.sampled_from(statements))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        piece = draw(_PIECES | st.just(text[start:end] * draw(st.integers(0, 3))))
        text = text[:start] + piece + text[end:]
    return text


_SOURCE = _statements()
_ANY = (
    _mutated(_SOURCE)
    | st.text(max_size=60)
    | st.recursive(
        st.none() | st.integers() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=9,
    ).map(json.dumps)
)


@settings(max_examples=400, deadline=10_000, suppress_health_check=list(HealthCheck))
@given(_ANY, st.sampled_from(["ddl", "statement", "xa"]))
def test_no_statement_raises(sql: str, kind: str) -> None:
    for change in event_changes(kind, "db", "t", sql):
        change.description()
        if isinstance(change, CreateTable):
            if _LONE not in sql:
                assert _SCHEMA_JSON.from_json(_SCHEMA_JSON.to_json(change.schema)) == change.schema
            row_shape(change.schema)


_KNOWN = parse_ddl("CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(9), c ENUM('a','b'), UNIQUE(a))", "db")


@settings(max_examples=400, deadline=10_000, suppress_health_check=list(HealthCheck))
@given(_mutated([sql for sql in _SOURCE if sql.upper().startswith("ALTER")]))
def test_schema_changes_raise_only_documented_errors(sql: str) -> None:
    (known,) = _KNOWN
    assert isinstance(known, CreateTable)
    for change in event_changes("ddl", "db", "t", sql):
        if isinstance(change, AlterTable):
            with contextlib.suppress(SchemaConflictError):
                schema = altered(known.schema, change.clauses)
                if _LONE not in sql:
                    _SCHEMA_JSON.to_json(schema)


_EXPRESSIONS = yaml.safe_load((_FOLDER.parent / "expressions.yaml").read_text(encoding="utf-8"))
_TEXTS = [(str(table["columns"]), str(case[0])) for table in _EXPRESSIONS for case in table["values"]]
_KINDS = [
    "int",
    "year",
    "bit(3)",
    "decimal(45,3)",
    "time(2)",
    "char(3)",
    "enum('a','B')",
    "set('a','b')",
    "json",
    "float(5,2)",
]


@settings(max_examples=400, deadline=10_000, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_translation_raises_only_documented_errors(data: st.DataObject) -> None:
    columns, text = data.draw(st.sampled_from(_TEXTS))
    mutated = data.draw(_mutated([text]))
    (created,) = parse_ddl(f"CREATE TABLE t ({columns})", "db")
    assert isinstance(created, CreateTable)
    kind = data.draw(st.sampled_from(_KINDS))
    with contextlib.suppress(ExpressionError):
        assert len(translate(mutated, created.schema, "UTC").sql) <= MAX_TRANSLATED_CHARACTERS
    with contextlib.suppress(ExpressionError):
        translate_assignment(mutated, Column("made", type_or_text(kind)), created.schema, "UTC")
