"""Carrying a planned cut out, and publishing it: the same whether this run has planned it or another."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.gaps import in_words
from cdc_pipeline.lake.delta import row_count, table_state
from cdc_pipeline.mirrors.changes.copies import POSITION
from cdc_pipeline.mirrors.changes.held_rows import held_rows
from cdc_pipeline.mirrors.changes.segments import with_segments
from cdc_pipeline.mirrors.cuts.cut_ddl import close_events
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, MirrorEntry, TableCounts, published_entries, with_held_gaps
from cdc_pipeline.mirrors.cuts.cut_streams import CutStreams
from cdc_pipeline.mirrors.cuts.publish import publish
from cdc_pipeline.mirrors.cuts.quarantine import GivingUp, noted_failures, put_aside
from cdc_pipeline.mirrors.cuts.totals import CutTotals
from cdc_pipeline.mirrors.execution.step_runner import Mirrors, StepResult, StepsDone
from cdc_pipeline.mirrors.merge.apply_rows import RowSteps
from cdc_pipeline.mirrors.merge.contested_keys import contested_settled
from cdc_pipeline.mirrors.merge.net_changes import net_changes, row_entries
from cdc_pipeline.mirrors.merge.soft_deletes import live_rows
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.step_commits import CutCommits
from cdc_pipeline.mirrors.model.steps import ApplyRows
from cdc_pipeline.spark.few_rows import for_rows
from cdc_pipeline.spark.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.changes.cut_rows import CutRows
    from cdc_pipeline.mirrors.changes.progress import PublishedCut, StreamProgress
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.mirrors.cuts.planned_cut import PlannedCut
    from cdc_pipeline.mirrors.cuts.stages import Stages
    from cdc_pipeline.mirrors.planning.planner import CutPlan
    from cdc_pipeline.mysql.model.table import TableName


@dataclass(frozen=True)
class CutExecution:
    """Carries out cuts of one pipeline. `report` is told of progress in one line at a time; `giving_up` is when a table that
    fails is put aside."""

    spark: SparkSession
    paths: LakePaths
    run_id: str
    side_by_side: int
    report: Callable[[str], None]
    giving_up: GivingUp

    def carried_out(
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
        """Publishes the cut. `published` is the one before it; `count` is about how many row changes it reads; `resumed`:
        some of the steps may be in already. Raises the error of a step, after all that do not depend on it, unless its table
        is put aside."""
        window = planned.window
        done, counted = self._steps_carried_out(planned, rows.changes, count, stages, resumed=resumed)
        if done.failures:
            planned = self._without_failed(planned, done)
        with for_rows(self.spark, count):
            taken_in, duplicates, held, newest = _counted(planned, rows)
        waits = tuple(replace(table, rows=table.rows + held.get(table.name, 0)) for table in planned.plan.held)
        rejected = sum(result.counts.rejected for result in done.results.values())
        pending, filtered = self._not_taken(planned, published)
        totals = CutTotals(
            changes=taken_in,
            # of tables whose rows are let in anew some were counted before
            applied=min(counted, taken_in - duplicates) - rejected,
            rejected=rejected,
            duplicates=duplicates,
            late=planned.late.changes,
            breaches=planned.late.unseen,
            pending=pending + sum(table.rows for table in waits),
            filtered=filtered + planned.held_left_out,
        )
        report = CutReport(
            True,
            window.cut_id,
            window.resolved_tso,
            streams,
            with_held_gaps(self._entries(planned.plan, published), waits),
            _counts(done.results[index] for index in sorted(done.results)),
            totals,
            planned.late.breaches,
            waits,
            sources=planned.sources,
            selection_changes=planned.selection_changes,
        )
        with for_rows(self.spark, len(planned.rows.events)):
            close_events(self.spark, self.paths, planned.outcomes, self._note(window))
            stages.ended("counts")
            publish(self.spark, self.paths, window, report, self._note(window), planned.settings)
        stages.ended("publish")
        versions = {row["mirror_id"]: row["version"] for row in published.mirrors}
        return replace(report, stages=stages.seconds, versions_before=versions, newest_record=_instant(newest))

    def _not_taken(self, planned: PlannedCut, published: PublishedCut) -> tuple[int, int]:
        """How many row changes are for a later cut, and how many the selection leaves out."""
        seen = CutStreams(
            planned.settings.selection,
            published,
            planned.window,
            self._table("change_log"),
            self._table("ddl_history"),
            lambda name: None,
            planned.settings.time_zone,
        )
        return seen.pending(), seen.filtered()

    def _table(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(self.paths.table(name))

    # ---- steps

    def _steps_carried_out(
        self, planned: PlannedCut, changes: DataFrame, rows: int, stages: Stages, *, resumed: bool
    ) -> tuple[StepsDone, int]:
        """What became of the steps, and how many of the changes are left once each row's are folded to its last."""
        row_sets = {item.step: item for item in planned.row_sets}
        view = f"net_{uuid.uuid4().hex}"
        entries = row_entries(changes, row_sets.values(), exact=planned.window.resolved_tso is not None)
        net = net_changes(entries).persist()
        with for_rows(self.spark, rows):
            counted, contested = net.agg(F.count_if("counts"), F.count_if("contested")).first() or (0, 0)
            if contested:
                unsettled, net = net, contested_settled(entries, net).persist()
                counted = net.where("counts").count()
                unsettled.unpersist()
            found = _fresh_rows(changes, planned) if resumed else None
        stages.ended("net changes")
        net.createOrReplaceGlobalTempView(view)
        steps = RowSteps(self.spark, self.paths, planned.settings.time_zone, view, found, planned.settings.columns.salt)
        note = self._note(planned.window)
        commits = CutCommits(self.paths.pipeline, planned.window.cut_id, note)
        writer = Mirrors(self.spark, self.paths, planned.plan.steps, row_sets, commits, steps, self.side_by_side)
        try:
            done = writer.carried_out(self.report)
            if done.left_out:
                with for_rows(self.spark, rows):
                    counted = net.where("counts").where(~F.col("step").isin(sorted(done.left_out))).count()
            return done, counted
        finally:
            stages.ended("steps")
            self.spark.catalog.dropGlobalTempView(view)
            net.unpersist()

    def _without_failed(self, planned: PlannedCut, done: StepsDone) -> PlannedCut:
        """The plan without the tables that have failed so often that they are put aside. Raises the error of one that has
        not, or where all have failed."""
        names = {failure.step.state.name for failure in done.failures}
        if not done.results and len(names) > 1 and not names <= self.giving_up.at_once:
            self.report(f"no step of cut {planned.window.cut_id} could be carried out: no table is put aside for that")
            raise done.failures[0].error
        times = noted_failures(self.spark, self.paths, planned, done.failures, self.run_id)
        for failure in done.failures:
            name = failure.step.state.name
            kind = type(failure.step).__name__
            self.report(f"{kind} {name} failed ({times[name]} of {self.giving_up.tries} times): {failure.words}")
        once_more = [
            failure
            for failure in done.failures
            if times[failure.step.state.name] < self.giving_up.after(failure.step.state.name)
        ]
        if once_more:
            raise once_more[0].error
        aside = put_aside(planned, done.failures, done.left_out, max(times.values()))
        for table in aside.plan.held:
            if table.error and table not in planned.plan.held:
                self.report(f"{table.name} is put aside: {table.error}")
        return aside

    # ---- results

    def _entries(self, plan: CutPlan, published: PublishedCut) -> tuple[MirrorEntry, ...]:
        """All mirrors after the cut: those that the plan left alone as they were, the others as they are now, and those that
        are put aside as the cut before had them where they cannot be read."""
        touched = sorted({name for step in plan.steps for name in step.names()})
        entries = {entry.name: entry for entry in published_entries(published, self.paths)}
        aside = {table.name for table in plan.held if table.error}

        def looked_at(name: TableName) -> MirrorEntry | None:
            try:
                return self.entry(name)
            except Exception:
                if name not in aside:
                    raise
                return entries.get(name)

        counted = side_by_side(self.spark, looked_at, touched, self.side_by_side)
        found = dict(zip(touched, counted, strict=True))
        entries.update({name: entry for name, entry in found.items() if entry is not None})
        return tuple(entries[name] for name in sorted(entries) if found.get(name, entries[name]) is not None)

    def entry(self, name: TableName) -> MirrorEntry | None:
        """The mirror of that name as it is now."""
        path = self.paths.mirror(name)
        table = table_state(self.spark, path)
        if table is None:
            return None
        state = MirrorState.from_properties(table.properties)
        return MirrorEntry(
            name,
            state.mirror_id,
            path,
            table.version,
            self._rows(path, state),
            len(state.schema.columns),
            in_words(state.gaps),
            state.keeps_deleted,
        )

    def _rows(self, path: str, state: MirrorState) -> int:
        """How many rows upstream has."""
        if not state.keeps_deleted:
            return row_count(self.spark, path)
        return live_rows(self.spark.read.format("delta").load(path), keeps_deleted=True).count()

    def _note(self, window: Window) -> dict[str, object]:
        return {
            "pipeline": self.paths.pipeline,
            "cut": window.cut_id,
            "resolved_tso": window.resolved_tso,
            "run_id": self.run_id,
        }


