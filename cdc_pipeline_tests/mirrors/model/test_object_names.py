"""Names of statements in another case than the tables that they mean. No Spark."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.object_names import ObjectNames, moved_names
from cdc_pipeline.mirrors.model.upstream_tables import RowTimes
from cdc_pipeline.mysql.ddl.statements import event_changes
from cdc_pipeline.mysql.model.change_names import with_message_names
from cdc_pipeline.mysql.model.schema_changes import NotSupported
from cdc_pipeline.mysql.model.table import TableName


def _name(text: str) -> TableName:
    return TableName(*text.split("."))


@dataclass(frozen=True)
class Case:
    """Statements of a cut in database `s`, the n-th at time 10·n, and what they are resolved to."""

    statements: tuple[str, ...]
    expected: tuple[str, ...]
    known: tuple[str, ...] = ()
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Table → times of its first and last row."""
    dialect: str = "canal"
    database: str = "s"


_CREATED = "CREATE TABLE Orders (id INT)"
MYSQL = {
    "the_only_table_of_another_case": Case(
        ("TRUNCATE TABLE ORDERS", "ALTER TABLE S.Orders DROP COLUMN a"),
        ("TruncateTable s.orders", "AlterTable s.orders: DropColumn a"),
        ("s.orders", "s.other"),
    ),
    "the_same_case_first": Case(
        ("TRUNCATE TABLE Orders", "DROP TABLE orders"),
        ("TruncateTable s.Orders", "DropTable s.orders"),
        ("s.Orders", "s.orders"),
    ),
    "a_tie": Case(
        ("TRUNCATE TABLE ORDERS",),
        ("s.Orders: TruncateTable s.ORDERS", "s.orders: TruncateTable s.ORDERS"),
        ("s.Orders", "s.orders"),
    ),
    "a_tie_ends_with_one_of_the_tables": Case(
        ("DROP TABLE Orders", "TRUNCATE TABLE ORDERS"),
        ("DropTable s.Orders", "TruncateTable s.orders"),
        ("s.Orders", "s.orders"),
    ),
    "the_name_of_the_rows_of_the_cut": Case(
        (_CREATED, "ALTER TABLE ORDERS ADD COLUMN b INT", "RENAME TABLE Orders TO Old_Orders"),
        (
            "CreateTable s.orders (id int)",
            "AlterTable s.orders: AddColumn b int",
            "RenameTable s.orders to s.old_orders",
        ),
        rows={"s.orders": (10, 29), "s.old_orders": (35, 40)},
    ),
    "the_database_of_the_rows": Case(
        ("CREATE TABLE S.B (id INT)", "CREATE TABLE S.a (id INT)"),
        ("CreateTable s.b (id int)", "CreateTable s.a (id int)"),
        rows={"s.a": (25, 25)},
    ),
    "rows_under_the_name_as_typed": Case(
        (_CREATED, "TRUNCATE TABLE Orders"),
        ("CreateTable s.Orders (id int)", "TruncateTable s.Orders"),
        ("s.orders",),
        {"s.orders": (1, 50), "s.Orders": (15, 25)},
    ),
    "two_definitions_are_two_tables": Case(
        (_CREATED, "CREATE TABLE orders (id INT)", "DROP TABLE Orders", "TRUNCATE orders"),
        (
            "CreateTable s.Orders (id int)",
            "CreateTable s.orders (id int)",
            "DropTable s.Orders",
            "TruncateTable s.orders",
        ),
        rows={"s.orders": (20, 40)},
    ),
    "a_table_that_exists_keeps_its_name": Case((_CREATED,), ("CreateTable s.Orders (id int)",), ("s.orders",)),
    "rows_before_the_definition_are_of_another_table": Case(
        (_CREATED,), ("CreateTable s.Orders (id int)",), rows={"s.orders": (5, 50)}
    ),
    "a_table_that_was_dropped_and_defined_again": Case(
        (_CREATED, "DROP TABLE ORDERS", "CREATE TABLE ORDERS (n INT)"),
        ("CreateTable s.orders (id int)", "DropTable s.orders", "CreateTable s.orders (n int)"),
        rows={"s.orders": (11, 40)},
    ),
    "a_table_that_was_dropped_and_defined_again_without_rows": Case(
        (_CREATED, "DROP TABLE orders", "CREATE TABLE ORDERS (n INT)", "CREATE TABLE New (n INT)"),
        (
            "CreateTable s.orders (id int)",
            "DropTable s.orders",
            "CreateTable s.orders (n int)",
            "CreateTable s.new (n int)",
        ),
        rows={"s.orders": (11, 19)},
    ),
    "a_definition_if_the_table_does_not_exist": Case(
        ("CREATE TABLE IF NOT EXISTS Orders (id INT)", "CREATE TABLE IF NOT EXISTS New (id INT)"),
        ("CreateTable s.orders (id int)", "CreateTable s.New (id int)"),
        ("s.orders",),
    ),
    "sources_and_exchanged_tables": Case(
        ("CREATE TABLE b LIKE A", "ALTER TABLE A EXCHANGE PARTITION p WITH TABLE B"),
        ("CreateTableLike s.b like s.a", "AlterTable s.a: ExchangePartition p with s.b"),
        ("s.a",),
    ),
    "a_swap": Case(
        ("RENAME TABLE A TO tmp, B TO A, tmp TO B",),
        ("RenameTable s.a to s.tmp", "RenameTable s.b to s.a", "RenameTable s.tmp to s.b"),
        ("s.a", "s.b"),
        {"s.a": (1, 50), "s.b": (1, 50)},
    ),
    "rows_with_capital_letters_are_of_another_table": Case(
        ("CREATE TABLE orders (id INT)", "CREATE TABLE ORDERS (id INT)"),
        ("CreateTable s.orders (id int)", "CreateTable s.ORDERS (id int)"),
        rows={"s.Orders": (15, 20)},
    ),
    "a_database": Case(
        ("DROP DATABASE S", "CREATE TABLE S.a (id INT)"), ("DropDatabase s", "CreateTable S.a (id int)"), ("s.a", "s.b")
    ),
    "databases_of_two_cases": Case(
        ("DROP DATABASE S", "DROP DATABASE SHOP"),
        ("DropDatabase S", "Shop.a: DropDatabase SHOP", "shop.a: DropDatabase SHOP"),
        ("S.a", "s.a", "Shop.a", "shop.a"),
    ),
    "a_new_table_in_a_database_of_another_case": Case(
        ("CREATE TABLE S.B (id INT)", "CREATE TABLE S.A (id INT)"),
        ("CreateTable s.B (id int)", "CreateTable S.A (id int)"),
        ("s.a",),
    ),
    "no_database": Case(("TRUNCATE TABLE ORDERS",), ("TruncateTable s.orders",), ("s.orders", "t.x"), database=""),
    "no_such_table": Case(("TRUNCATE TABLE ORDERS",), ("TruncateTable s.ORDERS",), ("s.order",)),
}
TIDB = {
    "case_never_counts": Case(
        ("RENAME TABLE S.ORDERS TO S.Archive", "RENAME TABLE ARCHIVE TO archive", "TRUNCATE TABLE Archive"),
        ("RenameTable s.orders to s.Archive", "RenameTable s.Archive to s.archive", "TruncateTable s.archive"),
        ("s.orders",),
    ),
    "a_new_table_is_named_as_typed": Case((_CREATED,), ("CreateTable s.Orders (id int)",), rows={"s.orders": (15, 20)}),
    "a_new_table_replaces_one_of_another_case": Case(
        (_CREATED,), ("DropTable s.orders", "CreateTable s.Orders (id int)"), ("s.orders",)
    ),
    "rows_of_the_cut": Case(("RENAME TABLE A TO b",), ("RenameTable s.a to s.b",), rows={"s.a": (1, 5)}),
}


