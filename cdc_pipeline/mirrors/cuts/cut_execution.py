"""Executes a planned cut and publishes it, whichever run has planned it."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.gaps import gap_texts
from cdc_pipeline.lake.delta import row_count, table_state
from cdc_pipeline.lake.restored_tables import RestoredTableError, require_not_restored
from cdc_pipeline.lake.tables.batches import read_change_span
from cdc_pipeline.mirrors.changes.deliveries import ROW_POSITION
from cdc_pipeline.mirrors.changes.held_rows import count_held_rows
from cdc_pipeline.mirrors.changes.segments import with_segments
from cdc_pipeline.mirrors.cuts.cut_ddl import reported_statements, store_outcomes
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, MirrorEntry, TableCounts, published_entries, with_held_gaps
from cdc_pipeline.mirrors.cuts.publish import publish
from cdc_pipeline.mirrors.cuts.quarantine import (
    ProcessEndedError,
    QuarantinePolicy,
    record_ended_steps,
    record_failures,
    steps_to_give_up,
    times_failed,
    without_failed_tables,
)
from cdc_pipeline.mirrors.cuts.totals import CutTotals
from cdc_pipeline.mirrors.execution.step_runner import StepResult, StepResults, StepRunner
from cdc_pipeline.mirrors.merge.apply_rows import RowMerger
from cdc_pipeline.mirrors.merge.net_changes import net_changes, resolve_contested
from cdc_pipeline.mirrors.merge.row_entries import row_entries
from cdc_pipeline.mirrors.merge.soft_deletes import live_rows
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.step_commits import CutCommits
from cdc_pipeline.mirrors.model.steps import ApplyRows
from cdc_pipeline.mirrors.settings.ddl_policy import quarantined_tables
from cdc_pipeline.spark.small_frames import small_query
from cdc_pipeline.spark.threads import map_in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.changes.cut_rows import CutRows
    from cdc_pipeline.mirrors.changes.progress import PublishedCut, StreamProgress
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.mirrors.cuts.planned_cut import PlannedCut
    from cdc_pipeline.mirrors.cuts.stages import Stages
    from cdc_pipeline.mysql.model.table import TableName


@dataclass(frozen=True)
class CutExecution:
    """Executes cuts of one pipeline."""

    lake: Lake
    run_id: str
    threads: int
    """How many tables are written at once."""
    report: Callable[[str], None]
    """Receives one progress line per call."""
    quarantine_policy: QuarantinePolicy

    def run(
        self,
        planned: PlannedCut,
        rows: CutRows,
        published: PublishedCut,
        streams: StreamProgress,
        stages: Stages,
        *,
        count: int,
        resumed: bool,
    ) -> CutReport:
        """Runs the steps, counts the row changes and publishes the cut.

        `published`: the cut before this one. `count`: about how many row changes the cut reads. `resumed`: some steps may
        be committed already. If a step fails, all steps of tables that share no name with it run; then its error is raised,
        unless its table is quarantined.
        """
        window = planned.window
        done, net_rows = self._run_steps(planned, rows.changes, count, stages, resumed=resumed)
        if done.failures:
            planned = self._quarantine_failed(planned, done)
        with small_query(self.lake.spark, count):
            read = _count_changes(planned, rows)
        held = tuple(
            replace(table, rows=table.rows + read.held.get(planned.settings.selection.key(table.name), 0))
            for table in planned.plan.held
        )
        # a table of the cut before waits no longer if it is no longer included
        excluded = published.held_rows - sum(table.rows for table in planned.plan.held)
        rejected = sum(result.counts.rejected for result in done.results.values())
        pending = self._count_pending(window, published)
        filtered = self._count_filtered(planned)
        totals = CutTotals(
            changes=read.taken_in,
            applied=net_rows - rejected,
            rejected=rejected,
            duplicates=read.duplicates,
            late=planned.late.changes,
            breaches=planned.late.new_changes,
            pending=pending + sum(table.rows for table in held),
            filtered=filtered + excluded,
        )
        report = CutReport(
            True,
            window.cut_id,
            window.resolved_tso,
            streams,
            with_held_gaps(self._entries(planned, published), held),
            _counts_by_mirror(done.results[index] for index in sorted(done.results)),
            totals,
            planned.late.breaches,
            held,
            selection_changes=planned.selection_changes,
            statements=reported_statements(planned.row_selection.events, planned.outcomes),
        )
        with small_query(self.lake.spark, len(planned.row_selection.events)):
            store_outcomes(self.lake, planned.outcomes, self._note(window))
            stages.end("counts")
            publish(self.lake, window, report, self._note(window), planned.settings)
        stages.end("publish")
        versions = {row["mirror_id"]: row["version"] for row in published.mirrors}
        return replace(report, stages=stages.seconds, versions_before=versions, newest_record=read.newest)

    def _count_pending(self, window: Window, published: PublishedCut) -> int:
        tso, span = window.resolved_tso, read_change_span(self.lake, window.after_batch, window.last_batch)
        nothing_newer = tso is not None and (span is None or span.newest < tso)
        return 0 if nothing_newer and not published.pending else window.read_pending(self.lake).count()

    def _count_filtered(self, planned: PlannedCut) -> int:
        """The number of row changes of excluded tables, late ones included, without those that were held."""
        selection, window = planned.settings.selection, planned.window
        if selection.includes_all:
            return 0
        inside, log = (
            selection.excluded(rows) for rows in (window.read_changes(self.lake), self.lake.read("change_log"))
        )
        return inside.count() + window.late_rows(log).count()

    # ---- steps

    def _run_steps(
        self, planned: PlannedCut, changes: DataFrame, rows: int, stages: Stages, *, resumed: bool
    ) -> tuple[StepResults, int]:
        """The results of the steps, and the number of net changes that they applied."""
        row_sets = {item.step: item for item in planned.row_sets}
        view = f"net_{uuid.uuid4().hex}"
        entries = row_entries(changes, row_sets.values())
        with small_query(self.lake.spark, rows):
            net = net_changes(entries).persist()  # plans the query
            net_rows, contested = net.agg(F.count_if("counts"), F.count_if("contested")).first() or (0, 0)
            if contested:
                unresolved, net = net, resolve_contested(entries, net).persist()
                net_rows = net.where("counts").count()
                unresolved.unpersist()
            found = _rows_by_step(changes, planned) if resumed else None
        stages.end("net changes")
        net.createOrReplaceGlobalTempView(view)
        steps = RowMerger(self.lake, planned.settings.time_zone, view, found, planned.settings.columns.salt)
        note = self._note(planned.window)
        commits = CutCommits(self.lake.paths.pipeline, planned.window.cut_id, note)
        ended = record_ended_steps(self.lake, planned, self.run_id) if resumed else []
        for failure in ended:
            self.report(
                f"an earlier run ended in {type(failure.step).__name__} {failure.step.state.name}: {failure.error}"
            )
        given_up = {**steps_to_give_up(self.lake, planned), **self._restored(planned)} if resumed else {}
        # a mark takes long in a remote folder, so a first run has none there
        marks = f"{self.lake.paths.running}/{planned.plan_id}" if resumed or self.lake.paths.is_local else None
        threads = 1 if ended else self.threads  # so that the next end shows which of several steps caused it
        runner = StepRunner(self.lake, planned.plan.steps, row_sets, commits, steps, threads, marks, given_up)
        try:
            done = runner.run(self.report)
            if done.failures:
                lost = {index for failure in done.failures for index in failure.chain}
                with small_query(self.lake.spark, rows):
                    net_rows = net.where("counts").where(~F.col("step").isin(sorted(lost))).count()
                done.results = {index: result for index, result in done.results.items() if index not in lost}
            return done, net_rows
        finally:
            stages.end("steps")
            self.lake.spark.catalog.dropGlobalTempView(view)
            net.unpersist()

    def _restored(self, planned: PlannedCut) -> dict[int, Exception]:
        """The steps on mirrors that were restored (RESTORE) after the cut was begun: their commits do not show how far they
        are. `CutInputs` looks at the mirrors of a new cut."""
        found: dict[int, Exception] = {}
        for index, step in enumerate(planned.plan.steps):
            try:
                require_not_restored(self.lake, *map(self.lake.paths.mirror, step.names()))
            except RestoredTableError as error:
                found[index] = error
        return found

    def _quarantine_failed(self, planned: PlannedCut, done: StepResults) -> PlannedCut:
        """Records the failures. Returns the plan without the failed tables if all have reached their limit, else fails the
        run. If every table failed, the cause is no table: fails the run."""
        # ends of a process are recorded already
        new = [failure for failure in done.failures if not isinstance(failure.error, ProcessEndedError)]
        key = planned.settings.selection.key
        names = {key(failure.step.state.name) for failure in new}
        if not done.results and len(names) > 1 and not names <= self.quarantine_policy.at_once:
            self.report(f"all steps of cut {planned.window.cut_id} failed: no table is quarantined for that")
            raise new[0].error
        record_failures(self.lake, planned, new, self.run_id)
        times = times_failed(self.lake, planned, done.failures)
        for failure in done.failures:
            name = failure.step.state.name
            kind = type(failure.step).__name__
            limit = self.quarantine_policy.most_failures
            self.report(f"{kind} {name} failed ({times[name]} of {limit} times): {failure.message}")
        below_limit = [
            failure
            for failure in done.failures
            if times[failure.step.state.name] < self.quarantine_policy.limit(key(failure.step.state.name))
        ]
        if below_limit:
            raise below_limit[0].error
        remaining = without_failed_tables(planned, done.failures, max(times.values()))
        for table in remaining.plan.held:
            if table.error and table not in planned.plan.held:
                self.report(f"{table.name} is quarantined: {table.error}")
        return remaining

    # ---- results

    def _entries(self, planned: PlannedCut, published: PublishedCut) -> tuple[MirrorEntry, ...]:
        """All mirrors after the cut. Mirrors without a step and quarantined ones keep their entries of the cut before."""
        plan, key = planned.plan, planned.settings.selection.key
        touched = sorted({name for step in plan.steps for name in step.names()})
        entries = {entry.name: entry for entry in published_entries(published, self.lake.paths)}
        quarantined = set(map(key, quarantined_tables(plan.held)))

        def current_entry(name: TableName) -> MirrorEntry | None:
            return entries.get(name) if key(name) in quarantined else self.mirror_entry(name)

        current = dict(zip(touched, map_in_threads(self.lake.spark, current_entry, touched, self.threads), strict=True))
        entries.update({name: entry for name, entry in current.items() if entry is not None})
        return tuple(entries[name] for name in sorted(entries) if current.get(name, entries[name]) is not None)

    def mirror_entry(self, name: TableName) -> MirrorEntry | None:
        """The mirror as it is now; None if there is none of that name."""
        path = self.lake.paths.mirror(name)
        table = table_state(self.lake.spark, path)
        if table is None:
            return None
        state = MirrorState.from_properties(table.properties)
        return MirrorEntry(
            name,
            state.mirror_id,
            path,
            table.version,
            self._upstream_rows(path, state),
            len(state.schema.columns),
            gap_texts(state.gaps),
            state.has_soft_delete,
        )

    def _upstream_rows(self, path: str, state: MirrorState) -> int:
        """The number of rows that upstream has, without deleted rows that the mirror keeps."""
        if not state.has_soft_delete:
            return row_count(self.lake.spark, path)
        return live_rows(self.lake.read_path(path), keeps_deleted=True).count()

    def _note(self, window: Window) -> dict[str, object]:
        return {
            "pipeline": self.lake.paths.pipeline,
            "cut": window.cut_id,
            "resolved_tso": window.resolved_tso,
            "run_id": self.run_id,
        }


@dataclass(frozen=True)
class _ChangeCounts:
    """What a cut read from the change log."""

    taken_in: int
    duplicates: int
    """Changes among `taken_in` that were delivered before."""
    held: dict[TableName, int]
    """Further changes, of held tables."""
    newest: datetime | None
    """Kafka's timestamp of the newest record."""


