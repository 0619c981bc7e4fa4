"""Cases: statements on the source tables of a merged mirror, and the expected steps and gaps."""

from __future__ import annotations

from cdc_pipeline.dialects.message_types import MessageTypes
from cdc_pipeline.mirrors.changes.row_groups import RowGroup
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.planning.included_ddl import mirrored_event
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import CutPlan, Planner
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mirrors.settings.selection import Route, TableSelection
from cdc_pipeline.mysql.ddl.statements import event_changes
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.messages import tso

MERGED = TableSelection(
    ("s?.*", "out.in"), ("s?.tmp*",), (Route("s?.o*", "m.o", merge=True), Route("s1.p*", "m.p", merge=True))
)


MIRROR = TableName("m", "o")


T = "CREATE TABLE {} (id INT PRIMARY KEY, v VARCHAR(20))"


ONE, TWO = T.format("s1.o1"), T.format("s2.o1")


SOURCE = ("_source_database", "_source_table")


def _event(place: int, sql: str, *, exact: bool = True) -> DdlEvent:
    changes = event_changes("ddl", "s1", "", sql)
    return DdlEvent("t", 0, place, "s1", "", tso(place), exact, tso(place) >> 18, None, sql, changes, "ticdc")


def _rows(source: str, segment: int, columns: str) -> RowGroup:
    """The row group of one INSERT. `columns`: as `name:type`, the first is the key."""
    types = dict(column.split(":") for column in columns.split())
    names = tuple(types)
    return RowGroup(
        MIRROR,
        segment,
        (*SOURCE, *names),
        (*SOURCE, names[0]),
        1,
        "ticdc",
        has_after=True,
        position=(1, "t", 0, 0),
        is_insert=True,
        types=MessageTypes(types),
        source=TableName(*source.split(".")),
    )


def _mirrored(*statements: str, exact: bool = True) -> list[DdlEvent]:
    upstream = [_event(place, sql, exact=exact) for place, sql in enumerate(statements, 1)]
    return [mirrored_event(event, MERGED) for event in upstream]


def planned(
    *statements: str,
    groups: tuple[RowGroup, ...] | None = None,
    policy: DdlPolicy | None = None,
    rules: ColumnRules | None = None,
) -> tuple[MirrorState | None, CutPlan]:
    """The merged mirror after the statements, starting from an empty lake, and the plan with all of its steps.

    `groups` None: s1.o1 has one row after the first statement.
    """
    found = (_rows("s1.o1", 1, "id:int v:varchar(20)"),) if groups is None else groups
    settings = CutSettings("UTC", policy=policy or DdlPolicy(), selection=MERGED, columns=rules or ColumnRules())
    draft = PlanDraft(found, lambda name: None, frozenset(), 1, settings)
    plan = Planner(draft).plan(_mirrored(*statements))
    return draft.state(MIRROR), plan


ALTER = "ALTER TABLE {} {}"


