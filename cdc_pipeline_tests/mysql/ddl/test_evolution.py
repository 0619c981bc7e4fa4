from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc_pipeline.mysql.ddl.evolution import altered, row_shape
from cdc_pipeline.mysql.ddl.parser import parse_ddl
from cdc_pipeline.mysql.model.schema_changes import (
    AlterTable,
    Clause,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTable,
    NotSupported,
    NotSupportedClause,
    RenameTable,
    RenameTo,
    SchemaConflictError,
)
from cdc_pipeline.mysql.model.table import Column, TableName, TableSchema
from cdc_pipeline.mysql.types.charsets import charset_of_column, collation_of_column
from cdc_pipeline.stored_json import StoredJson
from cdc_pipeline_tests.support.notation import cases, schema_as_text

_SCHEMA_JSON = StoredJson(TableSchema)


def _table(definition: str) -> TableSchema:
    (created,) = parse_ddl(f"CREATE TABLE t {definition}", "db")
    assert isinstance(created, CreateTable), created
    return created.schema


def _clauses(sql: str) -> tuple[Clause, ...]:
    (change,) = parse_ddl(sql, "db")
    assert isinstance(change, AlterTable), change
    return change.clauses


_CASES: list[dict[str, str]] = [*cases("evolution.yaml"), *cases("partition-evolution.yaml")]


@pytest.mark.parametrize("case", _CASES, ids=lambda case: str(case["sql"]))
def test_altered(case: dict[str, str]) -> None:
    before, clauses = _table(case["from"]), _clauses(case["sql"])
    if "conflict" in case:
        with pytest.raises(SchemaConflictError) as error:
            altered(before, clauses)
        assert case["conflict"] in error.value.reason
        assert error.value.clause in clauses
        return
    after = altered(before, clauses)
    assert _SCHEMA_JSON.from_json(_SCHEMA_JSON.to_json(before)) == before
    assert _SCHEMA_JSON.from_json(_SCHEMA_JSON.to_json(after)) == after
    if "unknown" in case:
        assert after.partitioning is not None
        assert not after.partitioning.is_known
        assert case["unknown"] in after.partitioning.reason
        after = replace(after, partitioning=None)
    assert schema_as_text(after) == schema_as_text(_table(case["to"]))


def test_create_like_copies_partitions() -> None:
    schema = _table("(a INT) PARTITION BY HASH (a) PARTITIONS 2")
    catalog = {TableName("db", "s"): schema}
    _apply(catalog, parse_ddl("CREATE TABLE t LIKE s", "db")[0])
    assert catalog[TableName("db", "t")].partitioning == schema.partitioning


# ---- whole captures: the DDL folded over a catalog equals the final SHOW CREATE TABLE

_DISPLAY_WIDTH = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year"})


@pytest.mark.parametrize("name", ["shop-ticdc", "shop-canal", "types-ticdc", "types-canal"])
def test_fold_of_a_capture(name: str) -> None:
    case = cases(f"fold-{name}.yaml")
    catalog: dict[TableName, TableSchema] = {}
    for statement in case["statements"]:
        database = statement["database"].strip("`")
        for change in parse_ddl(statement["sql"], database):
            _apply(catalog, _placed(change, database, statement.get("true_database", database)))
    expected = {}
    for full_name, create in case["creates"].items():
        database, table = full_name.split(".", 1)
        (created,) = parse_ddl(create, database)
        assert isinstance(created, CreateTable), created
        assert created.name == TableName(database, table)
        expected[full_name] = _facts(created.schema)
    assert {str(table): _facts(schema) for table, schema in catalog.items() if str(table) in expected} == expected
    assert {str(table) for table in catalog} - set(expected) == _LEFT_OVER[name]


# Tables that the messages create and expected.json does not have.
_LEFT_OVER: dict[str, set[str]] = {
    "shop-ticdc": set(),
    "shop-canal": set(),
    "types-ticdc": set(),
    "types-canal": set(),
}