def _event(number: int, sql: str, case: Case) -> DdlEvent:
    time = number * 10
    return DdlEvent(
        *("t", 0, number, case.database, "", time, False, time, None, sql),
        event_changes("ddl", case.database, "", sql),
        case.dialect,
    )


def _shown(event: DdlEvent) -> list[str]:
    return [
        f"{change.name}: {change.reason.partition(': ')[0]}"
        if isinstance(change, NotSupported)
        else change.description()
        for change in event.changes
    ]


@pytest.mark.parametrize(
    "case",
    [
        *(pytest.param(case, id=name) for name, case in MYSQL.items()),
        *(pytest.param(Case(**{**vars(case), "dialect": "ticdc"}), id=f"tidb_{name}") for name, case in TIDB.items()),
    ],
)
def test_statements_name_the_tables_that_they_mean(case: Case) -> None:
    names = ObjectNames(
        set(map(_name, case.known)),
        lambda: {_name(table): RowTimes(*times) for table, times in case.rows.items()},
    )
    events = names.resolved(_event(number, sql, case) for number, sql in enumerate(case.statements, 1))
    assert tuple(text for event in events for text in _shown(event)) == case.expected


# names of earlier cuts, names with rows in the cut → old and new name
_MOVED: dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, str]]] = {
    "the_name_of_the_rows": (("s.Orders", "s.other"), ("s.orders",), {"s.Orders": "s.orders"}),
    "a_table_with_rows_of_its_own": (("s.Filled",), ("s.filled",), {}),
    "a_table_that_is_known": (("s.Orders", "s.orders"), ("s.orders",), {}),
    "a_table_that_the_cut_defines": (("s.Defined",), ("s.defined",), {}),
    "rows_before_the_cut_defines_the_table_again": (("s.Again",), ("s.again",), {"s.Again": "s.again"}),
    "rows_with_capital_letters": (("s.orders",), ("s.Orders",), {}),
    "several_tables": (("s.Orders", "s.ORDERS"), ("s.orders",), {}),
    "the_database_and_its_other_tables": (
        ("S.Orders", "S.Log", "S.Filled", "s.x", "S.x"),
        ("s.orders",),
        {"S.Orders": "s.orders", "S.Log": "s.Log"},
    ),
}


