"""Gaps that a definition shows, and the mirrors that foreign keys tie together. Without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cdc_pipeline.gaps import gap_texts
from cdc_pipeline.mirrors.model.ddl_events import BASELINE_TOPIC
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.planning.included_ddl import mirrored_event
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Planner
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES, Route, TableSelection
from cdc_pipeline.mysql.model.engines import UNLOGGED
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.plans.by_hand import ddl_event

_PARENT = "CREATE TABLE p (id INT PRIMARY KEY)"
_CHILD = "CREATE TABLE c (id INT PRIMARY KEY, p INT, CONSTRAINT of FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)"
_GAP = "the binlog may lack row changes of the foreign key of to db.p (ON DELETE CASCADE): "
_NO_MIRROR, _MERGED = f"{_GAP}the referenced table has no mirror", f"{_GAP}the table is merged"
_BLACKHOLE = "ENGINE=BLACKHOLE: the binlog has INSERTs of rows that the table does not store"
_MEMORY = f"ENGINE=MEMORY: {UNLOGGED['memory']}"


def _planned(
    *statements: str,
    dialect: str = "canal",
    selection: TableSelection = ALL_TABLES,
    lookup: Callable[[TableName], MirrorState | None] = lambda name: None,
) -> PlanDraft:
    draft = PlanDraft((), lookup, frozenset(), 1, CutSettings("UTC", selection=selection))
    events = [replace(ddl_event(place, sql), dialect=dialect) for place, sql in enumerate(statements, 1)]
    Planner(draft).plan(events)
    return draft


def _gaps(draft: PlanDraft, table: str) -> list[str]:
    state = draft.state(TableName("db", table))
    assert state is not None
    return list(gap_texts(state.gaps))


@pytest.mark.parametrize(
    ("statements", "gaps"),
    [
        (("CREATE TABLE t (a INT) ENGINE=blackhole",), [_BLACKHOLE]),
        (("CREATE TABLE t (a INT) ENGINE=InnoDB",), []),
        # its rows stay in the mirror until a TRUNCATE
        (("CREATE TABLE t (a INT) ENGINE=BLACKHOLE", "ALTER TABLE t ENGINE=InnoDB"), [_BLACKHOLE]),
        (("CREATE TABLE t (a INT) ENGINE=BLACKHOLE", "ALTER TABLE t ENGINE=InnoDB", "TRUNCATE t"), []),
        (("CREATE TABLE t (a INT)", "ALTER TABLE t ADD b INT, ENGINE=MEMORY", "TRUNCATE t"), [_MEMORY]),
        (("CREATE TABLE s (a INT) ENGINE=MEMORY", "CREATE TABLE t LIKE s"), [_MEMORY]),
    ],
)
def test_storage_engines(statements: tuple[str, ...], gaps: list[str]) -> None:
    assert _gaps(_planned(*statements), "t") == gaps
    # TiDB has one engine, whatever the statement names
    assert _gaps(_planned(*statements, dialect="ticdc"), "t") == []


@pytest.mark.parametrize(
    ("statements", "referencing", "gaps"),
    [
        ((_PARENT, _CHILD), ["of"], []),
        # a dump of all tables by their names
        ((_CHILD, _PARENT), ["of"], []),
        ((_CHILD,), None, [_NO_MIRROR]),
        ((_CHILD, "TRUNCATE c"), None, [_NO_MIRROR]),
        ((_CHILD, "TRUNCATE c", _PARENT), ["of"], []),
        ((_PARENT, _CHILD, "TRUNCATE c"), ["of"], []),
        # MySQL finds the referenced table by its name
        ((_PARENT, _CHILD, _PARENT), ["of"], []),
        ((_PARENT, "CREATE TABLE s (id INT, p INT)", "CREATE TABLE c LIKE s", "ALTER TABLE c ADD z INT"), [], []),
        ((_PARENT, _CHILD, "RENAME TABLE c TO d", "CREATE TABLE c LIKE d"), ["of"], []),
    ],
)
def test_foreign_keys(statements: tuple[str, ...], referencing: list[str] | None, gaps: list[str]) -> None:
    draft = _planned(*statements)
    parent = draft.state(TableName("db", "p"))
    assert (None if parent is None else [key.name for _, key in parent.referencing]) == referencing
    assert _gaps(draft, "c") == gaps
    of_tidb = _planned(*statements, dialect="ticdc")
    parent = of_tidb.state(TableName("db", "p"))
    assert parent is None or parent.referencing == ()
    assert _gaps(of_tidb, "c") == []


def test_a_foreign_key_that_alter_table_adds_and_drops() -> None:
    add = "ALTER TABLE c ADD CONSTRAINT of FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE"
    assert _gaps(_planned("CREATE TABLE c (id INT PRIMARY KEY, p INT)", add), "c") == [_NO_MIRROR]
    draft = _planned(_PARENT, "CREATE TABLE c (id INT PRIMARY KEY, p INT)", add, "ALTER TABLE c DROP FOREIGN KEY of")
    child = draft.state(TableName("db", "c"))
    assert child is not None
    assert (child.schema.foreign_keys, child.gaps) == ((), ())


def test_statements_that_keep_the_rows_of_a_later_cut() -> None:
    before = _planned(_PARENT, "CREATE TABLE c (id INT PRIMARY KEY, p INT)", "CREATE TABLE t (a INT)")
    key = "FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE"
    draft = _planned(f"ALTER TABLE c ADD {key}", "ALTER TABLE t ENGINE=BLACKHOLE", lookup=before.state)
    parent = draft.state(TableName("db", "p"))
    assert parent is not None
    assert [(str(name), key.name) for name, key in parent.referencing] == [("db.c", "p")]
    assert _gaps(draft, "t") == [_BLACKHOLE]


def test_a_merged_table() -> None:
    selection = TableSelection(routes=(Route("db.c*", "db.m", merge=True),))
    event = replace(ddl_event(1, _CHILD), dialect="canal")
    draft = PlanDraft((), lambda name: None, frozenset(), 1, CutSettings("UTC", selection=selection))
    Planner(draft).plan([mirrored_event(event, selection)])
    assert _gaps(draft, "m") == [_MERGED.replace("db.p", ".p")]


def test_a_referenced_table_that_is_dropped_or_created_again_later() -> None:
    before = _planned(_PARENT, _CHILD)
    for statements, gaps, referencing in (
        (("DROP TABLE p",), [_NO_MIRROR], None),
        (("DROP TABLE p", _PARENT), [], ["of"]),
        (("DROP TABLE p, c",), None, None),
        (("RENAME TABLE p TO q",), [], None),
    ):
        draft = _planned(*statements, lookup=before.state)
        child, parent = (draft.state(TableName("db", name)) for name in "cp")
        assert (None if child is None else list(gap_texts(child.gaps))) == gaps
        assert (None if parent is None else [key.name for _, key in parent.referencing]) == referencing


@pytest.mark.parametrize("exact_ts", [False, True])
def test_the_definition_of_an_export(exact_ts: bool) -> None:
    """An export with a TSO is one of TiDB, which sends all changes."""
    statements = [_PARENT, _CHILD, "CREATE TABLE t (a INT) ENGINE=BLACKHOLE"]
    draft = PlanDraft((), lambda name: None, frozenset(), 1, CutSettings("UTC"))
    Planner(draft).plan(
        replace(ddl_event(place, sql), topic=f"{BASELINE_TOPIC}1", dialect="", exact_ts=exact_ts)
        for place, sql in enumerate(statements)
    )
    parent = draft.state(TableName("db", "p"))
    assert parent is not None
    assert [str(name) for name, _ in parent.referencing] == ([] if exact_ts else ["db.c"])
    assert _gaps(draft, "t") == ([] if exact_ts else [_BLACKHOLE])


def test_an_excluded_referenced_table() -> None:
    assert _gaps(_planned(_PARENT, _CHILD, selection=TableSelection(exclude=("db.p",))), "c") == [_NO_MIRROR]
