"""Plans a cut from its window, the streams and the mirrors."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.restored_tables import require_not_restored
from cdc_pipeline.lake.tables.ddl_history import APPLIED, HELD, NOT_INCLUDED, may_have_statements
from cdc_pipeline.mirrors.changes.cut_rows import CutRows, RowSelection
from cdc_pipeline.mirrors.changes.dead_letters import dead_letter_gaps
from cdc_pipeline.mirrors.changes.dropped_tables import EndedTable, ended_tables
from cdc_pipeline.mirrors.changes.late_changes import NO_LATE_CHANGES, LateChanges, late_changes
from cdc_pipeline.mirrors.changes.late_starts import late_start_gaps, late_starts
from cdc_pipeline.mirrors.changes.progress import PublishedCut, StreamProgress
from cdc_pipeline.mirrors.changes.row_groups import RowGroup, contradiction_gaps, with_types
from cdc_pipeline.mirrors.changes.segments import NO_TABLE
from cdc_pipeline.mirrors.changes.statement_copies import statement_deliveries
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.cuts.cut_ddl import CutStatements
from cdc_pipeline.mirrors.cuts.stored_plan import PlannedCut
from cdc_pipeline.mirrors.merge.computed_values import computed_problems
from cdc_pipeline.mirrors.merge.row_entries import RowSet
from cdc_pipeline.mirrors.merge.row_identity import Identity
from cdc_pipeline.mirrors.model.ddl_events import ddl_event, in_upstream_order
from cdc_pipeline.mirrors.model.state import MirrorState, mirror_state
from cdc_pipeline.mirrors.model.steps import ApplyRows, DdlOutcome
from cdc_pipeline.mirrors.model.upstream_tables import qualified_events
from cdc_pipeline.mirrors.planning.included_ddl import exclusion_reason, mirrored_event
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import CutPlan, Planner, plan_tables
from cdc_pipeline.mirrors.planning.selection_change import SelectionChange
from cdc_pipeline.mirrors.settings.column_rules import soft_delete_problems, unknown_masked_columns
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position
from cdc_pipeline.spark.small_frames import is_small


@dataclass(frozen=True)
class CutPlanner:
    """Plans one cut."""

    lake: Lake
    settings: CutSettings
    window: Window
    published: PublishedCut
    progress: StreamProgress
    permitted: frozenset[Position]
    """Statements that no policy holds."""
    report: Callable[[str], None]
    """Receives what users should know of the plan, one line per call."""
    _mirrors: dict[TableName, MirrorState | None] = field(default_factory=dict)
    """By key. Each mirror is read once, so that a plan sees it in one state."""

    def plan(self) -> tuple[PlannedCut, CutRows]:
        """Returns the plan, and the rows that it is made from, which the caller closes. Writes nothing."""
        window, history = self.window, self.lake.read("ddl_history")
        ddl = CutStatements()
        if may_have_statements(self.lake, window.after_batch, window.cut_id):
            deliveries_of = partial(statement_deliveries, self._log, history)
            ddl = CutStatements.read(window, history, deliveries_of)
        ddl = self._route_statements(ddl, history)
        rows = CutRows(self.lake, window, self._selection, RowSelection(ddl.to_apply), self._columns_of)
        try:
            late = late_changes(window, rows.log) if self.progress.has_late(self.published) else NO_LATE_CHANGES
            plan, changes = self._plan_steps(ddl, late, rows)
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
            plan_id=uuid.uuid4().hex,
        )
        return planned, rows

    @property
    def _selection(self) -> TableSelection:
        return self.settings.selection

    @cached_property
    def _log(self) -> DataFrame:
        """`change_log`, by upstream's names."""
        return self.lake.read("change_log")

    def _plan_steps(self, ddl: CutStatements, late: LateChanges, rows: CutRows) -> tuple[CutPlan, tuple[str, ...]]:
        """Plans the statements and the rows. Returns also one sentence for each effect of a changed selection."""
        groups = self._groups(rows)
        if (keyless := self._keyed_in_messages_only(ddl, groups)) and rows.drop_copies(keyless):
            groups = self._groups(rows)
        drafts, gaps = [], self._known_gaps(ddl, late, rows, groups)
        change = self._selection_change

        def planner_for(held: tuple[HeldTable, ...]) -> Planner:
            draft = PlanDraft(groups, self._mirror, self.published.names, self.window.cut_id, self.settings)
            drafts.append(draft)
            change.plan(draft, self.window.cut_id, self._selection)
            return Planner(
                draft,
                known_gaps=gaps,
                permitted=self.permitted,
                held=held,
                ended=self._ended_tables,
                doubts=rows.doubts,
            )

        held = change.still_held(self.published.held, self._selection)
        plan = plan_tables(planner_for, ddl.to_apply, held, self.window.after_tso or 0, self.report)
        changes = change.descriptions(self._selection)
        self._report(plan, drafts[-1], changes)
        return plan, changes

    # ---- the pipeline's selection

    def _route_statements(self, ddl: CutStatements, history: DataFrame) -> CutStatements:
        """The statements by what they do to mirrors."""
        ddl = replace(ddl, to_apply=tuple(qualified_events(ddl.to_apply, self._tables, self._selection.key)))
        ddl = ddl.routed(self._selection)
        if self._selection_change == SelectionChange():
            return ddl
        held = map(ddl_event, history.where(F.col("status") == HELD).collect())
        no_longer_held = {
            event.position: DdlOutcome(NOT_INCLUDED, [exclusion_reason(event)])
            for event in in_upstream_order(held)
            if event.database and not mirrored_event(event, self._selection).changes
        }
        return replace(ddl, decided={**no_longer_held, **ddl.decided})

    def _tables(self) -> set[TableName]:
        """The keys of upstream's tables: of mirrors, with rows in the cut, and excluded ones with rows before it."""
        found = [table for state in self._live_mirrors for table in state.upstream_tables]
        found += _table_names(self.window.rows_in(self._log))
        if not self._selection.includes_all:
            found += _table_names(self._selection.excluded(self.window.rows_before(self._log)))
        return set(map(self._selection.key, found))

    @property
    def _live_mirrors(self) -> list[MirrorState]:
        """The mirrors of the last cut, without those of dropped tables, which `ddl_policy` keeps."""
        states = map(self._mirror, self.published.names)
        return [state for state in states if state is not None and not state.retired]

    @cached_property
    def _selection_change(self) -> SelectionChange:
        """What the cut does because the selection has changed."""
        before = self.published.selection
        if not self.published.cut_id or before == self._selection:
            return SelectionChange()
        live = {state.name: state.upstream_tables for state in self._live_mirrors}
        excluded = _table_names(before.excluded(self.window.rows_before(self._log)))
        return SelectionChange.from_selections(live, excluded, before, self._selection)

    # ---- mirrors and rows

    def _keyed_in_messages_only(self, ddl: CutStatements, groups: Iterable[RowGroup]) -> set[TableName]:
        """The tables whose mirrors may have no key, though their messages name one: they have none, or this cut alters them.
        As for rows without a key, only positions show their copies."""
        if self.window.resolved_tso is None:
            return set()  # without watermarks the copies of all tables are found by position
        altered = {name for event in ddl.to_apply for name in event.names()}
        states = {group.name: self._mirror(group.name) for group in groups if group.key_names}
        keys = self.settings.keys
        without = {name for name, state in states.items() if state is not None and not state.key_columns(keys)}
        return without | (altered & states.keys())

    def _columns_of(self, name: TableName) -> frozenset[str] | None:
        state = self._mirror(name)
        return NO_TABLE if state is None else frozenset(column.lower() for column in state.schema.column_names) or None

    @cached_property
    def _published_names(self) -> Mapping[TableName, TableName]:
        """Key → name of the mirrors of the last cut."""
        return self._selection.by_key(self.published.names)

    def _mirror(self, name: TableName) -> MirrorState | None:
        """The mirror of this key or name after the last cut; None if there was none. Raises RestoredTableError if it was
        restored (RESTORE)."""
        key = self._selection.key(name)
        if key not in self._mirrors:
            path = self.published.mirror_folder(self._published_names.get(key, key), self.lake.paths)
            require_not_restored(self.lake, path)
            self._mirrors[key] = mirror_state(self.lake.spark, path)
        return self._mirrors[key]

    def _ended_tables(self, database: str) -> Iterable[EndedTable]:
        """The tables of the database that cuts before this one have dropped or truncated."""
        routed = partial(mirrored_event, selection=self._selection)
        return ended_tables(self.lake, database, self.published, self.window.cut_id, routed)

    def _groups(self, rows: CutRows) -> list[RowGroup]:
        few = is_small(self.published.pending + self.progress.new_row_changes)
        return with_types(rows.group(with_text_bytes=few), self.lake, rows.changes, self._mirror)

    def _known_gaps(
        self, ddl: CutStatements, late: LateChanges, rows: CutRows, groups: Iterable[RowGroup]
    ) -> dict[TableName, tuple[Gap, ...]]:
        """The gaps that tables get from their records, whatever the plan is."""
        found = dead_letter_gaps(self.lake, self.window, self._selection)
        found += [*((breach.name, breach.gap) for breach in late.breaches), *ddl.gaps()]
        found += [*rows.gaps, *contradiction_gaps(groups), *self._time_zone_gaps()]
        if self.published.cut_id == 0 and ddl.to_apply:
            found += late_start_gaps(late_starts(self.lake), ddl.to_apply)
        gaps: dict[TableName, tuple[Gap, ...]] = {}
        for name, gap in found:
            gaps[name] = (*gaps.get(name, ()), gap)
        for former, name in self._renamed(name for name in gaps if self._mirror(name) is None).items():
            gaps[name] = (*gaps.get(name, ()), *gaps[former])
        return gaps

    def _time_zone_gaps(self) -> list[tuple[TableName, Gap]]:
        """The gaps of mirrors whose TIMESTAMP values earlier cuts read in another time zone."""
        former, zone = self.published.time_zone, self.settings.time_zone
        if former in (None, zone):
            return []
        gap = Gap(
            GapKind.TIME_ZONE_CHANGED,
            f"TIMESTAMP values before cut {self.window.cut_id} were read in the time_zone {former}, not {zone}; a rebuild "
            "reads them again",
        )
        found = (
            one for one in self._live_mirrors if any(column.type.base == "timestamp" for column in one.schema.columns)
        )
        return [(self._selection.key(state.name), gap) for state in found]

    def _renamed(self, names: Iterable[TableName]) -> Mapping[TableName, TableName]:
        """Former → present name of the tables that earlier cuts have renamed. TiCDC writes late files under the former name
        (docs/storage.md)."""
        places = {name: name for name in names}
        if not places:
            return {}
        rows = read_rows(self.lake, "ddl_history", ("status", "=", APPLIED), ("cut_id", "<=", self.window.cut_id - 1))
        for event in in_upstream_order(ddl_event(Row(**row)) for row in rows):
            for change in mirrored_event(event, self._selection).changes:
                for old, new in change.names().renamed:
                    places = {name: new if place == old else place for name, place in places.items()}
        return {name: place for name, place in places.items() if place != name}

    def _report(self, plan: CutPlan, draft: PlanDraft, changes: Iterable[str]) -> None:
        for line in changes:
            self.report(line)
        for name, columns in unknown_masked_columns(self.settings.columns, plan.steps).items():
            self.report(f"mask: {name} has no column {', '.join(columns)}")
        for name, reason in soft_delete_problems(self.settings.columns, plan.steps, draft.key).items():
            self.report(f"soft_delete: {name} does not keep deleted rows: {reason}")
        for line in computed_problems(self.lake.spark, plan.steps):
            self.report(line)


def _table_names(rows: DataFrame) -> list[TableName]:
    """The tables of these row changes, by upstream's names."""
    return [TableName(*row) for row in rows.select("database", "table").distinct().collect()]


def row_sets(plan: CutPlan, settings: CutSettings) -> Iterable[RowSet]:
    """The rows of each ApplyRows step of the plan."""
    for index, step in enumerate(plan.steps):
        if isinstance(step, ApplyRows):
            schema, key = step.state.schema, step.state.key_columns(settings.keys)
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
