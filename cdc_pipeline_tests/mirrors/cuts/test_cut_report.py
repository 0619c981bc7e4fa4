"""The report of a run that finished another run's cut before its own."""

from __future__ import annotations

from dataclasses import replace

from cdc_pipeline.mirrors.changes.progress import StreamProgress
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, TableCounts
from cdc_pipeline.mysql.model.table import TableName

_STREAMS = StreamProgress(1, has_tsos=False, resolved_tso=None, held_by=None, without_watermark=())


def test_what_the_resumed_cut_did_is_reported_too() -> None:
    a, b = TableName("db", "a"), TableName("db", "b")
    resumed = CutReport(True, 3, None, _STREAMS, (), {a: TableCounts(changes=1), b: TableCounts(changes=2)})
    own = CutReport(True, 4, None, _STREAMS, (), {b: TableCounts(changes=5)})
    found = own.after(replace(resumed, selection_changes=("db.c is included",)))
    assert (found.cut_id, found.selection_changes) == (4, ("db.c is included",))
    assert {name: counts.changes for name, counts in found.changed.items()} == {a: 1, b: 5}
