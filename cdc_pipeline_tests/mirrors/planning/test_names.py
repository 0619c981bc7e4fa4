"""Names that statements, messages and mirrors spell in different cases are one name. No Spark."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from cdc_pipeline.errors import DeclarationError
from cdc_pipeline.gaps import GapKind
from cdc_pipeline.mirrors.changes.row_groups import RowGroup
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.state import UNSEEN_START, MirrorState
from cdc_pipeline.mirrors.model.upstream_tables import qualified_events
from cdc_pipeline.mirrors.planning.included_ddl import mirrored_event
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Planner
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES, Route, TableSelection
from cdc_pipeline.mysql.ddl.statements import event_changes
from cdc_pipeline.mysql.model.table import Column, MySqlType, TableName, TableSchema

_EXACT = TableSelection(case_sensitive=True)
_ROUTED = TableSelection(routes=(Route("S.*", "R.t_{table}"),))
_MERGED = TableSelection(routes=(Route("s.*", "M.All", merge=True),))
_CREATED = "CREATE TABLE Orders (id INT PRIMARY KEY)"


def _name(text: str) -> TableName:
    return TableName(*text.split("."))


@dataclass(frozen=True)
class Case:
    """Statements in database `s`, and the names of the mirrors after them. `!`: a mirror that two tables may share."""

    statements: tuple[str, ...]
    expected: str
    rows: tuple[str, ...] = ()
    """Tables as rows after the statements spell them."""
    before: tuple[str, ...] = ()
    """The same for rows before the statements."""
    known: tuple[str, ...] = ()
    """Mirrors of earlier cuts."""
    table: str = ""
    """The table of the message, in database `S`."""
    dialect: str = "canal"
    selection: TableSelection = ALL_TABLES


CASES = {
    # ---- statements find tables in any case
    "any case": Case(("TRUNCATE ORDERS", "RENAME TABLE S.oRDERS TO archive"), "s.archive", known=("S.Orders",)),
    "a database": Case(("DROP DATABASE S",), "t.a", known=("s.a", "s.B", "t.a")),
    "a swap": Case(("RENAME TABLE A TO tmp, B TO A, tmp TO B",), "s.A s.B", known=("s.a", "s.b")),
    "a copy": Case(
        ("CREATE TABLE b LIKE ORDERS", "CREATE TABLE c AS SELECT id FROM S.ORDERS"),
        "s.Orders s.b s.c",
        known=("s.Orders",),
    ),
    "if not exists": Case(("CREATE TABLE IF NOT EXISTS ORDERS (id INT)",), "s.Orders", known=("s.Orders",)),
    "no database": Case(
        ("TRUNCATE ORDERS", "ALTER TABLE ORDERS RENAME TO New"), "t.New", known=("t.Orders",), table="-"
    ),
    # ---- a mirror keeps the spelling under which it was created
    "created by a statement": Case((_CREATED,), "s.Orders"),
    "rows of MySQL show the name": Case((_CREATED,), "s.orders", rows=("s.orders",)),
    "created by rows": Case(("ALTER TABLE ORDERS ADD COLUMN v INT",), "S.Orders", rows=("S.Orders",)),
    "the spelling of the message": Case((_CREATED,), "S.ORDERS", table="ORDERS"),
    "renamed": Case(("RENAME TABLE ORDERS TO Orders",), "s.Orders", known=("s.orders",)),
    "dropped and created again": Case((_CREATED, "DROP TABLE orders", "CREATE TABLE ORDERS (n INT)"), "s.ORDERS"),
    "routed": Case((_CREATED,), "R.t_orders", rows=("s.orders",), selection=_ROUTED),
    "merged": Case((_CREATED, "CREATE TABLE b (id INT)"), "M.All", rows=("s.orders", "s.b"), selection=_MERGED),
    # ---- one table of TiDB
    "TiDB": Case(("RENAME TABLE A TO B",), "S.B", rows=("s.B", "S.B"), known=("S.a",), table="B", dialect="ticdc"),
    "TiDB, rows only": Case((), "S.B", rows=("S.B", "s.B"), dialect="ticdc"),
    "TiDB, created again": Case(("CREATE TABLE A (id INT)",), "s.A", known=("s.a",), dialect="ticdc"),
    # ---- two tables of MySQL
    "two definitions": Case((_CREATED, "CREATE TABLE orders (id INT)"), "s.orders!"),
    "rows and a definition": Case(("CREATE TABLE orders (id INT)",), "s.orders!", before=("s.Orders",)),
    "rows and a definition of one table": Case((_CREATED,), "s.Orders", before=("s.Orders",)),
    "truncated": Case((_CREATED, "CREATE TABLE orders (id INT)", "TRUNCATE orders"), "s.orders!"),
    "rows in two cases": Case((), "s.Orders!", rows=("s.Orders", "s.orders")),
    "rows in capital letters": Case(("CREATE TABLE orders (id INT)",), "s.orders!", rows=("s.Orders",)),
    "rows in another case than former ones": Case((), "s.Seen!", rows=("s.seen",), known=("s.Seen",)),
    "merged rows in two cases": Case((), "M.All!", rows=("s.a", "s.A"), selection=_MERGED),
    # ---- case_sensitive
    "exact": Case(
        (_CREATED, "CREATE TABLE orders (id INT)", "DROP TABLE ORDERS", "RENAME TABLE orders TO oRDERS"),
        "S.Orders s.Orders s.oRDERS",
        rows=("s.Orders", "S.Orders"),
        selection=_EXACT,
    ),
    "exact database": Case(("DROP DATABASE s",), "S.a", known=("s.a", "S.a"), selection=_EXACT),
}


def _event(number: int, sql: str, case: Case) -> DdlEvent:
    database, table = ("", "") if case.table == "-" else ("S" if case.table else "s", case.table)
    changes = event_changes("ddl", database, table, sql)
    return DdlEvent("t", 0, number, database, table, number, False, number, None, sql, changes, case.dialect)


def _group(name: str, segment: int, case: Case) -> RowGroup:
    source, place = _name(name), (1, "t", 0, segment)
    key = case.selection.mirror_key(source)
    merged = case.selection.key(source) if case.selection.merges(source) else None
    group = RowGroup(key, segment, ("id",), ("id",), 1, case.dialect, True, place)
    return replace(group, source=merged, spelled=(source,))


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_mirrors_are_found_in_any_case(case: Case) -> None:
    selection = case.selection
    schema = TableSchema((Column("id", MySqlType("int")),))
    states = {
        selection.key(name): MirrorState(name, str(name), schema, True, (UNSEEN_START,))
        for name in map(_name, case.known)
    }
    typed = [_event(number, sql, case) for number, sql in enumerate(case.statements, 1)]
    events = qualified_events(typed, lambda: states, selection.key)
    mirrored = [mirrored_event(event, selection) for event in events]
    about = [name for event in mirrored for name in event.names()]
    groups = [_group(name, about.count(case.selection.mirror_key(_name(name))), case) for name in case.rows]
    groups += [_group(name, 0, case) for name in case.before]
    draft = PlanDraft(groups, states.get, frozenset(map(_name, case.known)), 2, CutSettings("UTC", selection=selection))
    Planner(draft).plan(mirrored)
    found = sorted(
        f"{state.name}{'!' * any(gap.kind is GapKind.NAMES_DIFFER_IN_CASE for gap in state.gaps)}"
        for name in draft.names()
        if (state := draft.state(name)) is not None
    )
    assert " ".join(found) == case.expected


def test_mirrors_that_differ_in_case_need_case_sensitive() -> None:
    names = {_name("s.a"), _name("s.A")}
    assert len(_EXACT.by_key(names)) == 2
    with pytest.raises(DeclarationError, match=r"the mirrors s\.A and s\.a differ in case only"):
        ALL_TABLES.by_key(names)
