"""Makes consistent cuts: advances all mirrors to one resolved TSO, then publishes them in a row of `consistent_cuts`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from cdc_pipeline.lake.delta_log import require_intact_logs
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.cut_rows import CutRows
from cdc_pipeline.mirrors.changes.progress import (
    PublishedCut,
    StreamProgress,
    next_window,
    pending_changes,
    published_cut,
    read_progress,
    require_published,
    require_tsos_as_before,
    window_between,
    with_ends,
)
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.cuts.cut_execution import CutExecution
from cdc_pipeline.mirrors.cuts.cut_planning import CutPlanner
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, published_entries, with_held_gaps
from cdc_pipeline.mirrors.cuts.quarantine import QuarantinePolicy
from cdc_pipeline.mirrors.cuts.stored_plan import PlannedCut, load_begun_cut, store_plan
from cdc_pipeline.mirrors.cuts.totals import NO_CHANGES
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES, TableSelection
from cdc_pipeline.positions import Position
from cdc_pipeline.spark.small_frames import small_query


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
    unread: Callable[[], Collection[str] | None] = tuple
    """Returns the topics with new records in the source (None: unknown). Called only without watermarks."""
    permitted: frozenset[Position] = frozenset()
    """For a replay: statements that `policy` does not hold."""

    @property
    def settings(self) -> CutSettings:
        return CutSettings(self.time_zone, self.keys, self.policy, self.selection, self.columns)

    def advance(self) -> CutReport:
        """Finishes a begun cut, then advances all mirrors to the newest resolved TSO.

        Raises LakeError if the log of a table is damaged, if the newest cut or one of its mirrors was removed, or if a
        mirror that the cut changes was restored (RESTORE).
        """
        started = time.monotonic()
        published = published_cut(self.lake)
        if report := self.finish_begun_cut(published):
            published = published_cut(self.lake)
        with small_query(self.lake.spark, 0):
            streams = with_ends(self.lake, read_progress(self.lake, published), published, self.unread)
        require_published(self.lake, published)
        require_tsos_as_before(self.lake, published, streams)
        selection_changed = published.cut_id > 0 and published.selection != self.selection
        if window := next_window(published, streams, always=selection_changed):
            made = self._make_cut(window, published, streams)
            report = made if report is None else made.after(report)
        if report is None:
            report = self._unchanged(published, streams)
        return replace(report, seconds=time.monotonic() - started)

    def finish_begun_cut(self, published: PublishedCut) -> CutReport | None:
        """Finishes the cut that an earlier run has begun after `published`; None if there is none. Raises as `advance`."""
        require_intact_logs(self.lake.paths.own_tables)
        begun = load_begun_cut(self.lake, published, self.columns.salt)
        if begun is None:
            return None
        self.report(f"finishing cut {begun.window.cut_id}, which an earlier run began")
        return self._resume(begun, published, read_progress(self.lake, published))

    def replay_all(self, published: PublishedCut) -> CutReport:
        """Makes the next cut of the lake, or the first one of an empty lake, with all that the cut `published` of another
        lake has."""
        streams, tso, last = read_progress(self.lake), published.resolved_tso, published.last_batch
        streams = replace(streams, last_batch=last, has_tsos=tso is not None, resolved_tso=tso, held_by=None)
        start = published_cut(self.lake)
        # something may have arrived late since
        streams = replace(streams, oldest=dict.fromkeys(start.ends, 0))
        window = replace(window_between(start, published), cut_id=start.cut_id + 1)
        return self._make_cut(window, start, streams)

    def _make_cut(self, window: Window, published: PublishedCut, streams: StreamProgress) -> CutReport:
        self.lake.start_session()
        execution = self._execution(published, streams)
        with small_query(self.lake.spark, execution.expected_rows):
            planner = CutPlanner(self.lake, self.settings, window, published, streams, self.permitted, self.report)
            planned, rows = planner.plan()
        with contextlib.closing(rows):
            with small_query(self.lake.spark, 1):
                stored = store_plan(self.lake, planned, self.run_id)
            if stored is planned:
                return execution.run(planned, rows, resumed=False)
        self.report(f"another run began cut {window.cut_id} first: executing that run's plan")
        return self._resume(stored, published, streams)

    def _resume(self, begun: PlannedCut, published: PublishedCut, streams: StreamProgress) -> CutReport:
        """Executes the plan of a cut that another run has begun."""
        self.lake.start_session()
        execution = self._execution(published, streams)
        with small_query(self.lake.spark, execution.expected_rows):
            rows = CutRows(self.lake, begun.window, begun.settings.selection, begun.row_selection)
        with contextlib.closing(rows):
            return execution.run(begun, rows, resumed=True)

    def _execution(self, published: PublishedCut, streams: StreamProgress) -> CutExecution:
        return CutExecution(
            self.lake, self.run_id, self.threads, self.report, self.quarantine_policy, published, streams
        )

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
