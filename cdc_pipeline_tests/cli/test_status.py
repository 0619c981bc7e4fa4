"""What `cdc-pipeline status` prints of changes that wait."""

from __future__ import annotations

import re

import pytest

from cdc_pipeline.cli.status import PipelineStatus, status_lines
from cdc_pipeline.mirrors.changes.progress import PublishedCut, StreamProgress, next_window
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry
from cdc_pipeline.mirrors.operations.dry_run import PendingStatement
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position

_TABLE = TableName("a", "b")


def _lines(*held: HeldTable, pending: int = 0, waiting: int = 0, blocked_by: str = "") -> list[str]:
    cut = PublishedCut(3, 5 << 18, 1, (), pending, held)
    return status_lines(PipelineStatus("p", cut, None, (), {}, {}, waiting, blocked_by))[1:]


def test_held_and_quarantined_tables() -> None:
    held = HeldTable(_TABLE, Position("t", 0, 7), 1, 1200)
    assert _lines(held, pending=1200) == [
        "held: a.b, 1,200 row changes wait: the statement at t/0@7 waits for approval. `cdc-pipeline approve --tables a.b` "
        "or the job p_approve_ddl applies it when its run ends",
    ]
    (line,) = _lines(HeldTable(_TABLE, Position("", -1, -1), 1, 2, "ApplyRows failed 3 times"), pending=2)
    assert line.startswith("held: a.b, 2 row changes wait: quarantined: ApplyRows failed 3 times")


def test_the_statement_that_holds_a_table_and_what_it_removes() -> None:
    """And the gap that says the same is not printed again, but counted."""
    held = HeldTable(_TABLE, Position("t", 0, 7), 1, 3)
    statement = PendingStatement(held.statement, 1, "held", "ALTER TABLE b DROP c", "", "the values of c in 5 rows", 3)
    entry = MirrorEntry(_TABLE, "id", "path", 4, 5, 2, ("another gap", str(held.gap)))
    cut = PublishedCut(3, None, 1, (), 3, (held,))
    status = PipelineStatus("p", cut, None, (entry,), {}, {"held": 1}, 0, "", {held.statement: statement})
    mirror, *others = status_lines(status)[4:]
    assert mirror.split() == ["a.b", "5", "2", "4", "2"]
    assert others == [
        "",
        "gap of a.b: another gap",
        "held: a.b, 3 row changes wait: ALTER TABLE b DROP c at t/0@7 waits for approval. Lost by it: the values of c in 5 "
        "rows. `cdc-pipeline approve --tables a.b` or the job p_approve_ddl applies it when its run ends",
        "DDL statements held: 1",
    ]


def test_a_statement_that_a_run_applies() -> None:
    """It is not approved twice, unless the run fails."""
    held = HeldTable(_TABLE, Position("t", 0, 7), 1, 3)
    statement = PendingStatement(
        held.statement, 1, "approved by run 4e1", "TRUNCATE TABLE b", "", "all 5 rows of a.b", 3
    )
    cut = PublishedCut(3, None, 1, (), 3, (held,))
    status = PipelineStatus("p", cut, None, (), {}, {"held": 1}, 0, "", {held.statement: statement})
    assert status_lines(status)[1] == (
        "held: a.b, 3 row changes wait: TRUNCATE TABLE b at t/0@7 is approved by run 4e1, which applies it when it ends. "
        "Lost by it: all 5 rows of a.b. If the run failed: `cdc-pipeline approve --tables a.b` or the job p_approve_ddl"
    )
    assert status.to_json()["held"][0]["status"] == "approved by run 4e1"


def test_a_cut_from_the_future_is_ahead_of_the_clock() -> None:
    (line,) = status_lines(PipelineStatus("p", PublishedCut(3, (1 << 43) << 18, 1, ()), None, (), {}, {}, 0, ""))
    assert re.search(r", \d+ days ahead of the clock$", line)


def test_changes_that_wait_for_a_watermark_or_the_next_run() -> None:
    held = HeldTable(_TABLE, Position("t", 0, 7), 1, 2)
    assert _lines(held, pending=5, blocked_by="t/1 is late")[1:] == ["3 decoded row changes wait: t/1 is late"]
    assert _lines(waiting=4) == ["4 decoded row changes wait: the next run applies them"]
    assert _lines() == []


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (StreamProgress(2, True, 6 << 18, "t/0", ()), True),
        (StreamProgress(2, True, 5 << 18, "t/0", ()), False),
        (StreamProgress(2, True, None, None, ("t/1",)), False),
        (StreamProgress(2, False, None, None, (), ends={"t": 7}), True),
        (StreamProgress(1, False, None, None, ()), False),
    ],
)
def test_the_next_run_makes_a_cut_for_a_higher_resolved_tso_or_without_tsos_a_new_batch(
    progress: StreamProgress, expected: bool
) -> None:
    assert (next_window(PublishedCut(3, 5 << 18, 1, ()), progress) is not None) == expected