def _placed(change: Any, database: str, true_database: str) -> Any:
    """The change on the statement's own table, if its message names another database."""
    if isinstance(change, AlterTable) and change.name.database in ("", database):
        return replace(change, name=TableName(true_database, change.name.table))
    return change


def _apply(catalog: dict[TableName, TableSchema], change: Any) -> None:
    assert not isinstance(change, NotSupported), change
    if isinstance(change, CreateTable):
        if not (change.if_not_exists and change.name in catalog):
            assert change.name not in catalog
            catalog[change.name] = change.schema
    elif isinstance(change, CreateTableLike):
        catalog[change.name] = catalog[change.source]
    elif isinstance(change, DropTable):
        if not change.if_exists or change.name in catalog:
            del catalog[change.name]
    elif isinstance(change, RenameTable):
        assert change.new_name not in catalog
        catalog[change.new_name] = catalog.pop(change.name)
    elif isinstance(change, DropDatabase):
        for name in [name for name in catalog if name.database == change.database]:
            del catalog[name]
    elif isinstance(change, AlterTable):
        clauses = tuple(clause for clause in change.clauses if not isinstance(clause, NotSupportedClause))
        catalog[change.name] = altered(catalog[change.name], clauses)
        for clause in clauses:
            if isinstance(clause, RenameTo):
                catalog[clause.name] = catalog.pop(change.name)


def _facts(schema: TableSchema) -> dict[str, Any]:
    """The facts that SHOW CREATE TABLE and the folded statements must agree on."""
    return {
        "columns": [_column_facts(column) for column in schema.columns],
        "primary_key": schema.primary_key,
        "unique_keys": {(key.name, key.columns, key.exact) for key in schema.unique_keys},
        "row_key": schema.row_key,
        # SHOW CREATE TABLE quotes some names that statements do not
        "partitioning": str(schema.partitioning).replace("`", ""),
    }


def _column_facts(column: Column) -> tuple[Any, ...]:
    kind = column.type
    # the display width, which new servers omit
    width = kind.base in _DISPLAY_WIDTH and not kind.zerofill and kind.params != (1,)
    return (
        column.name,
        kind.base,
        () if width else kind.params,
        kind.unsigned,
        kind.zerofill,
        kind.members,
        column.nullable,
        column.generated,
    )


def _charsets(schema: TableSchema) -> dict[str, tuple[str | None, str | None]]:
    return {
        column.name: (charset_of_column(column.type, schema.charset), collation_of_column(column.type, schema))
        for column in schema.columns
    }


def test_columns_keep_their_charset_when_the_tables_default_changes() -> None:
    before = _table("(a VARCHAR(9), b TEXT COLLATE utf8mb4_bin, c INT) CHARSET latin1 COLLATE latin1_swedish_ci")
    after = altered(
        before, _clauses("ALTER TABLE t CHARSET utf8mb4 COLLATE utf8mb4_bin, ADD d ENUM('a'), MODIFY b TEXT")
    )
    latin, utf8 = ("latin1", "latin1_swedish_ci"), ("utf8mb4", "utf8mb4_bin")
    assert _charsets(before) == {"a": latin, "b": utf8, "c": latin}
    assert {name: found for name, found in _charsets(after).items() if name != "c"} == {
        "a": latin,
        "b": utf8,
        "d": utf8,
    }
    unnamed = altered(_table("(a VARCHAR(9))"), _clauses("ALTER TABLE t DEFAULT CHARSET utf8mb4"))
    assert _charsets(unnamed) == {"a": (None, None)}
    assert row_shape(unnamed) == row_shape(_table("(a VARCHAR(9))"))


def test_convert_to_changes_column_charsets() -> None:
    before = _table("(a VARCHAR(9), b TEXT CHARACTER SET latin1)")
    after = altered(before, _clauses("ALTER TABLE t CONVERT TO CHARACTER SET gbk COLLATE gbk_bin"))
    assert _charsets(after) == dict.fromkeys("ab", ("gbk", "gbk_bin"))
    assert row_shape(after) != row_shape(before)
