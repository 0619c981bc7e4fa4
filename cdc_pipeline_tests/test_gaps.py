"""Gaps are values: they heal by kind and column, whatever their words are, and those of earlier lakes are read."""

from __future__ import annotations

import json

import pytest

from cdc_pipeline.gaps import Gap, GapKind, added, carried, in_words, of_statement, short_statement
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.state import UNSEEN_START, MirrorState
from cdc_pipeline.mirrors.model.stored_gaps import gaps_of_text, gaps_text
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Planner
from cdc_pipeline.mirrors.planning.shard_definitions import UNSEEN_TABLES
from cdc_pipeline.mirrors.settings.column_rules import OWN_COMMIT_TS, OWN_DELETED
from cdc_pipeline.mysql.ddl.statements import changes_of
from cdc_pipeline.mysql.model.table import Column, MySqlType, TableName, TableSchema
from cdc_pipeline_tests.support.messages import tso

NAME = TableName("db", "t")
LOSSY = "the encoder has damaged its text"


def _altered(gaps: tuple[Gap, ...], sql: str, columns: tuple[str, ...] = ("id", "a", "a b")) -> MirrorState:
    """The mirror of these columns and gaps after the statement."""
    schema = TableSchema(tuple(Column(name, MySqlType("int")) for name in columns), ("id",))
    before = MirrorState(NAME, "db.t@1", schema, gaps=gaps)
    event = DdlEvent("t", 0, 1, "db", "", tso(1), True, tso(1) >> 18, None, sql, changes_of("ddl", "db", "", sql))
    draft = PlanDraft((), {NAME: before}.get, frozenset({NAME}), 2, "UTC")
    Planner(draft).plan([event])
    state = draft.state(NAME)
    assert state is not None
    return state


def test_a_column_that_goes_takes_its_own_gaps_along() -> None:
    gaps = tuple(Gap(GapKind.DAMAGED_TEXT, LOSSY, name) for name in ("a", "a b", "A b: x"))
    table = Gap(GapKind.BAD_VALUES, "column a: is no column here")
    run_on = Gap(GapKind.NULL_IN_OLDER_ROWS, "of older rows is NULL: it follows from itself", "a")
    after = _altered((*gaps, table, run_on), "ALTER TABLE t DROP COLUMN a")
    assert after.gaps == (gaps[1], gaps[2], table)
    # what rows lacked heals with it too, of each column by itself
    untold = tuple(
        Gap(GapKind.UNTOLD_COLUMN, "rows have columns that no DDL has told of", name) for name in ("a", "a b")
    )
    assert _altered(untold, "ALTER TABLE t DROP COLUMN a").gaps == untold[1:]


def test_gaps_go_along_with_names() -> None:
    gaps = tuple(Gap(GapKind.DAMAGED_TEXT, LOSSY, name) for name in ("a", "a b"))
    after = _altered(gaps, "ALTER TABLE t RENAME COLUMN a TO `a b`, RENAME COLUMN `a b` TO a")
    assert [(str(gap), gap.column) for gap in after.gaps] == [
        ("column a b: the encoder has damaged its text", "a b"),
        ("column a: the encoder has damaged its text", "a"),
    ]
    assert _altered(gaps, "ALTER TABLE t RENAME COLUMN a TO c, ADD COLUMN a INT").gaps[0].column == "c"
    assert carried(gaps, {"A": None}) == gaps[1:]


def test_types_that_are_known_now_are_healed() -> None:
    unclear = Gap(GapKind.UNCLEAR_TYPE, "its type is not known, values are kept as text", "a")
    assert _altered((unclear,), "ALTER TABLE t MODIFY a INT UNSIGNED").gaps == ()


def test_the_same_of_another_table_is_the_same() -> None:
    one, other = (Gap(GapKind.TABLES_DIFFER, "they differ", "v", example=name) for name in ("s1.o", "s2.o"))
    assert added((one,), (other,)) == (one,)
    assert in_words(added((one,), (other,))) == ("column v: they differ, such as in s1.o",)


def test_one_sentence_for_columns_of_which_the_same_is_said() -> None:
    words = "rows have columns that no DDL has told of"
    untold = [Gap(GapKind.UNTOLD_COLUMN, words, name) for name in ("a", "b")]
    other = Gap(GapKind.UNTOLD_COLUMN, words, "c", example="s.t")
    assert in_words([untold[0], UNSEEN_START, untold[1], other]) == (
        f"{words}: a, b",
        UNSEEN_START.detail,
        f"{words}: c, such as in s.t",
    )


def test_what_is_long_is_said_in_short() -> None:
    statement = "ALTER TABLE t ADD COLUMN c INT COMMENT '" + "x" * 1_000_000 + "'"
    gap = of_statement(GapKind.LATE_DDL, "late: see ddl_history", "late", statement)
    assert str(gap) == f"late: {statement[:200]}… (1000041 characters, all of them in ddl_history)"
    assert short_statement("DROP TABLE t") == "DROP TABLE t"
    assert len(str(Gap(GapKind.NOT_COMPUTED, statement, "c"))) < 700
    refused = _altered((), f"ALTER TABLE t FROBNICATE '{'y' * 1_000_000}'")
    assert len(gaps_text(refused.gaps)) < 1000


