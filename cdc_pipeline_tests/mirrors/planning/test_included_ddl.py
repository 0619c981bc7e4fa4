"""DDL translated into changes of the selected mirrors: names, exclusion, RENAME in and out. Without Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_pipeline.errors import DeclarationError
from cdc_pipeline.gaps import gap_texts
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.planning.included_ddl import mirrored_event
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Planner
from cdc_pipeline.mirrors.planning.selection_change import SelectionChange
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES, Route, TableSelection
from cdc_pipeline.mysql.ddl.parser import parse_ddl
from cdc_pipeline.mysql.model.schema_changes import CreateTable, NotSupported
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position

_IN = TableSelection(("shop.*",), ("shop.tmp*", "shop._*"), (Route("shop.eu_*", "{database}_eu.x_{table}"),))


def _event(sql: str, step: int = 1, database: str = "shop") -> DdlEvent:
    changes = parse_ddl(sql, database, "")
    return DdlEvent("t", 0, step, database, "", step, True, 0, None, sql, changes, "ticdc")


def _mirrored(sql: str) -> list[str]:
    """The changes of mirrors."""
    return [_words(change) for change in mirrored_event(_event(sql), _IN).changes]


def _words(change: object) -> str:
    if isinstance(change, CreateTable) and change.gaps:
        return f"{change.name} starts: {'; '.join(gap_texts(change.gaps))}"
    if isinstance(change, NotSupported):
        return f"{change.name} {'starts' if change.creates else 'goes on'}: {change.reason}"
    return change.description()  # type: ignore[attr-defined]


_BEFORE = (
    "which is excluded or merged: earlier rows are missing; include both, without merging, and rebuild to add them"
)
_EXCHANGED = (
    "NotSupportedClause EXCHANGE PARTITION with shop.tmp1: its rows are unknown, because a table is excluded or merged"
)
_OTHER = "(excluded or merged)"

# statement → changes of mirrors
_NAMES: dict[str, list[str]] = {
    "CREATE TABLE orders (id INT)": ["CreateTable shop.orders (id int)"],
    "CREATE TABLE eu_a (id INT)": ["CreateTable shop_eu.x_eu_a (id int)"],
    "CREATE TABLE tmp1 (id INT)": [],
    "CREATE TABLE crm.people (id INT)": [],
    "DROP TABLE orders, tmp1, eu_a, crm.people": ["DropTable shop.orders", "DropTable shop_eu.x_eu_a"],
    "TRUNCATE TABLE eu_a": ["TruncateTable shop_eu.x_eu_a"],
    "TRUNCATE TABLE tmp2": [],
    "ALTER TABLE eu_a ADD COLUMN v INT": ["AlterTable shop_eu.x_eu_a: AddColumn v int"],
    "ALTER TABLE tmp1 ADD COLUMN v INT": [],
    "RENAME TABLE orders TO eu_o": ["RenameTable shop.orders to shop_eu.x_eu_o"],
    "ALTER TABLE eu_a ADD COLUMN v INT, RENAME TO a": ["AlterTable shop_eu.x_eu_a: AddColumn v int, RenameTo shop.a"],
    "RENAME TABLE tmp1 TO tmp2": [],
    "RENAME TABLE orders TO tmp_o": ["DropTable shop.orders"],
    "ALTER TABLE orders DROP COLUMN v, RENAME TO crm.orders": [
        "AlterTable shop.orders: DropColumn v",
        "DropTable shop.orders",
    ],
    "RENAME TABLE tmp1 TO eu_n": [f"shop_eu.x_eu_n starts: shop.eu_n was renamed from shop.tmp1, {_BEFORE}"],
    "RENAME TABLE orders TO tmp_x, eu_a TO orders, tmp_x TO eu_a": [
        "RenameTable shop.orders to shop.tmp_x (between two RENAMEs)",
        "RenameTable shop_eu.x_eu_a to shop.orders",
        "RenameTable shop.tmp_x (between two RENAMEs) to shop_eu.x_eu_a",
    ],
    "RENAME TABLE orders TO _del, _gho TO orders": [
        "DropTable shop.orders",
        f"shop.orders starts: shop.orders was renamed from shop._gho, {_BEFORE}",
    ],
    "CREATE TABLE o2 LIKE eu_a": ["CreateTableLike shop.o2 like shop_eu.x_eu_a"],
    "CREATE TABLE o2 LIKE tmp1": [f"CreateTableLike shop.o2 like shop.tmp1 {_OTHER}"],
    "CREATE TABLE tmp3 LIKE orders": [],
    "CREATE TABLE eu_c AS SELECT * FROM tmp1": [
        "shop_eu.x_eu_c starts: the columns and rows of a query were not sent (position 18)"
    ],
    "ALTER TABLE orders EXCHANGE PARTITION p0 WITH TABLE eu_a": [
        "AlterTable shop.orders: ExchangePartition p0 with shop_eu.x_eu_a validated"
    ],
    "ALTER TABLE orders EXCHANGE PARTITION p0 WITH TABLE tmp1": [f"AlterTable shop.orders: {_EXCHANGED}"],
    "ALTER TABLE tmp1 EXCHANGE PARTITION p0 WITH TABLE eu_a": [f"AlterTable shop_eu.x_eu_a: {_EXCHANGED}"],
    "FLASHBACK TABLE eu_a TO eu_b": ["RecoverTable shop_eu.x_eu_a to shop_eu.x_eu_b"],
    "RECOVER TABLE tmp1": [],
    "FLASHBACK TABLE orders TO tmp1": [],
    "FLASHBACK TABLE tmp1 TO orders": [f"RecoverTable shop.tmp1 {_OTHER} to shop.orders"],
    "CREATE DATABASE other": ["NoTableEffect CREATE DATABASE"],
    "FLASHBACK DATABASE shop": [
        "None goes on: RecoverDatabase shop: not all of its tables are included under their own names"
    ],
}


def test_statements_become_changes_of_mirrors() -> None:
    assert {sql: _mirrored(sql) for sql in _NAMES} == _NAMES


def test_without_a_selection_events_stay_as_they_are() -> None:
    event = _event("RENAME TABLE a TO b")
    assert mirrored_event(event, ALL_TABLES).changes == event.changes


def test_a_statement_that_may_concern_any_table_is_not_excluded() -> None:
    """A message about a rename has only the new name, which may be that of an excluded table."""
    sent = _event("TRUNCATE TABLE tmp1")
    for everywhere, wanted in ((True, [(None, True)]), (False, [])):
        change = NotSupported("DDL of PostgreSQL", TableName("shop", "tmp1"), everywhere=everywhere)
        found = mirrored_event(replace(sent, changes=(change,)), _IN)
        assert [(found.name, found.everywhere) for found in found.changes] == wanted  # type: ignore[union-attr]


def test_an_excluded_table_has_no_definition() -> None:
    """What is made from it starts without columns: its rows define them."""
    selection = TableSelection(exclude=("shop._*",))
    excluded = "CREATE TABLE _gho (id INT PRIMARY KEY, v TEXT)"
    for sql in (
        "CREATE TABLE n LIKE _gho",
        "RENAME TABLE _gho TO n",
        "FLASHBACK TABLE _gho TO n",
    ):
        draft = _planned(selection, excluded, sql)
        state = draft.state(TableName("shop", "n"))
        assert state is not None
        assert (state.schema.columns, state.inferred, len(state.gaps)) == ((), True, 1)
        assert [str(name) for name in draft.names()] == ["shop.n"]
    draft = _planned(selection, "CREATE TABLE n (v TEXT)", "CREATE TABLE o LIKE n", "CREATE TABLE _n LIKE o")
    assert [str(name) for name in draft.names()] == ["shop.n", "shop.o"]


def _planned(selection: TableSelection, *statements: str) -> PlanDraft:
    draft = PlanDraft((), lambda name: None, frozenset(), 1, CutSettings("UTC", selection=selection))
    Planner(draft).plan(mirrored_event(_event(sql, step), selection) for step, sql in enumerate(statements, 1))
    return draft


def test_drop_database_drops_the_mirrors_of_its_tables() -> None:
    routes = (Route("eu.b", "shop.eu_b"), Route("shop.eu_a", "eu.{table}"), Route("*.m?", "m.all", merge=True))
    names = ("shop.orders", "shop.eu_a", "eu.b", "shop.m1", "eu.m2")
    created = [f"CREATE TABLE {name} (id INT PRIMARY KEY)" for name in names]
    draft = _planned(TableSelection(routes=routes), *created, "DROP DATABASE SHOP")
    assert list(map(str, draft.names())) == ["m.all", "shop.eu_b"]
    merged = draft.state(TableName("m", "all"))
    assert merged is not None
    assert list(map(str, merged.upstream_tables)) == ["eu.m2"]


def test_two_tables_never_share_a_mirror() -> None:
    selection = TableSelection(exclude=("c.*",), routes=(Route("?.orders", "shop.orders"),))
    created = [f"CREATE TABLE {name} (id INT)" for name in ("a.orders", "c.orders", "a.other")]
    draft = _planned(selection, *created, "ALTER TABLE a.orders RENAME TO d.orders")
    states = [state for name in draft.names() if (state := draft.state(name)) is not None]
    assert [(str(state.name), str(state.upstream_tables[0])) for state in states] == [
        ("a.other", "a.other"),
        ("shop.orders", "d.orders"),
    ]
    for sql in ("CREATE TABLE b.orders (id INT)", "ALTER TABLE a.other RENAME TO b.orders"):
        with pytest.raises(DeclarationError, match=r"a\.orders and b\.orders would both be mirrored as shop\.orders"):
            _planned(selection, *created, sql)
    selection = TableSelection(routes=(Route("a.*", "m.o"), Route("b.*", "m.o", merge=True)))
    for names in (("a.t", "b.t"), ("b.t", "a.t")):
        with pytest.raises(DeclarationError, match=r"a\.t and b\.t would both be mirrored as m\.o"):
            _planned(selection, *(f"CREATE TABLE {name} (id INT)" for name in names))


# ---- a change of the selection


def _change(before: TableSelection, now: TableSelection, upstream: str, mirrors: str) -> SelectionChange:
    tables = [TableName(*name.split(".")) for name in upstream.split()]
    sources = {before.mirror_name(name): (name,) for name in tables if str(before.mirror_name(name)) in mirrors.split()}
    return SelectionChange.from_selections(sources, tables, before, now)


def test_another_selection() -> None:
    before = TableSelection(("*",), ("d.new",), (Route("d.a", "d.b"), Route("d.b", "d.c"), Route("d.x", "d.y")))
    now = TableSelection(("*",), ("d.gone",), (Route("d.x", "d.x2"), Route("d.y", "d.x")))
    change = _change(before, now, "d.a d.b d.x d.gone d.new d.same", "d.b d.c d.y d.gone d.same")
    assert change.descriptions(now) == (
        "mirror d.gone is dropped: d.gone is no longer included",
        "mirror d.b is renamed to d.a",
        "mirror d.c is renamed to d.b",
        "mirror d.y is renamed to d.x2",
        "d.new is newly included: mirror d.new starts without earlier rows",
    )


def test_held_tables_follow_a_selection_change() -> None:
    now = TableSelection(exclude=("d.gone",), routes=(Route("d.x", "d.y"),))
    change = _change(ALL_TABLES, now, "d.gone d.x d.same", "d.gone d.x d.same")
    held = [HeldTable(TableName("d", name), Position("t", 0, 7), 4, 3) for name in ("gone", "x", "same")]
    assert [(str(table.name), table.rows) for table in change.still_held(held, now)] == [("d.y", 3), ("d.same", 3)]


def test_names_in_a_ring() -> None:
    ring = TableSelection(routes=(Route("d.a", "d.b"), Route("d.b", "d.a")))
    change = _change(ALL_TABLES, ring, "d.a d.b", "d.a d.b")
    assert change.descriptions(ring) == (
        "mirror d.a is dropped: d.a is now mirrored as d.b",
        "mirror d.b is dropped: d.b is now mirrored as d.a",
        "d.a is newly included: mirror d.b starts without earlier rows",
        "d.b is newly included: mirror d.a starts without earlier rows",
    )
