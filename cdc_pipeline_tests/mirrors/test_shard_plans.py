"""Statements about tables that are merged into one mirror, as the planner tells what they do: no Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_pipeline.assets.nodes import mirror_lineage
from cdc_pipeline.catalog import CatalogColumn, CatalogEntry
from cdc_pipeline.dialects.types import MessageTypes
from cdc_pipeline.errors import DeclarationError
from cdc_pipeline.mirrors.column_rules import ColumnRules
from cdc_pipeline.mirrors.events import DdlEvent
from cdc_pipeline.mirrors.included_ddl import IncludedDdl
from cdc_pipeline.mirrors.keys import key_columns
from cdc_pipeline.mirrors.late_statements import ComesAgain, tables_that_come_again
from cdc_pipeline.mirrors.masks import HASH
from cdc_pipeline.mirrors.plan_book import PlanBook
from cdc_pipeline.mirrors.planner import CutPlan, Permissions, Planner
from cdc_pipeline.mirrors.policy import DdlPolicy
from cdc_pipeline.mirrors.row_groups import RowGroup
from cdc_pipeline.mirrors.selection import Route, TableSelection
from cdc_pipeline.mirrors.selection_change import SelectionChange
from cdc_pipeline.mirrors.shard_steps import shortened
from cdc_pipeline.mirrors.shards import ShardName
from cdc_pipeline.mirrors.state import MirrorState
from cdc_pipeline.mirrors.steps import (
    ApplyRows,
    ChangeColumns,
    ChangeShardRows,
    CreateMirror,
    DeleteRows,
    NoteState,
    Step,
)
from cdc_pipeline.mirrors.ties import tied_and_merged
from cdc_pipeline.mirrors.upstream_definitions import UpstreamDefinitions
from cdc_pipeline.mirrors.upstream_tables import sources_with
from cdc_pipeline.schemas.ddl_types import type_in_words
from cdc_pipeline.schemas.described import described
from cdc_pipeline.schemas.gaps import in_words
from cdc_pipeline.schemas.statements import changes_of
from cdc_pipeline.schemas.table import TableName
from cdc_pipeline.schemas.wider_types import wider_type
from cdc_pipeline_tests.messages import tso

MERGED = TableSelection(
    ("s?.*", "out.in"), ("s?.tmp*",), (Route("s?.o*", "m.o", merge=True), Route("s1.p*", "m.p", merge=True))
)
MIRROR = TableName("m", "o")
T = "CREATE TABLE {} (id INT PRIMARY KEY, v VARCHAR(20))"
ONE, TWO = T.format("s1.o1"), T.format("s2.o1")
SOURCE = ("_source_database", "_source_table")


def _event(place: int, sql: str, *, exact: bool = True) -> DdlEvent:
    changes = changes_of("ddl", "s1", "", sql)
    return DdlEvent("t", 0, place, "s1", "", tso(place), exact, tso(place) >> 18, None, sql, changes, "ticdc")


def _rows(source: str, segment: int, columns: str) -> RowGroup:
    """One INSERT: columns as `name:type`, the first is the key."""
    types = dict(column.split(":") for column in columns.split())
    names = tuple(types)
    return RowGroup(
        MIRROR,
        segment,
        (*SOURCE, *names),
        (*SOURCE, names[0]),
        1,
        "ticdc",
        images=True,
        place=(1, "t", 0, 0),
        inserts=True,
        first_ts=tso(segment) + 1,
        types=MessageTypes(types),
        source=TableName(*source.split(".")),
    )


def _mirrored(*statements: str, exact: bool = True) -> list[DdlEvent]:
    upstream = [_event(place, sql, exact=exact) for place, sql in enumerate(statements, 1)]
    named = [name for event in upstream for name in IncludedDdl(MERGED).appearing(event)]
    included = IncludedDdl(MERGED, sources_with({}, named, MERGED), UpstreamDefinitions(list, "UTC"))
    return [included.event(event) for event in upstream]


def planned(
    *statements: str,
    groups: tuple[RowGroup, ...] | None = None,
    policy: DdlPolicy | None = None,
    rules: ColumnRules | None = None,
) -> tuple[MirrorState | None, CutPlan]:
    """The merged mirror after these statements, of which nothing was before, and the plan with all of its steps. Without
    `groups` s1.o1 has a row after the first statement."""
    found = (_rows("s1.o1", 1, "id:int v:varchar(20)"),) if groups is None else groups
    book = PlanBook(found, lambda name: None, frozenset(), 1, "UTC", rules)
    plan = Planner(book, permissions=Permissions(policy or DdlPolicy())).plan(_mirrored(*statements))
    return book.state(MIRROR), replace(plan, steps=tuple(book.steps))


def _words(step: Step) -> str:
    """What a step does, in short."""
    if isinstance(step, ChangeShardRows):
        moved = [
            f"{origin.after.name}<-{origin.before.name if origin.before else 'default'}" for origin in step.origins
        ]
        renamed = [] if step.renamed is None else [f"to {step.renamed}"]
        return " ".join([f"rows of {step.shard}:", *moved, *(f"{name}<-NULL" for name in step.cleared), *renamed])
    if isinstance(step, (ChangeColumns, CreateMirror)):
        columns = [f"{column.name}:{column.type}" for column in step.state.schema.columns if column.name not in SOURCE]
        return f"{'columns' if isinstance(step, ChangeColumns) else 'create'} {' '.join(columns)}"
    return step.what if isinstance(step, DeleteRows) else type(step).__name__


ALTER = "ALTER TABLE {} {}"
# name → (statements, the steps after the first statement, the starts of the mirror's gaps)
CASES: dict[str, tuple[list[str], list[str], list[str]]] = {
    "tables that are alike": ([ONE, TWO], ["NoteState"], []),
    "one that has more": (
        [ONE, "CREATE TABLE s2.o1 (id INT PRIMARY KEY, n INT NOT NULL DEFAULT 5, v VARCHAR(40))"],
        ["columns id:int n:int v:varchar(20)", "columns id:int n:int v:varchar(40)"],
        [],
    ),
    "a column that is added everywhere, one after another": (
        [ONE, TWO, *(ALTER.format(table, "ADD COLUMN n INT DEFAULT 7") for table in ("s1.o1", "s2.o1"))],
        [
            "NoteState",
            "columns id:int v:varchar(20) n:int",
            "rows of s1.o1: n<-default",
            "NoteState",
            "rows of s2.o1: n<-default",
            "NoteState",
        ],
        [],
    ),
    "a column that is dropped everywhere": (
        [ONE, TWO, *(ALTER.format(table, "DROP COLUMN v") for table in ("s2.o1", "s1.o1"))],
        ["NoteState", "rows of s2.o1: v<-NULL", "NoteState", "columns id:int"],
        [],
    ),
    "a column that is renamed everywhere": (
        [ONE, TWO, *(ALTER.format(table, "RENAME COLUMN v TO w") for table in ("s2.o1", "s1.o1"))],
        [
            "NoteState",
            "columns id:int v:varchar(20) w:varchar(20)",
            "rows of s2.o1: w<-v v<-NULL",
            "NoteState",
            "rows of s1.o1: w<-v",
            "columns id:int w:varchar(20)",
        ],
        [],
    ),
    "two columns swap their names in one table": (
        [ONE, TWO, ALTER.format("s2.o1", "RENAME COLUMN v TO id, RENAME COLUMN id TO v")],
        ["NoteState", "rows of s2.o1: v<-id id<-v", "columns v:varchar(20) id:int"],
        [
            "column v:",
            "column id:",
            "its tables identify rows by (id) and (v), those of some of them may be wrong, such as in s2.o1",
        ],
    ),
    "a type that widens everywhere": (
        [ONE, TWO, *(ALTER.format(table, "MODIFY id BIGINT") for table in ("s1.o1", "s2.o1"))],
        ["NoteState", "columns id:bigint v:varchar(20)", "NoteState"],
        [],
    ),
    "a type that narrows in one of them": (
        [ONE, TWO, ALTER.format("s1.o1", "MODIFY v VARCHAR(10)")],
        ["NoteState", "NoteState", "NoteState"],
        ["column v: varchar(20) became varchar(10) while it is varchar(20) here"],
    ),
    "types that do not go together": (
        [ONE, TWO, ALTER.format("s1.o1", "MODIFY v INT")],
        ["NoteState", "NoteState", "NoteState"],
        ["column v: its tables have int and varchar(20), values of some", "column v: varchar(20) became int"],
    ),
    "keys that do not go together": (
        [ONE, "CREATE TABLE s2.o1 (id INT, v VARCHAR(20), PRIMARY KEY (id, v))"],
        ["NoteState"],
        ["its tables identify rows by (id) and (id, v), those of some of them may be wrong, such as in s1.o1"],
    ),
    "TRUNCATE and DROP of one, then of the last": (
        [ONE, TWO, "TRUNCATE TABLE s1.o1", "DROP TABLE s1.o1", "DROP TABLE s2.o1"],
        ["NoteState", "TRUNCATE of s1.o1", "DROP of s1.o1", "NoteState", "DropMirror"],
        [],
    ),
    "what only the dropped one had": (
        [ONE, "CREATE TABLE s2.o1 (id INT PRIMARY KEY, v VARCHAR(20), n INT)", "DROP TABLE s2.o1"],
        ["columns id:int v:varchar(20) n:int", "NoteState", "DROP of s2.o1", "columns id:int v:varchar(20)"],
        [],
    ),
    "a database of several": (
        [ONE, T.format("s1.o2"), TWO, "DROP DATABASE s1"],
        ["NoteState", "NoteState", "DROP of s1.o1", "NoteState", "DROP of s1.o2", "NoteState"],
        [],
    ),
    "a name that changes inside": (
        [ONE, TWO, "RENAME TABLE s1.o1 TO s1.o9"],
        ["NoteState", "rows of s1.o1: to s1.o9", "NoteState"],
        [],
    ),
    "two tables that change places": (
        [ONE, TWO, "RENAME TABLE s1.o1 TO s1.tmp, s2.o1 TO s1.o1, s1.tmp TO s2.o1"],
        [
            "NoteState",
            *("rows of s1.o1: to s1.tmp", "NoteState", "rows of s2.o1: to s1.o1", "NoteState"),
            *("rows of s1.tmp: to s2.o1", "NoteState"),
        ],
        [],
    ),
    "a name that leads out": (
        [ONE, TWO, "RENAME TABLE s1.o1 TO s1.tmp_o1"],
        ["NoteState", "DROP of s1.o1", "NoteState"],
        [],
    ),
    "a name that leads in": (
        [ONE, T.format("s2.x"), "ALTER TABLE s2.x RENAME TO s2.o3"],
        ["create id:int v:varchar(20)", "DropMirror", "NoteState", "NoteState"],
        ["s2.o3 was s2.x before: rows from before are not here"],
    ),
    "a table like another": ([ONE, "CREATE TABLE s2.o2 LIKE s1.o1"], ["NoteState"], []),
    "a table like one that is unknown": (
        [ONE, "CREATE TABLE s2.o2 LIKE s1.o7"],
        ["NoteState"],
        ["s2.o2: CREATE TABLE LIKE s1.o7, whose definition is not known"],
    ),
    "one made though it is there": ([ONE, ONE], ["CREATE of s1.o1"], []),
    "one made if it is not there": ([ONE, ONE.replace("TABLE", "TABLE IF NOT EXISTS")], [], []),
    "partitions of one": (
        [
            ONE + " PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (5), PARTITION b VALUES LESS THAN (9))",
            TWO,
            ALTER.format("s1.o1", "DROP PARTITION a"),
        ],
        ["NoteState", "DropPartition a of s1.o1", "NoteState"],
        [],
    ),
    "rows that change places with another table's": (
        [ONE, T.format("s2.x"), ALTER.format("s1.o1", "EXCHANGE PARTITION a WITH TABLE s2.x")],
        ["create id:int v:varchar(20)", "NoteState", "NoteState"],
        ["s1.o1: EXCHANGE PARTITION with s2.x: rows of tables that are merged do not change places"],
    ),
    "what cannot be read": (
        [ONE, TWO, ALTER.format("s1.o1", "FROBNICATE v")],
        ["NoteState", "NoteState"],
        ["s1.o1: "],
    ),
    "what does not fit": (
        [ONE, TWO, ALTER.format("s1.o1", "DROP COLUMN z")],
        ["NoteState", "NoteState"],
        ["ALTER TABLE does not fit the known columns of s1.o1"],
    ),
    "one that comes back": (
        [ONE, TWO, "DROP TABLE s1.o1", "FLASHBACK TABLE s1.o1"],
        ["NoteState", "DROP of s1.o1", "NoteState", "NoteState", "NoteState"],
        ["s1.o1 comes back: rows of tables that are merged are not kept apart"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_statement(name: str) -> None:
    statements, steps, gaps = CASES[name]
    state, plan = planned(*statements)
    assert [_words(step) for step in plan.steps if not isinstance(step, ApplyRows)][1:] == steps
    found = () if state is None else in_words(state.gaps)
    assert [gap[: len(start)] for gap, start in zip(found, gaps, strict=True)] == gaps, found


def test_source_columns_come_first_in_columns_and_key() -> None:
    state, _ = planned(ONE, TWO, groups=())
    assert state is not None
    assert state.schema.column_names == (*SOURCE, "id", "v")
    assert state.schema.row_key == (*SOURCE, "id")
    assert [str(shard.name) for shard in state.shards or ()] == ["s1.o1", "s2.o1"]
    assert MirrorState.from_properties(state.properties()) == state
    keyless, _ = planned("CREATE TABLE s1.o1 (id INT)", groups=())
    assert keyless is not None
    assert keyless.schema.row_key == ()


def test_what_is_dropped_is_kept() -> None:
    keep = DdlPolicy("keep")
    state, plan = planned(ONE, TWO, "ALTER TABLE s1.o1 DROP COLUMN v", "DROP TABLE s2.o1", policy=keep)
    mark = tso(4)
    assert [_words(step) for step in plan.steps][2:] == [
        *("NoteState", "NoteState", "NoteState", f"rows of s2.o1: to s2.o1__dropped_{mark}", "columns id:int")
    ]
    assert state is not None
    assert state.kept == (f"v__dropped_{mark}",)
    state, plan = planned(ONE, "DROP TABLE s1.o1", policy=keep)
    assert [type(step).__name__ for step in plan.steps] == ["CreateMirror", "ApplyRows", "RenameMirror"]


def test_a_policy_to_hold_stops_all_of_them() -> None:
    _, plan = planned(ONE, TWO, "TRUNCATE TABLE s1.o1", "ALTER TABLE s2.o1 ADD COLUMN n INT", policy=DdlPolicy("hold"))
    assert [str(held.name) for held in plan.held] == ["m.o"]
    assert [outcome.status for outcome in plan.outcomes.values()] == ["applied", "applied", "held", "held"]


def test_rows_of_tables_that_lack_a_column_leave_no_gap() -> None:
    added = "ALTER TABLE s1.o1 ADD COLUMN n INT NOT NULL"
    wide, narrow = "id:int v:varchar(20) n:int", "id:int v:varchar(20)"
    state, plan = planned(ONE, TWO, added, groups=(_rows("s1.o1", 3, wide), _rows("s2.o1", 3, narrow)))
    assert state is not None
    assert state.gaps == ()
    (rows,) = (step for step in plan.steps if isinstance(step, ApplyRows))
    assert (rows.lacking, rows.into_empty) == ((), True)
    # its own column that a row comes without is another thing
    state, _ = planned(ONE, TWO, added, groups=(_rows("s1.o1", 3, narrow),))
    assert state is not None
    assert in_words(state.gaps)[0].startswith("rows came without some columns")


def test_tables_that_only_rows_have_told_of() -> None:
    rows = (_rows("s1.o1", 0, "id:int a:int"), _rows("s2.o1", 0, "id:bigint b:varchar(5)"))
    state, plan = planned("ALTER TABLE s2.o1 ADD COLUMN c INT DEFAULT 3", TWO.replace("v ", "w "), groups=rows)
    assert state is not None
    assert [_words(step) for step in plan.steps][:4] == [
        "create id:bigint b:varchar(5) a:int",
        "ApplyRows",
        "columns id:bigint a:int b:varchar(5) c:int",
        "rows of s2.o1: c<-default",
    ]
    unseen = "no CREATE TABLE was seen: rows from before the stream began are not here"
    assert [gap.split(", and")[0] for gap in in_words(state.gaps)] == [f"of some of its tables {unseen}"]
    assert state.inferred
    assert [shard.inferred for shard in state.shards or ()] == [True, False]


def test_rows_that_came_before_their_statement_are_let_in_anew() -> None:
    state, _ = planned(groups=(_rows("s1.o1", 9, "id:int v:int"), _rows("s2.o1", 2, "id:int v:int")))
    assert state is not None
    events = _mirrored(ONE, TWO, "TRUNCATE TABLE s3.o1", exact=False)
    found = tables_that_come_again(events, {MIRROR: state}.get, lambda state: False)
    names = [ShardName(MIRROR, TableName(*name.split("."))) for name in ("s1.o1", "s2.o1", "s3.o1")]
    always = ComesAgain(-1, -1, True)
    assert found == {names[0]: always, names[1]: always, names[2]: ComesAgain(tso(3), events[2].ts or 0, True)}
    assert tables_that_come_again(_mirrored(ONE), {MIRROR: state}.get, lambda state: False) == {}


def test_a_masked_column_stays_masked_under_its_new_name() -> None:
    rules = ColumnRules(masks=(("m.o", (("v", HASH),)),), salt="a salt of the tests, long")
    state, _ = planned(ONE, TWO, "ALTER TABLE s2.o1 RENAME COLUMN v TO w", rules=rules)
    assert state is not None
    assert dict(state.masks) == {"v": HASH, "w": HASH}


def test_a_table_that_has_such_columns_itself_is_refused() -> None:
    for sql in ("CREATE TABLE s1.o1 (_SOURCE_TABLE INT)", "ALTER TABLE s2.o1 ADD COLUMN _source_database INT"):
        with pytest.raises(DeclarationError, match=r"s[12]\.o1 has a column _source_database or _source_table itself"):
            planned(TWO, sql)


def test_words_of_a_statement() -> None:
    (event,) = _mirrored("TRUNCATE TABLE s1.o1")
    assert [described(change) for change in event.changes] == ["m.o: TruncateTable s1.o1"]


def test_text_that_may_be_damaged_in_one_of_them_may_be_so_in_all() -> None:
    for first, second in (("latin1", "utf8mb4"), ("utf8mb4", "latin1")):
        state, _ = planned(f"{ONE} CHARSET {first}", f"{TWO} CHARSET {second}", groups=())
        assert state is not None
        column = state.schema.find("v")
        assert column is not None
        assert column.type.charset == "latin1"


def test_a_declared_key_comes_after_the_names_of_the_tables() -> None:
    state, _ = planned("CREATE TABLE s1.o1 (id INT)", groups=())
    assert state is not None
    assert key_columns(state, {"m.o": ("ID",)}) == (*SOURCE, "id")
    assert key_columns(state, {"m.o": ("x",)}) == ()
    assert key_columns(replace(state, shards=None), {"m.o": ("id",)}) == ("id",)


def test_the_names_of_the_tables_are_not_masked() -> None:
    rules = ColumnRules(masks=(("m.o", (("_source_table", HASH),)),), salt="a salt of the tests, long")
    state, _ = planned(ONE, rules=rules)
    assert state is not None
    assert state.masks == ()
    assert in_words(state.gaps) == ("column _source_table: it tells tables apart that are merged, and is not masked",)


def test_a_node_names_its_tables() -> None:
    columns = tuple(CatalogColumn(name, "string", "varchar(64)") for name in (*SOURCE, "v"))
    lineage = mirror_lineage("p", CatalogEntry("m", "o", "/m/o", columns, merged=("s1.o1", "s2.o1"))).deps_by_column
    found = {name: [dep.column_name for dep in deps] for name, deps in lineage.items()}
    assert found == {SOURCE[0]: ["database"], SOURCE[1]: ["table"], "v": ["after", "before"]}


def test_one_is_made_again_with_all_of_them() -> None:
    names = [TableName(*text.split(".")) for text in ("s1.o1", "s2.o1", "s1.x", "s1.y")]
    mirrored = {name: str(MERGED.routed(name)) for name in names}
    events = [_event(1, "CREATE TABLE s1.x LIKE s2.o1")]
    assert tied_and_merged(events, names, names[:1], mirrored) == {*names[:3]}


# ---- another selection than before


def test_merging_begins_and_ends_anew() -> None:
    tables = [TableName("s1", "o1"), TableName("s2", "o1")]
    apart = TableSelection(routes=(Route("s1.o1", "m.o"),))
    for before, now, mirrors in (
        (apart, MERGED, {MIRROR: tables[:1], tables[1]: tables[1:]}),
        (MERGED, replace(MERGED, exclude=("s2.*",)), {MIRROR: tables}),
    ):
        sources = {name: tuple(found) for name, found in mirrors.items()}
        change = SelectionChange.between(sources, tables, before, now)
        assert set(change.leaving) == set(mirrors)
        assert change.starting == tuple(table for table in tables if now.is_in(table))
    more = replace(MERGED, include=("s?.*", "t3.*"), routes=(Route("??.o*", "m.o", merge=True),))
    change = SelectionChange.between({MIRROR: tuple(tables)}, [*tables, TableName("t3", "o1")], MERGED, more)
    assert (change.leaving, change.moving, change.starting) == ({}, {}, (TableName("t3", "o1"),))
    there, _ = planned(ONE, TWO)
    assert there is not None
    book = PlanBook((), {MIRROR: there}.get, frozenset({MIRROR}), 2, "UTC")
    change.plan(book, 2, more, {TableName("t3", "o1"): replace(there, schema=(there.shards or ())[0].schema)}.get)
    (step,) = book.steps
    assert isinstance(step, NoteState)
    assert [str(shard.name) for shard in step.state.shards or ()] == ["s1.o1", "s2.o1", "t3.o1"]
    assert in_words(step.state.gaps)[0].startswith("t3.o1 was not included before cut 2: rows from before are not here")


# ---- types


@pytest.mark.parametrize(
    ("one", "other", "wider"),
    [
        ("int(11)", "int", "int(11)"),
        ("int", "bigint", "bigint"),
        ("smallint unsigned", "int", "int"),
        ("int unsigned", "int", None),
        ("varchar(20)", "varchar(40)", "varchar(40)"),
        ("varchar(20)", "text", "text"),
        ("tinyblob", "varbinary(300)", "varbinary(300)"),
        ("decimal(10,2)", "decimal(12,2)", "decimal(12,2)"),
        ("decimal(10,2)", "decimal(10,4)", None),
        ("enum('a','b')", "enum('a','b','c')", "enum('a','b','c')"),
        ("enum('a','b')", "enum('b','a')", None),
        ("datetime", "datetime(6)", "datetime(6)"),
        ("datetime", "timestamp", None),
        ("float", "double", None),
        ("time", "time(3)", None),
        ("binary(2)", "binary(3)", None),
    ],
)
def test_the_type_that_holds_both(one: str, other: str, wider: str | None) -> None:
    kinds = (type_in_words(one), type_in_words(other))
    for found in (wider_type(*kinds), wider_type(*reversed(kinds))):
        if wider is None:
            assert found is None
        else:
            assert found is not None
            assert str(found).split("(1")[0] == wider.split("(1")[0]


# ---- steps


def test_what_is_said_over_and_over_is_said_once() -> None:
    _, plan = planned(ONE, TWO, "CREATE TABLE s3.o1 (id INT PRIMARY KEY, v VARCHAR(20), n INT)", groups=())
    (made,) = shortened(plan.steps).values()
    assert isinstance(made, CreateMirror)
    assert _words(made) == "create id:int v:varchar(20) n:int"
    assert len(made.state.shards or ()) == 3
    rows = (_rows("s1.o1", 1, "id:int v:varchar(20)"), _rows("s1.o1", 9, "id:int v:varchar(20)"))
    _, plan = planned(ONE, TWO, T.format("s3.o1"), "DROP TABLE s2.o1", groups=rows)
    steps = tuple(shortened(plan.steps).values())
    assert [_words(step) for step in steps] == [
        *("create id:int v:varchar(20)", "ApplyRows", "DROP of s2.o1", "NoteState", "ApplyRows")
    ]
    assert [str(shard.name) for shard in steps[3].state.shards or ()] == ["s1.o1", "s3.o1"]