@pytest.mark.parametrize("name", _MOVED)
def test_tables_move_to_the_names_of_their_rows(name: str) -> None:
    known, rows, expected = _MOVED[name]
    case = Case((), ())
    events = [_event(2, "CREATE TABLE defined (id INT)", case), _event(2, "CREATE TABLE again (id INT)", case)]
    times = {_name(table): RowTimes(15 if table == "s.again" else 25, 30) for table in rows}
    found = moved_names(set(map(_name, known)), times, events, lambda table: table.table == "Filled")
    assert {str(old): str(new) for old, new in found.items()} == expected


def test_an_event_of_an_earlier_cut_has_the_present_names() -> None:
    names = ObjectNames({_name("s.orders")}, lambda: {_name("s.late"): RowTimes(1, 1)})
    case = Case((), ())
    statements = ("CREATE TABLE Orders (id INT)", "RENAME TABLE LATE TO Gone")
    found = [text for sql in statements for text in _shown(names.looked_up(_event(1, sql, case)))]
    assert found == ["CreateTable s.orders (id int)", "RenameTable s.late to s.Gone"]


# statement → with the names of the message `Shop`.`Orders`
_OF_MESSAGE = {
    "TRUNCATE TABLE SHOP.orders": "TruncateTable Shop.Orders",
    "RENAME TABLE shop.orders TO shop.ORDERS": "RenameTable Shop.orders to Shop.Orders",
    "ALTER TABLE old.t RENAME TO SHOP.orders": "AlterTable old.t: RenameTo Shop.Orders",
    "CREATE TABLE orders LIKE SHOP.t": "CreateTableLike Shop.Orders like Shop.t",
    "DROP DATABASE SHOP": "DropDatabase Shop",
    "RECOVER TABLE ORDERS": "RecoverTable Shop.Orders",
}


@pytest.mark.parametrize("sql", _OF_MESSAGE)
def test_the_name_in_a_message_of_tidb_is_the_name(sql: str) -> None:
    (change,) = event_changes("ddl", "Shop", "Orders", sql)
    assert with_message_names(change, "Shop", "Orders").description() == _OF_MESSAGE[sql]
