"""Executes a planned cut and publishes it, whichever run has planned it."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timezone

from pyspark.sql import DataFrame

from cdc_pipeline.gaps import gap_texts
from cdc_pipeline.lake.delta import row_count, table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.restored_tables import RestoredTableError, require_not_restored
from cdc_pipeline.lake.small_tables import open_small_table
from cdc_pipeline.mirrors.changes.cut_rows import CutRows
from cdc_pipeline.mirrors.changes.progress import PublishedCut, StreamProgress
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.cuts.cut_ddl import reported_statements, store_outcomes
from cdc_pipeline.mirrors.cuts.cut_report import (
    CutReport,
    MirrorEntry,
    TableCounts,
    publish,
    published_entries,
    with_held_gaps,
)
from cdc_pipeline.mirrors.cuts.quarantine import (
    ProcessEndedError,
    QuarantinePolicy,
    record_ended_steps,
    record_failures,
    steps_to_give_up,
    times_failed,
    without_failed_tables,
)
from cdc_pipeline.mirrors.cuts.stored_plan import PlannedCut
from cdc_pipeline.mirrors.cuts.totals import CutTotals
from cdc_pipeline.mirrors.execution.cascades import Cascades
from cdc_pipeline.mirrors.execution.step_runner import StepResult, StepResults, StepRunner
from cdc_pipeline.mirrors.merge.apply_rows import RowMerger
from cdc_pipeline.mirrors.merge.net_changes import reduce_changes
from cdc_pipeline.mirrors.merge.soft_deletes import live_rows
from cdc_pipeline.mirrors.model.state import DELETED, MirrorState
from cdc_pipeline.mirrors.model.step_commits import CutCommits
from cdc_pipeline.mirrors.model.steps import ApplyRows, DropMirror
from cdc_pipeline.mirrors.settings.ddl_policy import quarantined_tables
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.small_frames import small_query
from cdc_pipeline.spark.threads import map_in_threads


class Stages:
    """Seconds by stage, in the order in which the stages end. A stage begins when the one before it ends."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.monotonic()

    def end(self, stage: str) -> None:
        now = time.monotonic()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now