# name → (statements, expected steps after the first statement, prefixes of the mirror's expected gaps)
CASES: dict[str, tuple[list[str], list[str], list[str]]] = {
    "tables that are alike": ([ONE, TWO], ["UpdateState"], []),
    "one that has more": (
        [ONE, "CREATE TABLE s2.o1 (id INT PRIMARY KEY, n INT NOT NULL DEFAULT 5, v VARCHAR(40))"],
        ["columns id:int n:int v:varchar(20)", "columns id:int n:int v:varchar(40)"],
        [],
    ),
    "a column that is added everywhere, one after another": (
        [ONE, TWO, *(ALTER.format(table, "ADD COLUMN n INT DEFAULT 7") for table in ("s1.o1", "s2.o1"))],
        [
            "UpdateState",
            "columns id:int v:varchar(20) n:int",
            "rows of s1.o1: n<-default",
            "UpdateState",
            "rows of s2.o1: n<-default",
            "UpdateState",
        ],
        [],
    ),
    "a column that is dropped everywhere": (
        [ONE, TWO, *(ALTER.format(table, "DROP COLUMN v") for table in ("s2.o1", "s1.o1"))],
        ["UpdateState", "rows of s2.o1: v<-NULL", "UpdateState", "columns id:int"],
        [],
    ),
    "a column that is renamed everywhere": (
        [ONE, TWO, *(ALTER.format(table, "RENAME COLUMN v TO w") for table in ("s2.o1", "s1.o1"))],
        [
            "UpdateState",
            "columns id:int v:varchar(20) w:varchar(20)",
            "rows of s2.o1: w<-v v<-NULL",
            "UpdateState",
            "rows of s1.o1: w<-v",
            "columns id:int w:varchar(20)",
        ],
        [],
    ),
    "two columns swap their names in one table": (
        [ONE, TWO, ALTER.format("s2.o1", "RENAME COLUMN v TO id, RENAME COLUMN id TO v")],
        ["UpdateState", "rows of s2.o1: v<-id id<-v", "columns v:varchar(20) id:int"],
        [
            "column v:",
            "column id:",
            "its source tables have different keys: (id) and (v); rows of some of them may be wrong, such as in s2.o1",
        ],
    ),
    "a type that widens everywhere": (
        [ONE, TWO, *(ALTER.format(table, "MODIFY id BIGINT") for table in ("s1.o1", "s2.o1"))],
        ["UpdateState", "columns id:bigint v:varchar(20)", "UpdateState"],
        [],
    ),
    "a type that narrows in one of them": (
        [ONE, TWO, ALTER.format("s1.o1", "MODIFY v VARCHAR(10)")],
        ["UpdateState"],
        ["column v: varchar(20) became varchar(10), but the mirror has varchar(20)"],
    ),
    "types that do not go together": (
        [ONE, TWO, ALTER.format("s1.o1", "MODIFY v INT")],
        ["UpdateState"],
        ["column v: its source tables have different types (int and varchar(20))", "column v: varchar(20) became int"],
    ),
    "keys that do not go together": (
        [ONE, "CREATE TABLE s2.o1 (id INT, v VARCHAR(20), PRIMARY KEY (id, v))"],
        ["UpdateState"],
        [
            "its source tables have different keys: (id) and (id, v); rows of some of them may be wrong, such as in s1.o1"
        ],
    ),
    "TRUNCATE and DROP of one, then of the last": (
        [ONE, TWO, "TRUNCATE TABLE s1.o1", "DROP TABLE s1.o1", "DROP TABLE s2.o1"],
        ["UpdateState", "TRUNCATE of s1.o1", "DROP of s1.o1", "UpdateState", "DropMirror"],
        [],
    ),
    "what only the dropped one had": (
        [ONE, "CREATE TABLE s2.o1 (id INT PRIMARY KEY, v VARCHAR(20), n INT)", "DROP TABLE s2.o1"],
        ["columns id:int v:varchar(20) n:int", "UpdateState", "DROP of s2.o1", "columns id:int v:varchar(20)"],
        [],
    ),
    "a database of several": (
        [ONE, T.format("s1.o2"), TWO, "DROP DATABASE s1"],
        ["UpdateState", "DROP of s1.o1", "UpdateState", "DROP of s1.o2", "UpdateState"],
        [],
    ),
    "a name that changes inside": (
        [ONE, TWO, "RENAME TABLE s1.o1 TO s1.o9"],
        ["UpdateState", "rows of s1.o1: to s1.o9", "UpdateState"],
        [],
    ),
    "two tables that change places": (
        [ONE, TWO, "RENAME TABLE s1.o1 TO s1.o2, s2.o1 TO s1.o1, s1.o2 TO s2.o1"],
        [
            "UpdateState",
            *("rows of s1.o1: to s1.o2", "UpdateState", "rows of s2.o1: to s1.o1", "UpdateState"),
            *("rows of s1.o2: to s2.o1", "UpdateState"),
        ],
        [],
    ),
    "a name that leads out": (
        [ONE, TWO, "RENAME TABLE s1.o1 TO s1.tmp_o1"],
        ["UpdateState", "DROP of s1.o1", "UpdateState"],
        [],
    ),
    "a name that leads in": (
        [ONE, T.format("s2.x"), "ALTER TABLE s2.x RENAME TO s2.o3"],
        ["create id:int v:varchar(20)", "DropMirror", "UpdateState"],
        ["s2.o3 was renamed from s2.x, which is excluded or merged"],
    ),
    "a table like another": ([ONE, "CREATE TABLE s2.o2 LIKE s1.o1"], ["UpdateState"], []),
    "a table like one that is unknown": (
        [ONE, "CREATE TABLE s2.o2 LIKE s1.o7"],
        ["UpdateState"],
        ["s2.o2: CREATE TABLE LIKE s1.o7, whose definition is unknown"],
    ),
    "one made though it is there": ([ONE, ONE], ["CREATE of s1.o1"], []),
    "one made if it is not there": ([ONE, ONE.replace("TABLE", "TABLE IF NOT EXISTS")], [], []),
    "partitions of one": (
        [
            ONE + " PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (5), PARTITION b VALUES LESS THAN (9))",
            TWO,
            ALTER.format("s1.o1", "DROP PARTITION a"),
        ],
        ["UpdateState", "DropPartition a of s1.o1", "UpdateState"],
        [],
    ),
    "rows that change places with another table's": (
        [ONE, T.format("s2.x"), ALTER.format("s1.o1", "EXCHANGE PARTITION a WITH TABLE s2.x")],
        ["create id:int v:varchar(20)", "UpdateState", "UpdateState"],
        ["s1.o1: EXCHANGE PARTITION with s2.x: its rows are unknown, because a table is excluded or merged"],
    ),
    "what cannot be read": (
        [ONE, TWO, ALTER.format("s1.o1", "FROBNICATE v")],
        ["UpdateState"],
        ["s1.o1: "],
    ),
    "what does not fit": (
        [ONE, TWO, ALTER.format("s1.o1", "DROP COLUMN z")],
        ["UpdateState"],
        ["ALTER TABLE does not fit the known columns of s1.o1"],
    ),
    "one that comes back": (
        [ONE, TWO, "DROP TABLE s1.o1", "FLASHBACK TABLE s1.o1"],
        ["UpdateState", "DROP of s1.o1", "UpdateState"],
        ["s1.o1: RecoverTable s1.o1: the definition is unknown, because a table is merged"],
    ),
}