@pytest.mark.parametrize("gap", [UNSEEN_START, UNSEEN_TABLES, OWN_DELETED, OWN_COMMIT_TS])
def test_text_and_back(gap: Gap) -> None:
    gaps = (gap, Gap(GapKind.DAMAGED_TEXT, LOSSY, ""), of_statement(GapKind.HELD, "held", "held", "DROP TABLE é"))
    read = gaps_of_text(gaps_text(gaps), ())
    assert read == gaps
    assert [found.example for found in read] == [found.example for found in gaps]


# what versions before format 3 said → the kinds and columns that it is read as, where the table has a, a b, c
SAID: dict[str, list[tuple[GapKind, str | None]]] = {
    UNSEEN_START.detail: [(GapKind.UNSEEN_START, None)],
    UNSEEN_TABLES.detail: [(GapKind.UNSEEN_TABLES, None)],
    "column a: its type is not known, values are kept as text": [(GapKind.UNCLEAR_TYPE, "a")],
    "column a b: point is no type of MySQL that is known here, values are kept as text": [
        (GapKind.UNCLEAR_TYPE, "a b")
    ],
    "column a b: the labels of the enum are not known, numbers are kept as text": [(GapKind.UNCLEAR_TYPE, "a b")],
    "column gone: its type is not known, values are kept as text": [(GapKind.EARLIER, None)],
    "column a: values were int before and are date now: converted without certainty": [
        (GapKind.UNSURE_CONVERSION, "a")
    ],
    "column a of older rows is NULL: it follows from itself": [(GapKind.NULL_IN_OLDER_ROWS, "a")],
    "column a b of older rows of s1.o is NULL: a is masked otherwise": [(GapKind.NULL_IN_OLDER_ROWS, "a b")],
    "column a of older rows is not what upstream computes as `c` + 1: no": [(GapKind.NOT_COMPUTED, "a")],
    "column a of rows that came without it is NULL: no": [(GapKind.ABSENT_DEFAULT, "a")],
    "column a: 2 value(s) have no sure equal as date, such as 'x', 'column c: y'": [(GapKind.EARLIER, "a")],
    "rows have columns that no DDL has told of: a, a b": [
        (GapKind.UNTOLD_COLUMN, "a"),
        (GapKind.UNTOLD_COLUMN, "a b"),
    ],
    "rows have columns that no DDL has told of: a, gone": [(GapKind.UNTOLD_COLUMN, None)],
    "rows have columns that no DDL has told of: a, such as in s1.o": [(GapKind.UNTOLD_COLUMN, "a")],
    "virtual generated columns are not sent, they are NULL here: c": [(GapKind.VIRTUAL_NOT_SENT, "c")],
    "rows came without some columns, which are NULL here (a partial row image, such as binlog_row_image MINIMAL or "
    "NOBLOB, or a column selector): a, c": [(GapKind.PARTIAL_IMAGES, "a"), (GapKind.PARTIAL_IMAGES, "c")],
    "column c: its tables have int and date, values of some of them may not be upstream's, such as in s1.o": [
        (GapKind.TABLES_DIFFER, "c")
    ],
    "3 record(s) are dead letters of rule json, the first at t/0@7": [(GapKind.DEAD_LETTERS, None)],
    "held (ddl_policy) until the statement at t/0/7 is approved: DROP TABLE x": [(GapKind.EARLIER, None)],
}


@pytest.mark.parametrize("words", SAID)
def test_what_earlier_versions_said_is_read(words: str) -> None:
    gaps = gaps_of_text(json.dumps([words]), ("a", "a b", "c"))
    assert [(gap.kind, gap.column) for gap in gaps] == SAID[words]
    assert in_words(gaps) == (words,)
    assert gaps_of_text(gaps_text(gaps), ()) == gaps


def test_what_earlier_versions_said_heals() -> None:
    """A lake goes on with the sentences that its properties have."""
    schema = TableSchema(
        (Column("id", MySqlType("int")), Column("a", MySqlType("geo")), Column("a b", MySqlType("geo")))
    )
    properties = MirrorState(NAME, "db.t@1", schema).properties()
    said = [
        f"column {name}: geo is no type of MySQL that is known here, values are kept as text" for name in ("a", "a b")
    ]
    said += ["column a: the encoder has damaged its text"]
    properties |= {"cdc.gaps": json.dumps(said[:2]), "cdc.row_gaps": json.dumps(said[2:])}
    state = MirrorState.from_properties(properties)
    assert in_words(state.gaps) == tuple(said)
    event = DdlEvent(
        *("t", 0, 1, "db", "", tso(1), True, tso(1) >> 18, None, "ALTER TABLE t DROP a"),
        changes_of("ddl", "db", "", "ALTER TABLE t DROP a"),
    )
    draft = PlanDraft((), {NAME: state}.get, frozenset({NAME}), 2, "UTC")
    Planner(draft).plan([event])
    (left,) = draft.state(NAME).gaps  # type: ignore[union-attr]
    assert str(left) == said[1]
