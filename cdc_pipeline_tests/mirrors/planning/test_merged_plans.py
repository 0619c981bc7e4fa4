"""Plans of statements about source tables of a merged mirror. Without Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_pipeline.assets.nodes import mirror_lineage
from cdc_pipeline.errors import DeclarationError
from cdc_pipeline.gaps import gap_texts
from cdc_pipeline.lake.catalog import CatalogColumn, CatalogEntry
from cdc_pipeline.mirrors.model.masks import HASH
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import (
    ApplyRows,
    ChangeColumns,
    ChangeSourceRows,
    CreateMirror,
    DeleteRows,
    Step,
    UpdateState,
)
from cdc_pipeline.mirrors.operations.rebuild_scope import tied_tables
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.selection_change import SelectionChange
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mirrors.settings.selection import Route, TableSelection
from cdc_pipeline.mysql.ddl.column_types import type_or_text
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.mysql.types.wider_types import wider_type
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline_tests.support.messages import tso
from cdc_pipeline_tests.support.plans.shard_plans import (
    CASES,
    MERGED,
    MIRROR,
    ONE,
    SOURCE,
    TWO,
    T,
    _event,
    _mirrored,
    _rows,
    planned,
)


def _words(step: Step) -> str:
    """A short description of the step."""
    if isinstance(step, ChangeSourceRows):
        moved = [
            f"{origin.after.name}<-{origin.before.name if origin.before else 'default'}" for origin in step.origins
        ]
        renamed = [] if step.renamed is None else [f"to {step.renamed}"]
        return " ".join(
            [f"rows of {step.source_table}:", *moved, *(f"{name}<-NULL" for name in step.cleared), *renamed]
        )
    if isinstance(step, (ChangeColumns, CreateMirror)):
        columns = [f"{column.name}:{column.type}" for column in step.state.schema.columns if column.name not in SOURCE]
        return f"{'columns' if isinstance(step, ChangeColumns) else 'create'} {' '.join(columns)}"
    return step.description if isinstance(step, DeleteRows) else type(step).__name__


@pytest.mark.parametrize("name", CASES)
def test_a_statement(name: str) -> None:
    statements, steps, gaps = CASES[name]
    state, plan = planned(*statements)
    assert [_words(step) for step in plan.steps if not isinstance(step, ApplyRows)][1:] == steps
    by_statement = {
        f"a statement is not applied yet: see ddl_history at t/0@{position[2]}": outcome.effect
        for position, outcome in plan.outcomes.items()
    }
    found = [by_statement.get(gap, gap) for gap in (() if state is None else gap_texts(state.gaps))]
    assert [gap.removeprefix("not applied yet: ")[: len(start)] for gap, start in zip(found, gaps, strict=True)] == gaps


def test_source_columns_come_first_in_columns_and_key() -> None:
    state, _ = planned(ONE, TWO, groups=())
    assert state is not None
    assert state.schema.column_names == (*SOURCE, "id", "v")
    assert state.schema.row_key == (*SOURCE, "id")
    assert [str(shard.name) for shard in state.source_tables or ()] == ["s1.o1", "s2.o1"]
    assert MirrorState.from_properties(state.properties()) == state
    keyless, _ = planned("CREATE TABLE s1.o1 (id INT)", groups=())
    assert keyless is not None
    assert keyless.schema.row_key == ()


def test_policy_keep() -> None:
    keep = DdlPolicy("keep")
    state, plan = planned(ONE, TWO, "ALTER TABLE s1.o1 DROP COLUMN v", "DROP TABLE s2.o1", policy=keep)
    mark = tso(4)
    assert [_words(step) for step in plan.steps][2:] == [
        *("UpdateState", f"rows of s2.o1: to s2.o1__dropped_{mark}", "columns id:int")
    ]
    assert state is not None
    assert state.kept_columns == (f"v__dropped_{mark}",)
    state, plan = planned(ONE, "DROP TABLE s1.o1", policy=keep)
    assert [type(step).__name__ for step in plan.steps] == ["CreateMirror", "ApplyRows", "RenameMirror"]


def test_policy_hold_holds_all_source_tables() -> None:
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
    assert (rows.absent, rows.into_empty) == ((), True)
    # a column that the source table has and a row lacks is a gap
    state, _ = planned(ONE, TWO, added, groups=(_rows("s1.o1", 3, narrow),))
    assert state is not None
    assert gap_texts(state.gaps)[0].startswith("rows came without some columns")


def test_source_tables_without_ddl() -> None:
    rows = (_rows("s1.o1", 0, "id:int a:int"), _rows("s2.o1", 0, "id:bigint b:varchar(5)"))
    state, plan = planned("ALTER TABLE s2.o1 ADD COLUMN c INT DEFAULT 3", TWO.replace("v ", "w "), groups=rows)
    assert state is not None
    assert [_words(step) for step in plan.steps][:4] == [
        "create id:bigint b:varchar(5) a:int",
        "ApplyRows",
        "columns id:bigint a:int b:varchar(5) c:int",
        "rows of s2.o1: c<-default",
    ]
    unseen = "no CREATE TABLE was seen: rows from before the stream began are missing"
    assert [gap.split(", and")[0] for gap in gap_texts(state.gaps)] == [f"for some source tables, {unseen}"]
    assert state.inferred
    assert [shard.inferred for shard in state.source_tables or ()] == [True, False]


def test_an_added_timestamp_may_have_a_value_in_older_rows() -> None:
    rows = (_rows("s1.o1", 2, "id:int v:varchar(20)"),)
    _, plan = planned(ONE, TWO, "ALTER TABLE s1.o1 ADD COLUMN n INT, ADD COLUMN at TIMESTAMP", groups=rows)
    assert "rows of s1.o1: at<-default" in [_words(step) for step in plan.steps]


def test_a_masked_column_stays_masked_under_its_new_name() -> None:
    rules = ColumnRules(masks=(("m.o", (("v", HASH),)),), salt="a salt of the tests, long")
    state, _ = planned(ONE, TWO, "ALTER TABLE s2.o1 RENAME COLUMN v TO w", rules=rules)
    assert state is not None
    assert dict(state.masks) == {"v": HASH, "w": HASH}


@pytest.mark.parametrize(
    "statements",
    [
        [ONE, "CREATE TABLE s2.o1 (id INT PRIMARY KEY, w VARCHAR(20))", "ALTER TABLE s1.o1 RENAME COLUMN v TO w"],
        [ONE, TWO, "ALTER TABLE s1.o1 ADD w VARCHAR(20), DROP v", "ALTER TABLE s2.o1 RENAME COLUMN V TO w"],
        ["CREATE TABLE s1.o1 (id INT, v INT, w INT)", "ALTER TABLE s1.o1 RENAME COLUMN v TO w, RENAME COLUMN w TO v"],
        [ONE, "CREATE TABLE s2.o1 (id INT PRIMARY KEY, V INT)", "ALTER TABLE s2.o1 RENAME COLUMN V TO w"],
    ],
)
def test_a_masked_column_stays_masked_under_the_name_of_another_one(statements: list[str]) -> None:
    rules = ColumnRules(masks=(("m.o", (("v", HASH),)),), salt="a salt of the tests, long")
    state, plan = planned(*statements, rules=rules)
    assert state is not None
    assert dict(state.masks)["w"] == HASH
    # the column is masked before it gets the values
    moves = [step for step in plan.steps if isinstance(step, ChangeSourceRows) and step.origins]
    assert all(dict(step.state.masks)["w"] == HASH for step in moves)


def test_hashes_that_move_to_a_column_of_another_type_have_a_gap() -> None:
    rules = ColumnRules(masks=(("m.o", (("v", HASH),)),), salt="a salt of the tests, long")
    state, _ = planned(ONE, TWO, "ALTER TABLE s2.o1 CHANGE v w INT", rules=rules)
    assert state is not None
    assert gap_texts(state.gaps) == ("column w: older values were hashed as varchar(20), new ones as int",)


def test_a_table_with_source_columns_of_its_own_is_refused() -> None:
    for sql in ("CREATE TABLE s1.o1 (_SOURCE_TABLE INT)", "ALTER TABLE s2.o1 ADD COLUMN _source_database INT"):
        with pytest.raises(DeclarationError, match=r"s[12]\.o1 has a column _source_database or _source_table itself"):
            planned(TWO, sql)
    with pytest.raises(DeclarationError, match=r"s1\.o1 has a column _source_database or _source_table itself"):
        planned(ONE, groups=(_rows("s1.o1", 1, "id:int _SOURCE_TABLE:int"),))


def test_description_of_a_change() -> None:
    (event,) = _mirrored("TRUNCATE TABLE s1.o1")
    assert [change.description() for change in event.changes] == ["m.o: TruncateTable s1.o1"]


def test_the_merged_charset_is_the_doubtful_one() -> None:
    for first, second in (("latin1", "utf8mb4"), ("utf8mb4", "latin1")):
        state, _ = planned(f"{ONE} CHARSET {first}", f"{TWO} CHARSET {second}", groups=())
        assert state is not None
        column = state.schema.find("v")
        assert column is not None
        assert column.type.charset == "latin1"


def test_a_declared_key_follows_the_source_columns() -> None:
    state, _ = planned("CREATE TABLE s1.o1 (id INT)", groups=())
    assert state is not None
    assert state.key_columns({"m.o": ("ID",)}) == (*SOURCE, "id")
    assert state.key_columns({"m.o": ("x",)}) == ()
    assert replace(state, source_tables=None).key_columns({"m.o": ("id",)}) == ("id",)


def test_source_columns_are_not_masked() -> None:
    rules = ColumnRules(masks=(("m.o", (("_source_table", HASH),)),), salt="a salt of the tests, long")
    state, _ = planned(ONE, rules=rules)
    assert state is not None
    assert state.masks == ()
    assert gap_texts(state.gaps) == (
        "column _source_table: it identifies the source table of a merged mirror and is not masked",
    )


def test_lineage_of_source_columns() -> None:
    columns = tuple(CatalogColumn(name, "string", "varchar(64)") for name in (*SOURCE, "v"))
    lineage = mirror_lineage(
        Pipeline("p", CaptureFiles("c"), "lake"), CatalogEntry("m", "o", "/m/o", columns, merged=("s1.o1", "s2.o1"))
    ).deps_by_column
    found = {name: [dep.column_name for dep in deps] for name, deps in lineage.items()}
    assert found == {SOURCE[0]: ["database"], SOURCE[1]: ["table"], "v": ["after", "before"]}


def test_source_tables_of_one_mirror_are_rebuilt_together() -> None:
    names = [TableName(*text.split(".")) for text in ("s1.o1", "s2.o1", "s1.x", "s1.y")]
    mirrored = {name: str(MERGED.mirror_name(name)) for name in names}
    events = [_event(1, "CREATE TABLE s1.x LIKE s2.o1")]
    assert tied_tables(events, names, names[:1], mirrored) == {*names[:3]}


# ---- a change of the selection


def test_merging_differently_restarts_mirrors() -> None:
    tables = [TableName("s1", "o1"), TableName("s2", "o1")]
    apart = TableSelection(routes=(Route("s1.o1", "m.o"),))
    for before, now, mirrors in (
        (apart, MERGED, {MIRROR: tables[:1], tables[1]: tables[1:]}),
        (MERGED, replace(MERGED, exclude=("s2.*",)), {MIRROR: tables}),
    ):
        sources = {name: tuple(found) for name, found in mirrors.items()}
        change = SelectionChange.from_selections(sources, tables, before, now)
        assert set(change.dropped) == set(mirrors)
        assert change.created == tuple(table for table in tables if now.includes(table))
    more = replace(MERGED, include=("s?.*", "t3.*"), routes=(Route("??.o*", "m.o", merge=True),))
    change = SelectionChange.from_selections({MIRROR: tuple(tables)}, [*tables, TableName("t3", "o1")], MERGED, more)
    assert (change.dropped, change.renamed, change.created) == ({}, {}, (TableName("t3", "o1"),))
    existing, _ = planned(ONE, TWO)
    assert existing is not None
    draft = PlanDraft((), {MIRROR: existing}.get, frozenset({MIRROR}), 2, CutSettings("UTC", selection=more))
    change.plan(draft, 2, more)
    (step,) = draft.steps
    assert isinstance(step, UpdateState)
    assert [str(shard.name) for shard in step.state.source_tables or ()] == ["s1.o1", "s2.o1"]
    assert gap_texts(step.state.gaps)[0].startswith("t3.o1 was not included before cut 2: earlier rows are missing")


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
def test_wider_type(one: str, other: str, wider: str | None) -> None:
    kinds = (type_or_text(one), type_or_text(other))
    for found in (wider_type(*kinds), wider_type(*reversed(kinds))):
        if wider is None:
            assert found is None
        else:
            assert found is not None
            assert str(found).split("(1")[0] == wider.split("(1")[0]


# ---- steps


def test_overwritten_states_are_coalesced() -> None:
    _, plan = planned(ONE, TWO, "CREATE TABLE s3.o1 (id INT PRIMARY KEY, v VARCHAR(20), n INT)", groups=())
    (created,) = plan.steps
    assert isinstance(created, CreateMirror)
    assert _words(created) == "create id:int v:varchar(20) n:int"
    assert len(created.state.source_tables or ()) == 3
    rows = (_rows("s1.o1", 1, "id:int v:varchar(20)"), _rows("s1.o1", 9, "id:int v:varchar(20)"))
    _, plan = planned(ONE, TWO, T.format("s3.o1"), "DROP TABLE s2.o1", groups=rows)
    assert [_words(step) for step in plan.steps] == [
        *("create id:int v:varchar(20)", "ApplyRows", "UpdateState", "DROP of s2.o1", "UpdateState", "ApplyRows")
    ]
    assert [str(shard.name) for shard in plan.steps[4].state.source_tables or ()] == ["s1.o1", "s3.o1"]
