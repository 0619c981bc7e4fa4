from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc_pipeline.mysql.ddl.parser import parse_ddl
from cdc_pipeline.mysql.ddl.tokens import Quoting
from cdc_pipeline.mysql.model.schema_changes import (
    AlterTable,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTable,
    NoTableEffect,
    NotSupported,
    NotSupportedClause,
    RenameTable,
    RenameTo,
    SchemaChange,
    TruncateTable,
)
from cdc_pipeline_tests.support.notation import cases, changes_as_text

_CAPTURED: list[dict[str, str]] = cases("captured.yaml")
_READ: list[dict[str, str]] = cases("read.yaml")
_STATEMENTS: list[dict[str, str]] = [*cases("statements.yaml"), *cases("partitions.yaml"), *cases("printed.yaml")]

# Message type → the statements that may have it. QUERY may be any statement.
_KINDS: dict[str, tuple[type, ...]] = {
    "CREATE": (CreateTable, CreateTableLike),
    "ALTER": (AlterTable,),
    "CINDEX": (AlterTable,),
    "DINDEX": (AlterTable,),
    "ERASE": (DropTable,),
    "RENAME": (RenameTable, AlterTable),
    "TRUNCATE": (TruncateTable,),
    "QUERY": (NoTableEffect, DropDatabase, AlterTable),
}


def _quotings(case: dict[str, str]) -> list[Quoting]:
    return [Quoting(name) for name in case.get("quotings", "mysql").split()]


def _id(case: dict[str, str]) -> str:
    return case["sql"][:60]


@pytest.mark.parametrize("case", _CAPTURED, ids=_id)
def test_captured_statement(case: dict[str, str]) -> None:
    changes = parse_ddl(case["sql"], case["database"])
    assert all(isinstance(change, _KINDS[case["type"]]) for change in changes), changes
    assert not _not_applied(changes)
    if case["table"] and case["type"] != "QUERY":
        named = _new_name(changes[0])
        # if a statement qualifies its table, Canal sends the current database instead (canal-facts 41)
        assert (case["table"], case["database"]) == (named.table, named.database) or "lab1.mr" in case["sql"]


def _not_applied(changes: tuple[SchemaChange, ...]) -> bool:
    clauses = [clause for change in changes if isinstance(change, AlterTable) for clause in change.clauses]
    return any(isinstance(item, NotSupported | NotSupportedClause) for item in (*changes, *clauses))


def _new_name(change: Any) -> Any:
    if isinstance(change, RenameTable):
        return change.new_name
    if isinstance(change, AlterTable):
        return next((clause.name for clause in change.clauses if isinstance(clause, RenameTo)), change.name)
    return change.name


@pytest.mark.parametrize("case", _READ, ids=_id)
def test_captured_statement_is_parsed_as_recorded(case: dict[str, str]) -> None:
    assert changes_as_text(parse_ddl(case["sql"], case["database"])) == case["expect"]


def test_recorded_statements_are_in_the_captures() -> None:
    captured = {(case["sql"], case["database"]) for case in _CAPTURED}
    assert [case["sql"] for case in _READ if (case["sql"], case["database"]) not in captured] == []
    assert len(_READ) > len(_CAPTURED) / 3


@pytest.mark.parametrize("case", _STATEMENTS, ids=_id)
def test_statement(case: dict[str, str]) -> None:
    changes = parse_ddl(case["sql"], case.get("database", "db"), quotings=_quotings(case))
    if "not_supported" in case:
        (change,) = changes
        assert isinstance(change, NotSupported)
        assert case["not_supported"] in change.reason
    else:
        assert changes_as_text(changes) == case["expect"]


def test_not_supported_names_a_known_table() -> None:
    (change,) = parse_ddl("ALTER TABLE shop.orders ADD a FOO", "")
    assert isinstance(change, NotSupported)
    assert str(change.name) == "shop.orders"
    assert "unknown column type 'foo' (position 30)" in change.reason


# ---- no text raises an exception

_SQL = [case["sql"] for case in (*_CAPTURED, *_STATEMENTS)]
_PIECES = [*"'\"`(),;#.\\\0", "/*", "*/", "/*!", "/*T![x] ", "--", "0x", "b'", "_utf8'"]


@st.composite
def _mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(_SQL))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + draw(st.sampled_from(["", *_PIECES]) | st.text(max_size=4)) + text[end:]
    return text


@given(
    st.text() | _mutated(), st.text(max_size=5), st.sampled_from([(quoting,) for quoting in Quoting] + [(*Quoting,)])
)
@settings(max_examples=1200, deadline=None, database=None)
@example("\ud800", "", (Quoting.MYSQL,))
@example("ALTER TABLE t ADD a DECIMAL(" + "9" * 5000 + ")", "db", (Quoting.MYSQL,))
@example("ALTER TABLE t ADD a INT DEFAULT " + "(" * 5000, "db", (Quoting.MYSQL,))
@example("ALTER TABLE t ADD a INT(²)", "db", (Quoting.MYSQL,))
def test_never_raises(sql: str, database: str, quotings: tuple[Quoting, ...]) -> None:
    changes = parse_ddl(sql, database, quotings=quotings)
    assert changes
    # all or nothing: a statement is never applied in part
    assert len(changes) == 1 or not any(isinstance(change, NotSupported) for change in changes)


@given(st.sampled_from(_READ), st.data())
@settings(max_examples=300, deadline=None, database=None)
def test_remaining_words_are_never_ignored(case: dict[str, str], data: st.DataObject) -> None:
    word = data.draw(st.sampled_from(["zzz", "`zzz`", "7 'zzz'", "(zzz)", "1 zzz", ")", "= zzz"]))
    whole = parse_ddl(case["sql"], case["database"])
    behind_semicolon = parse_ddl(f"{case['sql']}\n; {word}", case["database"])
    assert isinstance(behind_semicolon[0], NotSupported)
    if not isinstance(whole[0], NoTableEffect):
        assert parse_ddl(f"{case['sql']}\n{word}", case["database"]) != whole