@dataclass(frozen=True)
class CutExecution:
    """Executes one cut."""

    lake: Lake
    run_id: str
    threads: int
    """How many tables are written at once."""
    report: Callable[[str], None]
    """Receives one progress line per call."""
    quarantine_policy: QuarantinePolicy
    published: PublishedCut
    """The cut before this one."""
    streams: StreamProgress
    stages: Stages = field(default_factory=Stages)

    @property
    def expected_rows(self) -> int:
        """About how many row changes the cut reads."""
        return self.published.pending + self.streams.new_row_changes

    def run(self, planned: PlannedCut, rows: CutRows, *, resumed: bool) -> CutReport:
        """Runs the steps, counts the row changes and publishes the cut.

        `resumed`: some steps may be committed already. If a step fails, all steps of tables that share no name with it run;
        then its error is raised, unless its table is quarantined.
        """
        self.stages.end("plan")
        window, events = planned.window, planned.row_selection.events
        note: dict[str, object] = {
            "pipeline": self.lake.paths.pipeline,
            "cut": window.cut_id,
            "resolved_tso": window.resolved_tso,
            "run_id": self.run_id,
        }
        commits = CutCommits(self.lake.paths.pipeline, window.cut_id, note)
        done, net_rows = self._run_steps(planned, rows, commits, resumed=resumed)
        if done.failures:
            planned = self._quarantine_failed(planned, done)
        zone, broken = planned.settings.time_zone, quarantined_tables(planned.plan.held)
        cascades = Cascades(self.lake, planned.plan.steps, rows.changes, zone, self.published, commits, broken)
        with small_query(self.lake.spark, self.expected_rows):
            marked = cascades.add_gaps()
            newly_held = _newly_held_rows(planned, rows.changes)
            totals = self._totals(planned, rows, done, net_rows, newly_held.total())
        held = tuple(
            replace(table, rows=table.rows + newly_held[planned.settings.selection.key(table.name)])
            for table in planned.plan.held
        )
        _, newest = rows.count()
        report = CutReport(
            True,
            window.cut_id,
            window.resolved_tso,
            self.streams,
            with_held_gaps(self._entries(planned, marked), held),
            _counts_by_mirror(done.results[index] for index in sorted(done.results)),
            totals,
            planned.late.breaches,
            held,
            stages=self.stages.seconds,
            versions_before={row["mirror_id"]: row["version"] for row in self.published.mirrors},
            # PySpark converts timestamps to this process's time zone
            newest_record=None if newest is None else newest.astimezone(timezone.utc),
            selection_changes=planned.selection_changes,
            statements=reported_statements(events, planned.outcomes),
        )
        with small_query(self.lake.spark, len(events)):
            store_outcomes(self.lake, planned.outcomes, note)
            self.stages.end("counts")
            publish(self.lake, window, report, note, planned.settings)
        self.stages.end("publish")
        return report

    def _totals(
        self, planned: PlannedCut, rows: CutRows, done: StepResults, net_rows: int, newly_held: int
    ) -> CutTotals:
        rejected = sum(result.counts.rejected for result in done.results.values())
        waited = sum(table.rows for table in planned.plan.held)
        return CutTotals(
            changes=rows.count()[0] - newly_held,
            applied=net_rows - rejected,
            rejected=rejected,
            duplicates=rows.count_copies(),
            late=planned.late.changes,
            breaches=sum(breach.changes for breach in planned.late.breaches),
            pending=self._count_pending(planned.window) + waited + newly_held,
            # a table of the cut before waits no longer if it is no longer included
            filtered=self._count_filtered(planned) + self.published.held_rows - waited,
        )

    def _count_pending(self, window: Window) -> int:
        tso, span = window.resolved_tso, self.streams.new_span
        nothing_newer = tso is not None and (span is None or span[1] < tso)
        return 0 if nothing_newer and not self.published.pending else window.read_pending(self.lake).count()

    def _count_filtered(self, planned: PlannedCut) -> int:
        """The number of row changes of excluded tables, late ones included, without those that were held."""
        selection, window = planned.settings.selection, planned.window
        if selection.includes_all:
            return 0
        late = window.late_rows(self.lake.read("change_log"))
        return sum(selection.excluded(rows).count() for rows in (window.read_changes(self.lake), late))

    # ---- steps

    def _run_steps(
        self, planned: PlannedCut, rows: CutRows, commits: CutCommits, *, resumed: bool
    ) -> tuple[StepResults, int]:
        """The results of the steps, and the number of net changes that they applied."""
        row_sets, settings = {item.step: item for item in planned.row_sets}, planned.settings
        with small_query(self.lake.spark, self.expected_rows):
            net = reduce_changes(rows, row_sets, planned.plan.steps, self.lake.paths, settings)
            found = _rows_by_step(rows.changes, planned) if resumed else None
        self.stages.end("net changes")
        steps = RowMerger(self.lake, settings.time_zone, net, found, settings.columns.salt)
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
            lost = {index for failure in done.failures for index in failure.chain}
            done.results = {index: result for index, result in done.results.items() if index not in lost}
            return done, net.count(without=lost)
        finally:
            self.stages.end("steps")
            net.close()

    def _restored(self, planned: PlannedCut) -> dict[int, Exception]:
        """The steps on mirrors that were restored (RESTORE) after the cut was begun: their commits do not show how far they
        are. `CutPlanner` looks at the mirrors of a new cut."""
        found: dict[int, Exception] = {}
        for index, step in enumerate(planned.plan.steps):
            try:
                require_not_restored(self.lake, *(mirror.folder(self.lake.paths) for mirror in step.mirrors()))
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

    def _entries(self, planned: PlannedCut, marked: Iterable[MirrorState]) -> tuple[MirrorEntry, ...]:
        """All mirrors after the cut. Those without a step that are not `marked`, and quarantined ones, keep their entries of
        the cut before."""
        plan, key = planned.plan, planned.settings.selection.key
        quarantined = set(map(key, quarantined_tables(plan.held)))
        # the last step of a mirror has its newest state; an exchange with another mirror is no step of that one
        last = {mirror.mirror_id: (mirror, step) for step in plan.steps for mirror in step.mirrors()}
        touched = {mirror_id: pair for mirror_id, pair in last.items() if key(pair[0].name) not in quarantined}
        present = [mirror for mirror, step in touched.values() if not isinstance(step, DropMirror)]
        present += (mirror for mirror in marked if key(mirror.name) not in quarantined)

        places = [(mirror.name, mirror.folder(self.lake.paths)) for mirror in present]
        found = map_in_threads(self.lake.spark, lambda place: mirror_entry(self.lake, *place), places, self.threads)
        entries = {entry.name: entry for entry in published_entries(self.published, self.lake.paths)}
        entries = {name: entry for name, entry in entries.items() if entry.mirror_id not in touched}
        entries.update({entry.name: entry for entry in found if entry is not None})
        return tuple(entries[name] for name in sorted(entries))


def mirror_entry(lake: Lake, name: TableName, path: str) -> MirrorEntry | None:
    """The mirror at `path` as it is now; None if there is none."""
    small = open_small_table(path)
    table = table_state(lake.spark, path) if small is None else small.state
    if table is None:
        return None
    state = MirrorState.from_properties(table.properties)
    if small is not None:
        rows = small.count_rows(DELETED if state.has_soft_delete else None)
    elif state.has_soft_delete:
        rows = live_rows(lake.read_path(path), keeps_deleted=True).count()
    else:
        rows = row_count(lake.spark, path)
    columns, gaps = len(state.schema.columns), gap_texts(state.gaps)
    return MirrorEntry(name, state.mirror_id, path, table.version, rows, columns, gaps, state.has_soft_delete)


def _newly_held_rows(planned: PlannedCut, changes: DataFrame) -> Counter[TableName]:
    """Key → how many row changes of the cut wait with their held table."""
    held, first = Counter[TableName](), planned.plan.held_from
    if first:
        for (name, segment), count in _rows_by_segment(changes).items():
            if name in first and segment >= first[name]:
                held[name] += count
    return held


def _rows_by_segment(changes: DataFrame) -> dict[tuple[TableName, int], int]:
    """(table, segment) → the number of its row changes."""
    rows = changes.groupBy("database", "table", "segment").count().collect()
    return {(TableName(row["database"], row["table"]), row["segment"]): row["count"] for row in rows}


def _rows_by_step(changes: DataFrame, planned: PlannedCut) -> dict[int, int]:
    """The number of row changes of each ApplyRows step."""
    counts = _rows_by_segment(changes)
    return {
        item.step: sum(counts.get((item.source, segment), 0) for segment in item.segments) for item in planned.row_sets
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