def _counted(planned: PlannedCut, rows: CutRows) -> tuple[int, int, dict[TableName, int], datetime | None]:
    """How many row changes the cut takes in, and how many of these were delivered before; how many more wait, by table;
    and when the newest was produced."""
    first, events = planned.plan.held_from, planned.rows.events
    found = rows.delivered.where("NOT taken").agg(F.count("*"), F.max("timestamp")).first()
    assert found is not None
    held, duplicates = Counter(held_rows(rows.changes, first)), 0
    if rows.repeated is not None:
        repeated = with_segments(rows.delivered.join(rows.repeated, list(POSITION), "left_semi"), events)
        staying = held_rows(repeated, first)
        duplicates = repeated.where("NOT taken").count() - sum(staying.values())
        held.update(staying)
    return found[0] - sum(held.values()), duplicates, held, found[1]


def _fresh_rows(changes: DataFrame, planned: PlannedCut) -> dict[int, int]:
    """How many row changes there are for each ApplyRows step."""
    rows = changes.where("fresh").groupBy("database", "table", "segment").count().collect()
    counts = {(row["database"], row["table"], row["segment"]): row["count"] for row in rows}
    return {
        item.step: sum(counts.get((item.source.database, item.source.table, segment), 0) for segment in item.segments)
        for item in planned.row_sets
    }


def _instant(local: datetime | None) -> datetime | None:
    """A timestamp as PySpark gives it, in the time zone of this process."""
    return None if local is None else local.astimezone(timezone.utc)


def _counts(results: Iterable[StepResult]) -> dict[TableName, TableCounts]:
    """What happened to each mirror, under the name that it has at the end of the cut."""
    found = list(results)
    final = {result.step.state.mirror_id: result.step.state.name for result in found}
    counts: dict[TableName, TableCounts] = defaultdict(TableCounts)
    for result in found:
        of_table = counts[final[result.step.state.mirror_id]]
        of_table.inserted += result.counts.merged.inserted
        of_table.updated += result.counts.merged.updated
        of_table.deleted += result.counts.merged.deleted
        of_table.changes += result.step.changes if isinstance(result.step, ApplyRows) else 0
        of_table.bad_rows += result.counts.bad_rows
        of_table.zero_dates += result.counts.zero_dates
        of_table.seconds += result.seconds
    return dict(counts)
