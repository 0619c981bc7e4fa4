"""Gaps are values. They heal by kind and column, not by text."""

from __future__ import annotations

import pytest

from cdc_pipeline.gaps import (
    GAPS_JSON,
    Gap,
    GapKind,
    gap_texts,
    gaps_after_alter,
    merge_gaps,
    statement_gap,
)
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.state import UNSEEN_START, MirrorState
from cdc_pipeline.mirrors.planning.merged_definitions import UNSEEN_TABLES
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Planner
from cdc_pipeline.mirrors.settings.column_rules import HAS_OWN_DELETED
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mysql.ddl.statements import event_changes
from cdc_pipeline.mysql.model.table import Column, MySqlType, TableName, TableSchema
from cdc_pipeline.positions import Position
from cdc_pipeline_tests.support.messages import tso

NAME = TableName("db", "t")
LOSSY = "the encoder has damaged its text"


def _altered(gaps: tuple[Gap, ...], sql: str, columns: tuple[str, ...] = ("id", "a", "a b")) -> MirrorState:
    """The mirror of these columns and gaps after the statement."""
    schema = TableSchema(tuple(Column(name, MySqlType("int")) for name in columns), ("id",))
    before = MirrorState(NAME, "db.t@1", schema, gaps=gaps)
    event = DdlEvent("t", 0, 1, "db", "", tso(1), True, tso(1) >> 18, None, sql, event_changes("ddl", "db", "", sql))
    draft = PlanDraft((), {NAME: before}.get, frozenset({NAME}), 2, CutSettings("UTC"))
    Planner(draft).plan([event])
    state = draft.state(NAME)
    assert state is not None
    return state


def test_a_dropped_column_drops_its_gaps() -> None:
    gaps = tuple(Gap(GapKind.DAMAGED_TEXT, LOSSY, name) for name in ("a", "a b", "A b: x"))
    table = Gap(GapKind.BAD_VALUES, "column a: is no column here")
    run_on = Gap(GapKind.NULL_IN_OLDER_ROWS, "of older rows is NULL: it follows from itself", "a")
    after = _altered((*gaps, table, run_on), "ALTER TABLE t DROP COLUMN a")
    assert after.gaps == (gaps[1], gaps[2], table)
    # values missing in rows heal too, for each column by itself
    undeclared = tuple(
        Gap(GapKind.UNDECLARED_COLUMN, "rows have columns that no DDL declares", name) for name in ("a", "a b")
    )
    assert _altered(undeclared, "ALTER TABLE t DROP COLUMN a").gaps == undeclared[1:]


def test_bad_values_name_their_first_message() -> None:
    """Once: a mirror with bad values in each cut has one gap per number of rows."""
    first, second = (
        Gap(GapKind.BAD_VALUES, "1 row(s): see dead_letters", example=f"t/0@{offset}") for offset in (7, 8)
    )
    assert gap_texts(merge_gaps((first,), (second,))) == ("1 row(s): see dead_letters, the first at t/0@7",)


def test_gaps_follow_renamed_columns() -> None:
    gaps = tuple(Gap(GapKind.DAMAGED_TEXT, LOSSY, name) for name in ("a", "a b"))
    after = _altered(gaps, "ALTER TABLE t RENAME COLUMN a TO `a b`, RENAME COLUMN `a b` TO a")
    assert [(str(gap), gap.column) for gap in after.gaps] == [
        ("column a b: the encoder has damaged its text", "a b"),
        ("column a: the encoder has damaged its text", "a"),
    ]
    assert _altered(gaps, "ALTER TABLE t RENAME COLUMN a TO c, ADD COLUMN a INT").gaps[0].column == "c"
    assert gaps_after_alter(gaps, {"A": None}) == gaps[1:]


def test_a_known_type_heals_its_gap() -> None:
    unclear = Gap(GapKind.UNCLEAR_TYPE, "its type is not known, values are kept as text", "a")
    assert _altered((unclear,), "ALTER TABLE t MODIFY a INT UNSIGNED").gaps == ()


def test_equal_gaps_of_another_table_are_equal() -> None:
    one, other = (Gap(GapKind.TABLES_DIFFER, "they differ", "v", example=name) for name in ("s1.o", "s2.o"))
    assert merge_gaps((one,), (other,)) == (one,)
    assert gap_texts(merge_gaps((one,), (other,))) == ("column v: they differ, such as in s1.o",)


def test_equal_gaps_of_several_columns_make_one_sentence() -> None:
    words = "rows have columns that no DDL declares"
    undeclared = [Gap(GapKind.UNDECLARED_COLUMN, words, name) for name in ("a", "b")]
    other = Gap(GapKind.UNDECLARED_COLUMN, words, "c", example="s.t")
    assert gap_texts([undeclared[0], UNSEEN_START, undeclared[1], other]) == (
        f"{words}: a, b",
        UNSEEN_START.detail,
        f"{words}: c, such as in s.t",
    )


def test_long_text_is_shortened() -> None:
    statement = "ALTER TABLE t ADD COLUMN c INT COMMENT '" + "x" * 1_000_000 + "'"
    assert len(str(Gap(GapKind.NOT_COMPUTED, statement, "c"))) < 700


def test_the_gap_of_a_statement_names_its_position() -> None:
    refused = _altered((), "ALTER TABLE t FROBNICATE 'secret'")
    assert gap_texts(refused.gaps) == ("a statement is not applied yet: see ddl_history at t/0@1",)


@pytest.mark.parametrize("gap", [UNSEEN_START, UNSEEN_TABLES, HAS_OWN_DELETED])
def test_text_and_back(gap: Gap) -> None:
    gaps = (gap, Gap(GapKind.DAMAGED_TEXT, LOSSY, ""), statement_gap(GapKind.HELD, "held", Position("é", 0, 7)))
    read = GAPS_JSON.from_json(GAPS_JSON.to_json(gaps))
    assert read == gaps
    assert [found.example for found in read] == [found.example for found in gaps]
