"""One consistent cut: all mirrors taken to the same resolved TSO, then published in one row of `consistent_cuts`."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cdc_pipeline.lake.delta_log import require_whole_logs
from cdc_pipeline.lake.folder_moves import finish_moves
from cdc_pipeline.mirrors.changes.cut_rows import CutRows
from cdc_pipeline.mirrors.changes.held_rows import (
    approved_statements,
    released_tables,
)
from cdc_pipeline.mirrors.changes.progress import NO_CUT, PublishedCut, StreamProgress, published_cut, stream_progress
from cdc_pipeline.mirrors.changes.window import Window, next_window, pending_after
from cdc_pipeline.mirrors.cuts.cut_execution import CutExecution
from cdc_pipeline.mirrors.cuts.cut_inputs import CutInputs, StoredMirrors
from cdc_pipeline.mirrors.cuts.cut_planning import CutPlanning
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, MirrorEntry, published_entries, with_held_gaps
from cdc_pipeline.mirrors.cuts.quarantine import GivingUp
from cdc_pipeline.mirrors.cuts.restored_lake import cut_to_go_on_from
from cdc_pipeline.mirrors.cuts.stages import Stages
from cdc_pipeline.mirrors.cuts.stored_plan import begun_cut, write_down
from cdc_pipeline.mirrors.cuts.totals import NO_CHANGES
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES, TableSelection
from cdc_pipeline.spark.few_rows import for_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.cuts.planned_cut import PlannedCut
    from cdc_pipeline.mysql.model.table import TableName


@dataclass(frozen=True)
class CutMaker:
    """Makes cuts of one pipeline. `report` is told of progress in one line at a time; `keys` are the columns that identify
    a row of a table, by `database.table`, for tables whose definition has no key; `policy` is what DDL may do;
    `selection` is which tables are mirrored, under which names (those that `keys` and `policy` speak of); `columns` are
    what mirrors carry beside upstream's columns; `giving_up` is when a table that fails is put aside."""

    spark: SparkSession
    paths: LakePaths
    run_id: str
    time_zone: str
    side_by_side: int
    report: Callable[[str], None]
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    policy: DdlPolicy = field(default_factory=DdlPolicy)
    selection: TableSelection = ALL_TABLES
    columns: ColumnRules = field(default_factory=ColumnRules)
    giving_up: GivingUp = field(default_factory=GivingUp)

    @property
    def settings(self) -> CutSettings:
        return CutSettings(self.time_zone, self.keys, self.policy, self.selection, self.columns)

    def bring_up_to_date(self, up_to: int | None = None) -> CutReport:
        """Finishes a cut that was begun, then takes the mirrors as far as the streams are complete, or to the TSO `up_to`
        where that is less. Raises LakeError where the log of a table that it needs is damaged."""
        started = time.monotonic()
        require_whole_logs(self.paths.own_tables)
        for place in finish_moves(self.spark, self.paths.moves):
            self.report(f"{place} is where it was on its way to when a run died")
        with for_rows(self.spark, 0):
            published = cut_to_go_on_from(self.spark, self.paths)
            streams = stream_progress(self.spark, self.paths, published).limited(up_to)
        report: CutReport | None = None
        if begun := begun_cut(self.spark, self.paths, published, self.columns.salt):
            self.report(f"finishing cut {begun.window.cut_id}, which an earlier run began")
            report = self._finished(begun, published, streams)
            published = published_cut(self.spark, self.paths)
        inputs = self._inputs()
        returning = bool(released_tables(published.held, inputs.approved))
        another = published.cut_id > 0 and published.selection != self.selection
        if window := next_window(published, streams, returning=returning or another):
            report = self._cut(window, published, streams, inputs)
        if report is None:
            entries = with_held_gaps(published_entries(published, self.paths), published.held)
            waiting = pending_after(published, streams, self._table("change_log")) if streams.last_batch else 0
            totals = replace(NO_CHANGES, pending=waiting)
            report = CutReport(
                False,
                published.cut_id,
                published.resolved_tso,
                streams,
                entries,
                totals=totals,
                held=published.held,
                sources=published.sources,
            )
            if waiting:
                self.report(f"{waiting} row changes wait: {streams.what_holds()}")
        return replace(report, seconds=time.monotonic() - started)

    def from_the_beginning(self, resolved_tso: int | None, last_batch: int) -> CutReport:
        """The first cut of an empty lake: all changes up to there, in one."""
        rows = stream_progress(self.spark, self.paths).new_row_changes
        streams = StreamProgress(last_batch, resolved_tso is not None, resolved_tso, None, (), new_row_changes=rows)
        return self._cut(Window(1, None, resolved_tso, 0, last_batch), NO_CUT, streams, self._inputs())

    def _cut(self, window: Window, published: PublishedCut, streams: StreamProgress, inputs: CutInputs) -> CutReport:
        """A cut that nobody has begun."""
        stages, count = Stages(), self._rows_to_look_at(window, published, streams)
        with for_rows(self.spark, count):
            planning = CutPlanning(self.spark, self.paths, self.settings, window, published, inputs, self.report)
            planned, rows = planning.planned()
        try:
            with for_rows(self.spark, 1):
                stands = write_down(self.spark, self.paths, planned, self.run_id)
            if stands is planned:
                stages.ended("plan")
                return self._execution.carried_out(
                    planned, rows, published, streams, stages, count=count, resumed=False
                )
        finally:
            rows.close()
        self.report(f"another run was first to begin cut {window.cut_id}: it is carried out as that one has planned it")
        return self._finished(stands, published, streams)

    def _finished(self, begun: PlannedCut, published: PublishedCut, streams: StreamProgress) -> CutReport:
        """A cut that another run has begun, as that one has planned it."""
        stages, count = Stages(), self._rows_to_look_at(begun.window, published, streams)
        with for_rows(self.spark, count):
            rows = self._rows_of(begun, published)
        stages.ended("plan")
        try:
            return self._execution.carried_out(begun, rows, published, streams, stages, count=count, resumed=True)
        finally:
            rows.close()

    def _rows_of(self, planned: PlannedCut, published: PublishedCut) -> CutRows:
        log = planned.settings.selection.selected(self._table("change_log"))
        return CutRows(planned.window, planned.rows, log, self._table, waited=published.pending > 0)

    # ---- inputs

    @staticmethod
    def _rows_to_look_at(window: Window, published: PublishedCut, streams: StreamProgress) -> int:
        """About how many row changes the cut reads. Without watermarks those of earlier cuts may come along: any number."""
        return sys.maxsize if window.resolved_tso is None else published.pending + streams.new_row_changes

    def _table(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(self.paths.table(name))

    def _inputs(self) -> CutInputs:
        return CutInputs(self._stored, approved_statements(self.spark, self.paths), self.columns)

    @property
    def _stored(self) -> StoredMirrors:
        return StoredMirrors(self.spark, self.paths, self._table("ddl_history"), self.selection)

    # ---- results

    def entry(self, name: TableName) -> MirrorEntry | None:
        """The mirror of that name as it is now."""
        return self._execution.entry(name)

    @property
    def _execution(self) -> CutExecution:
        return CutExecution(self.spark, self.paths, self.run_id, self.side_by_side, self.report, self.giving_up)
