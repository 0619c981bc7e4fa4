"""Plans a cut from its window, the streams and the mirrors."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from cdc_pipeline.dialects.claims import read_claims
from cdc_pipeline.dialects.message_types import read_message_types
from cdc_pipeline.dialects.releases import read_raw_batches
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.paths import first_line
from cdc_pipeline.lake.tables.batches import read_change_span
from cdc_pipeline.lake.tables.ddl_history import may_have_statements
from cdc_pipeline.mirrors.changes.cut_rows import CutRows, RowSelection
from cdc_pipeline.mirrors.changes.dead_letters import dead_letter_gaps
from cdc_pipeline.mirrors.changes.held_rows import resumed_events, resumed_tables
from cdc_pipeline.mirrors.changes.late_changes import late_changes
from cdc_pipeline.mirrors.changes.late_ddl import early_row_gaps, tables_to_replay
from cdc_pipeline.mirrors.changes.row_groups import contradiction_gaps, row_groups, with_types
from cdc_pipeline.mirrors.cuts.cut_ddl import CutStatements, altered_at_watermark, statements_applied_since
from cdc_pipeline.mirrors.cuts.cut_streams import CutStreams
from cdc_pipeline.mirrors.cuts.planned_cut import PlannedCut
from cdc_pipeline.mirrors.deliveries.restarts import COPIES_WITH_FIRST_TSOS
from cdc_pipeline.mirrors.deliveries.statement_copies import canal_restarts
from cdc_pipeline.mirrors.merge.computed_values import computed_problems
from cdc_pipeline.mirrors.merge.net_changes import RowSet
from cdc_pipeline.mirrors.merge.row_identity import Identity
from cdc_pipeline.mirrors.model.row_key import key_columns
from cdc_pipeline.mirrors.model.steps import ApplyRows
from cdc_pipeline.mirrors.planning.guarded_planner import GuardedPlanner
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Permissions, Planner
from cdc_pipeline.mirrors.settings.column_rules import require_commit_ts, soft_delete_problems, unknown_masked_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from cdc_pipeline.dialects.message_types import MessageTypes
    from cdc_pipeline.gaps import Gap
    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.changes.late_changes import LateChanges
    from cdc_pipeline.mirrors.changes.progress import PublishedCut
    from cdc_pipeline.mirrors.changes.row_groups import RowGroup
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.mirrors.cuts.cut_inputs import CutInputs
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.planning.planner import CutPlan
    from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
    from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
    from cdc_pipeline.mysql.model.table import TableName
    from cdc_pipeline.positions import BatchPosition

    _PlanResult = tuple[CutPlan, PlanDraft, tuple[str, ...]]
    """A plan, its draft, and one sentence for each effect of a changed selection."""


@dataclass(frozen=True)
class CutPlanner:
    """Plans one cut."""

    lake: Lake
    settings: CutSettings
    window: Window
    published: PublishedCut
    inputs: CutInputs
    report: Callable[[str], None]
    """Receives what users should know of the plan, one line per call."""

    def plan(self) -> tuple[PlannedCut, CutRows]:
        """Returns the plan, and the rows that it is made from, which the caller closes. Writes nothing."""
        window, history = self.window, self._table("ddl_history")
        streams = CutStreams(
            self.settings.selection,
            self.published,
            window,
            self._table("change_log"),
            history,
            self.inputs.mirror,
            self.settings.time_zone,
        )
        held = streams.held()
        approved = resumed_tables(held, self.inputs.approved)
        resumed = resumed_events(history, approved, window, streams.route_event)
        ddl = CutStatements(tuple(resumed), {})
        if may_have_statements(self.lake, window.after_batch, window.cut_id):
            restarts_of = partial(canal_restarts, self._table("change_log"), history)
            ddl = CutStatements.read(window, history, resumed, restarts_of)
        ddl = streams.route_statements(ddl)
        late, selection = self._select_rows(ddl, approved.values(), streams)
        still_held = tuple(table for table in held if table.name not in approved)
        permissions = Permissions(self.settings.policy, self.inputs.approved, still_held, frozenset(approved))
        had_pending = self.published.pending > 0
        lookup = _LakeLookup(self, history, streams)
        inside = self.settings.selection.selected(window.read_changes(self.lake))
        rows = CutRows(window, selection, streams.log, inside, self._table, had_pending=had_pending, lookup=lookup)
        try:
            plan, _, changes = self._plan_steps(streams, ddl, late, permissions, rows)
        except BaseException:
            rows.close()
            raise
        planned = PlannedCut(
            window,
            self.settings,
            rows.selection,
            plan,
            tuple(row_sets(plan, self.settings)),
            ddl.decided,
            late,
            changes,
            streams.excluded_held_rows,
            plan_id=uuid.uuid4().hex,
        )
        return planned, rows

    def _plan_steps(
        self, streams: CutStreams, ddl: CutStatements, late: LateChanges, permissions: Permissions, rows: CutRows
    ) -> _PlanResult:
        """Plans the statements and the rows. Plans twice if the first plan shows that `rows` has more duplicates."""

        def plan_for(groups: list[RowGroup]) -> _PlanResult:
            gaps = self._known_gaps(ddl, late, rows, groups)

            def plan_with(kind: type[Planner]) -> _PlanResult:
                draft = self._draft(groups)
                changes = streams.plan_selection_change(draft)
                ended = partial(self.inputs.dropped_tables, window=self.window)
                planner = kind(draft, known_gaps=gaps, permissions=permissions, dropped=ended, doubts=rows.doubts)
                return planner.plan(ddl.to_apply), draft, changes

            return self._guard(plan_with)

        groups = self._groups(rows)
        result = plan_for(groups)
        require_commit_ts(result[0].steps, self.window.resolved_tso, self.lake.paths.pipeline)
        if keyless := self._keyed_in_messages_only(result[0], groups):
            repeated = rows.redelivered
            rows.drop_redelivered(keyless)
            if rows.redelivered is not repeated:
                # the counts in the steps must match the rows that a resuming run finds
                result = plan_for(self._groups(rows))
        self._report(*result)
        return result

    def _guard(self, plan_with: Callable[[type[Planner]], _PlanResult]) -> _PlanResult:
        """Plans with the Planner, or if that raises an unexpected error, table by table with the GuardedPlanner."""
        try:
            return plan_with(Planner)
        except CdcError:
            raise
        except Exception as error:
            self.report(f"planning cut {self.window.cut_id} failed ({first_line(error)}): planning table by table")
            return plan_with(GuardedPlanner)

    def _table(self, name: str) -> DataFrame:
        return self.lake.read(name)

    def _select_rows(
        self, ddl: CutStatements, resumed: Iterable[HeldTable], streams: CutStreams
    ) -> tuple[LateChanges, RowSelection]:
        """The late changes, and which rows the cut takes in, as far as that is known without reading them."""
        window, history = self.window, self._table("ddl_history")
        keys = self.settings.keys
        again = tables_to_replay(ddl.to_apply, self.inputs.mirror, lambda state: not key_columns(state, keys))
        altered = cache(lambda: tuple(sorted(altered_at_watermark(window, history, streams.route_event))))
        span = read_change_span(self.lake, window.after_batch, window.last_batch)
        late = late_changes(window, streams.log, span, altered)
        selection = RowSelection(ddl.to_apply, tuple(again.items()), tuple(resumed), at_watermark=late.at_watermark)
        return late, replace(selection, altered=altered()) if late.at_watermark else selection

    @property
    def raw(self) -> Callable[[int, int], DataFrame]:
        return partial(read_raw_batches, self.lake)

    @property
    def claims(self) -> Callable[[], DataFrame | None]:
        return partial(read_claims, self.lake)

    def _groups(self, rows: CutRows) -> list[RowGroup]:
        return with_types(row_groups(rows.changes), self.raw, rows.changes, self.inputs.mirror, self.claims)

    def _draft(self, groups: Iterable[RowGroup]) -> PlanDraft:
        return PlanDraft(
            groups,
            self.inputs.mirror,
            self.published.names,
            self.window.cut_id,
            self.settings.time_zone,
            self.settings.columns,
            self.settings.keys,
            self.settings.selection,
        )

    def _known_gaps(
        self, ddl: CutStatements, late: LateChanges, rows: CutRows, groups: Iterable[RowGroup]
    ) -> dict[TableName, tuple[Gap, ...]]:
        """The gaps that tables get from their records, whatever the plan is."""
        gaps = dead_letter_gaps(self.lake, self.window, self.settings.selection)
        more = [*((breach.name, breach.gap) for breach in late.breaches), *ddl.late_gaps()]
        more += [(name, gap) for name, own in rows.gaps.items() for gap in own]
        more += early_row_gaps(rows.changes, dict(rows.selection.replayed)).items()
        more += contradiction_gaps(groups)
        if self.window.is_first_with_tsos:
            more += [(group.name, COPIES_WITH_FIRST_TSOS) for group in groups if not group.key_names]
        for name, gap in more:
            gaps[name] = (*gaps.get(name, ()), gap)
        return gaps

    def _keyed_in_messages_only(self, plan: CutPlan, groups: Iterable[RowGroup]) -> set[TableName]:
        """The tables whose messages name a key that their mirrors do not have. As for keyless tables, only positions show
        their duplicates."""
        if self.window.resolved_tso is None:
            return set()  # without watermarks the duplicates of all tables are found by position
        named = {group.name for group in groups if group.key_names}
        return {
            step.source
            for step in plan.steps
            if isinstance(step, ApplyRows) and step.source in named and not key_columns(step.state, self.settings.keys)
        }

    def _report(self, plan: CutPlan, draft: PlanDraft, changes: Iterable[str]) -> None:
        for line in changes:
            self.report(line)
        for name, columns in unknown_masked_columns(self.settings.columns, plan.steps).items():
            self.report(f"mask: {name} has no column {', '.join(columns)}")
        for name, reason in soft_delete_problems(self.settings.columns, plan.steps, draft.key).items():
            self.report(f"soft_delete: {name} does not keep deleted rows: {reason}")
        for line in computed_problems(self.lake.spark, plan.steps):
            self.report(line)


@dataclass(frozen=True)
class _LakeLookup:
    """The SegmentLookup that reads the lake."""

    planner: CutPlanner
    history: DataFrame
    streams: CutStreams

    def past_events(self, delivered: DataFrame) -> Sequence[DdlEvent]:
        return statements_applied_since(self.planner.window, self.history, delivered, self.streams.route_event)

    def is_known(self, name: TableName) -> bool:
        return self.planner.inputs.mirror(name) is not None

    def types_of(self, places: Mapping[BatchPosition, str]) -> Mapping[BatchPosition, MessageTypes]:
        return read_message_types(self.planner.raw, places, self.planner.claims)


def row_sets(plan: CutPlan, settings: CutSettings) -> Iterable[RowSet]:
    """The rows of each ApplyRows step of the plan."""
    for index, step in enumerate(plan.steps):
        if isinstance(step, ApplyRows):
            schema, key = step.state.schema, key_columns(step.state, settings.keys)
            columns = tuple(column for name in key or schema.column_names if (column := schema.find(name)) is not None)
            yield RowSet(
                index,
                step.source,
                step.segments,
                Identity.for_columns(columns, step.encodings, settings.time_zone, keyless=not key),
                partial=bool(step.absent or step.absent_in_deletes),
                soft_delete=bool(key) and step.state.has_soft_delete,
                spellings=step.spellings,
            )
