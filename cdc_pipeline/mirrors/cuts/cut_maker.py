"""Makes consistent cuts: advances all mirrors to one resolved TSO, then publishes them in a row of `consistent_cuts`."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cdc_pipeline.lake.delta_log import require_intact_logs
from cdc_pipeline.lake.folder_moves import finish_moves
from cdc_pipeline.mirrors.changes.cut_rows import CutRows
from cdc_pipeline.mirrors.changes.held_rows import (
    approved_statements,
    resumed_tables,
)
from cdc_pipeline.mirrors.changes.progress import (
    NO_CUT,
    PublishedCut,
    StreamProgress,
    published_cut,
    read_progress,
    require_published,
)
from cdc_pipeline.mirrors.changes.window import Window, next_window, pending_changes
from cdc_pipeline.mirrors.cuts.cut_execution import CutExecution
from cdc_pipeline.mirrors.cuts.cut_inputs import CutInputs, StoredMirrors
from cdc_pipeline.mirrors.cuts.cut_planning import CutPlanner
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, MirrorEntry, published_entries, with_held_gaps
from cdc_pipeline.mirrors.cuts.quarantine import QuarantinePolicy
from cdc_pipeline.mirrors.cuts.stages import Stages
from cdc_pipeline.mirrors.cuts.stored_plan import load_begun_cut, store_plan
from cdc_pipeline.mirrors.cuts.totals import NO_CHANGES
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES, TableSelection
from cdc_pipeline.spark.few_rows import small_query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.cuts.planned_cut import PlannedCut
    from cdc_pipeline.mysql.model.table import TableName
    from cdc_pipeline.positions import Position


@dataclass(frozen=True)
class CutMaker:
    """Makes cuts of one pipeline."""

    lake: Lake
    run_id: str
    time_zone: str
    threads: int
    """How many tables are written at once."""
    report: Callable[[str], None]
    """Receives one progress line per call."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Key columns of tables whose definition has no key, by the mirror's `database.table`."""
    policy: DdlPolicy = field(default_factory=DdlPolicy)
    selection: TableSelection = ALL_TABLES
    """Which tables have mirrors, and under which names."""
    columns: ColumnRules = field(default_factory=ColumnRules)
    quarantine_policy: QuarantinePolicy = field(default_factory=QuarantinePolicy)
    applied_before: frozenset[Position] = frozenset()
    """For a replay: statements that the lake has applied. They are approved."""

    @property
    def settings(self) -> CutSettings:
        return CutSettings(self.time_zone, self.keys, self.policy, self.selection, self.columns)

    def advance(self, up_to: int | None = None) -> CutReport:
        """Finishes a begun cut, then advances all mirrors to the newest resolved TSO, or to `up_to` if that is lower.

        Raises LakeError if the log of a table is damaged, if the newest cut or one of its mirrors was removed, or if a
        mirror that the cut changes was restored (RESTORE).
        """
        started = time.monotonic()
        require_intact_logs(self.lake.paths.own_tables)
        for path in finish_moves(self.lake.spark, self.lake.paths.moves):
            self.report(f"finished the move of a folder to {path}, at which a run died")
        with small_query(self.lake.spark, 0):
            published = published_cut(self.lake)
            streams = read_progress(self.lake, published).limited_to(up_to)
        report: CutReport | None = None
        if begun := load_begun_cut(self.lake, published, self.columns.salt):
            self.report(f"finishing cut {begun.window.cut_id}, which an earlier run began")
            report = self._resume(begun, published, streams)
            published = published_cut(self.lake)
        # with `up_to` the mirrors are clones, whose versions start at 0
        require_published(self.lake, published, mirrors=up_to is None)
        inputs = self._inputs(published)
        resumes = bool(resumed_tables(published.held, inputs.approved))
        selection_changed = published.cut_id > 0 and published.selection != self.selection
        if window := next_window(published, streams, resumes=resumes or selection_changed):
            made = self._make_cut(window, published, streams, inputs)
            report = made if report is None else made.after(report)
        if report is None:
            report = self._unchanged(published, streams)
        return replace(report, seconds=time.monotonic() - started)

    def replay_all(self, resolved_tso: int | None, last_batch: int) -> CutReport:
        """Makes the first cut of an empty lake, with all changes up to that TSO and batch."""
        rows = read_progress(self.lake).new_row_changes
        streams = StreamProgress(last_batch, resolved_tso is not None, resolved_tso, None, (), new_row_changes=rows)
        return self._make_cut(Window(1, None, resolved_tso, 0, last_batch), NO_CUT, streams, self._inputs(NO_CUT))

    def _make_cut(
        self, window: Window, published: PublishedCut, streams: StreamProgress, inputs: CutInputs
    ) -> CutReport:
        stages, count = Stages(), self._rows_to_read(window, published, streams)
        with small_query(self.lake.spark, count):
            planner = CutPlanner(self.lake, self.settings, window, published, inputs, self.report)
            planned, rows = planner.plan()
        try:
            with small_query(self.lake.spark, 1):
                stored = store_plan(self.lake, planned, self.run_id)
            if stored is planned:
                stages.end("plan")
                return self._execution.run(planned, rows, published, streams, stages, count=count, resumed=False)
        finally:
            rows.close()
        self.report(f"another run began cut {window.cut_id} first: executing that run's plan")
        return self._resume(stored, published, streams)

    def _resume(self, begun: PlannedCut, published: PublishedCut, streams: StreamProgress) -> CutReport:
        """Executes the plan of a cut that another run has begun."""
        stages, count = Stages(), self._rows_to_read(begun.window, published, streams)
        with small_query(self.lake.spark, count):
            rows = self._rows_of(begun, published)
        stages.end("plan")
        try:
            return self._execution.run(begun, rows, published, streams, stages, count=count, resumed=True)
        finally:
            rows.close()

    def _unchanged(self, published: PublishedCut, streams: StreamProgress) -> CutReport:
        """The report of a run that publishes nothing."""
        pending = pending_changes(published, streams, self.lake) if streams.last_batch else 0
        if pending:
            self.report(f"{pending} row changes are pending: {streams.blocking_reason()}")
        return CutReport(
            False,
            published.cut_id,
            published.resolved_tso,
            streams,
            with_held_gaps(published_entries(published, self.lake.paths), published.held),
            totals=replace(NO_CHANGES, pending=pending),
            held=published.held,
        )

    def _rows_of(self, planned: PlannedCut, published: PublishedCut) -> CutRows:
        selection, window = planned.settings.selection, planned.window
        log, inside = (selection.selected(rows) for rows in (self._table("change_log"), window.read_changes(self.lake)))
        return CutRows(window, planned.row_selection, log, inside, self._table, had_pending=published.pending > 0)

    # ---- inputs

    @staticmethod
    def _rows_to_read(window: Window, published: PublishedCut, streams: StreamProgress) -> int:
        """About how many row changes the cut reads. Unknown without watermarks: it may read earlier changes again."""
        return sys.maxsize if window.resolved_tso is None else published.pending + streams.new_row_changes

    def _table(self, name: str) -> DataFrame:
        return self.lake.read(name)

    def _inputs(self, published: PublishedCut) -> CutInputs:
        names = self.selection.by_key(published.names)
        stored = StoredMirrors(self.lake, self._table("ddl_history"), self.selection, names)
        return CutInputs(stored, approved_statements(self.lake) | self.applied_before)

    # ---- results

    def mirror_entry(self, name: TableName) -> MirrorEntry | None:
        """The mirror as it is now; None if there is none of that name."""
        return self._execution.mirror_entry(name)

    @property
    def _execution(self) -> CutExecution:
        return CutExecution(self.lake, self.run_id, self.threads, self.report, self.quarantine_policy)