def _count_changes(planned: PlannedCut, rows: CutRows) -> _ChangeCounts:
    first, events = planned.plan.held_from, planned.row_selection.events
    read = rows.delivered.agg(F.count("*"), F.max("timestamp")).first()
    assert read is not None
    held, duplicates = Counter(count_held_rows(rows.changes, first)), 0
    if rows.copies is not None:
        repeated = with_segments(rows.delivered.join(rows.copies, list(ROW_POSITION), "left_semi"), events)
        held_repeated = count_held_rows(repeated, first)
        duplicates = repeated.count() - sum(held_repeated.values())
        held.update(held_repeated)
    # PySpark converts timestamps to this process's time zone
    newest = None if read[1] is None else read[1].astimezone(timezone.utc)
    return _ChangeCounts(read[0] - sum(held.values()), duplicates, held, newest)


def _rows_by_step(changes: DataFrame, planned: PlannedCut) -> dict[int, int]:
    """The number of row changes of each ApplyRows step."""
    rows = changes.groupBy("database", "table", "segment").count().collect()
    counts = {(row["database"], row["table"], row["segment"]): row["count"] for row in rows}
    return {
        item.step: sum(counts.get((item.source.database, item.source.table, segment), 0) for segment in item.segments)
        for item in planned.row_sets
    }


def _counts_by_mirror(results: Iterable[StepResult]) -> dict[TableName, TableCounts]:
    """What the cut did to each mirror, under its name at the end of the cut."""
    results = list(results)
    final_names = {result.step.state.mirror_id: result.step.state.name for result in results}
    counts: dict[TableName, TableCounts] = defaultdict(TableCounts)
    for result in results:
        table = counts[final_names[result.step.state.mirror_id]]
        table.inserted += result.counts.merged.inserted
        table.updated += result.counts.merged.updated
        table.deleted += result.counts.merged.deleted
        table.changes += result.step.changes if isinstance(result.step, ApplyRows) else 0
        table.bad_rows += result.counts.bad_rows
        table.zero_dates += result.counts.zero_dates
        table.seconds += result.seconds
    return dict(counts)
