"""What a plan is made on: the mirrors as they are at one point of the stream, the rows that wait, and the steps so far."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.dialects.dataworks import DATAWORKS
from cdc_pipeline.mirrors.column_rules import ColumnRules
from cdc_pipeline.mirrors.derived import merged
from cdc_pipeline.mirrors.inferred import inferred_schema, new_columns, repaired_column
from cdc_pipeline.mirrors.masks import unsure_hashes
from cdc_pipeline.mirrors.partial_rows import computed_columns, partial_columns, unknown_columns
from cdc_pipeline.mirrors.state import UNSEEN_START, MirrorState
from cdc_pipeline.mirrors.steps import ApplyRows, ChangeColumns, ColumnOrigin, CreateMirror, NoteState, Step
from cdc_pipeline.schemas.conversions import unclear_types, unsent_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cdc_pipeline.mirrors.row_groups import RowGroup
    from cdc_pipeline.schemas.table import TableName


class PlanBook:
    """`lookup` gives a mirror as the last cut left it; `known` are the names that cut had; `time_zone` is the encoder's;
    `rules` are what mirrors that are made here carry beside upstream's columns."""

    def __init__(
        self,
        groups: Iterable[RowGroup],
        lookup: Callable[[TableName], MirrorState | None],
        known: frozenset[TableName],
        cut_id: int,
        time_zone: str,
        rules: ColumnRules | None = None,
    ) -> None:
        self._groups: dict[TableName, dict[int, list[RowGroup]]] = defaultdict(lambda: defaultdict(list))
        for group in groups:
            self._groups[group.name][group.segment].append(group)
        self._lookup = lookup
        self._known = known
        self._cut_id = cut_id
        self.time_zone = time_zone
        self._rules = rules or ColumnRules()
        self._live: dict[TableName, MirrorState | None] = {}
        self._events_passed: dict[TableName, int] = defaultdict(int)
        self._empty: set[str] = set()
        self.steps: list[Step] = []

    # ---- mirrors

    def state(self, name: TableName) -> MirrorState | None:
        """The mirror of that name at this point; None where there is none."""
        if name not in self._live:
            found = self._live[name] = self._lookup(name)
            if found is not None:
                self._rules.check_salt(found)
        return self._live[name]

    def put(self, state: MirrorState) -> None:
        self._live[state.name] = state

    def remove(self, name: TableName) -> None:
        self._live[name] = None

    def exists(self, name: TableName) -> bool:
        """Whether there is a mirror of that name, or rows before this point that will make one."""
        return self.state(name) is not None or bool(self._segments_now(name))

    def names(self) -> list[TableName]:
        """The tables that exist at this point, in order."""
        return sorted(name for name in {*self._known, *self._groups, *self._live} if self.exists(name))

    def create(self, state: MirrorState) -> MirrorState:
        """Makes the mirror, with the columns that the rules give it. Returns it as it is made."""
        declared = replace(state, trace=self._rules.trace, derived=self._rules.derived_of(state))
        made = self._rules.masked(declared, {})
        self.steps.append(CreateMirror(made))
        self.put(made)
        self._empty.add(made.mirror_id)
        return made

    def change_columns(
        self,
        before: MirrorState,
        after: MirrorState,
        origins: tuple[ColumnOrigin, ...],
        commit_ms: int = 0,
        kept: tuple[tuple[str, str], ...] = (),
    ) -> MirrorState:
        """The mirror has other columns from now on: what was masked stays so under its new name, and what the rules name is
        masked too. Returns it as it is then."""
        masks = dict(before.masks)
        carried = {
            origin.after.name: masks[origin.before.name]
            for origin in origins
            if origin.before is not None and origin.before.name in masks
        }
        ruled = self._rules.masked(after, carried).with_gaps(*unsure_hashes(origins, masks))
        self.steps.append(ChangeColumns(before, ruled, origins, commit_ms, kept))
        self.put(ruled)
        return ruled

    def with_masks(self, state: MirrorState) -> MirrorState:
        """The state as it is with all masks that the rules want of it."""
        return self._rules.masked(state, dict(state.masks))

    def masked(self, state: MirrorState) -> MirrorState:
        """The mirror, of which the rules may name columns that it shows still: then these are masked where they are."""
        self._rules.check_salt(state)
        if dict(self.with_masks(state).masks) == dict(state.masks):
            return state
        origins = tuple(ColumnOrigin(column, column) for column in state.schema.columns)
        return self.change_columns(state, state, origins)

    def under_its_name(self, state: MirrorState) -> MirrorState:
        """The mirror, which has just got its name: it is masked by it, and has the derived columns of it beside its own."""
        state = self.masked(state)
        derived = merged(self._rules.derived_of(state), state.derived)
        if derived == state.derived:
            return state
        origins = tuple(ColumnOrigin(column, column) for column in state.schema.columns)
        return self.change_columns(state, replace(state, derived=derived), origins)

    def has_salt(self, state: MirrorState) -> bool:
        """Whether the mirror's values were hashed with the declared salt, if any were."""
        return self._rules.has_salt(state)

    def hides(self, name: TableName) -> bool:
        """Whether values of the table's columns are masked, or would be."""
        state = self.state(name)
        return self._rules.names(name) or (state is not None and bool(state.masks))

    def mask_all(self) -> None:
        """Masks what mirrors of earlier cuts show and the rules name."""
        for name in sorted(name for name in self._known if self._rules.names(name)):
            state = self.state(name)
            if state is not None:
                self.masked(state)

    def emptied(self, state: MirrorState) -> None:
        """Says that nothing is in the mirror now: rows that follow are appended."""
        self._empty.add(state.mirror_id)

    def filled(self, state: MirrorState) -> None:
        """Says that rows are in the mirror which no step of rows has put there."""
        self._empty.discard(state.mirror_id)

    def mark(self, name: TableName, *reasons: str) -> None:
        """Marks the table's mirror, if there is one, as having gaps for these reasons."""
        state = self.state(name)
        if state is None or not set(reasons) - set(state.gaps):
            return
        self.note(state.with_gaps(*reasons))

    def note(self, state: MirrorState) -> None:
        """The mirror says this of itself from now on; its rows and columns are as they were."""
        self.steps.append(NoteState(state))
        self.put(state)

    # ---- rows

    def pass_event(self, name: TableName) -> None:
        self._events_passed[name] += 1

    def passed(self, name: TableName) -> int:
        """How many events of the name lie before this point."""
        return self._events_passed[name]

    def _segments_now(self, name: TableName, *, everything: bool = False) -> list[int]:
        """The segments of the name that lie before this point and are not in yet."""
        waiting = self._groups.get(name, {})
        return sorted(segment for segment in waiting if everything or segment <= self._events_passed[name])

    def drop_rows(self, name: TableName, *, everything: bool = False) -> None:
        """Leaves out the rows of the name that lie before this point, or all that wait."""
        for segment in self._segments_now(name, everything=everything):
            del self._groups[name][segment]

    def let_all_rows_in(self) -> None:
        for name in list(self._groups):
            self.let_rows_in(name, everything=True)

    def let_rows_in(self, name: TableName, *, everything: bool = False) -> None:
        """Rows of the name that lie before this point go into its mirror, which they make where there is none."""
        segments = self._segments_now(name, everything=everything)
        if not segments:
            return
        groups = [group for segment in segments for group in self._groups[name].pop(segment)]
        state = self._fitting_state(name, groups)
        lacking = tuple(column.name for column in partial_columns(state.schema, groups))
        unknown = unknown_columns(state, groups)
        # where some rows came with their handle key only, what is computed of the others' columns is told apart by row
        partial = partial_columns(state.schema, [group for group in groups if not group.only_key])
        computed = () if partial else computed_columns(state.schema, unknown, self.time_zone)
        self.steps.append(
            ApplyRows(
                state,
                name,
                tuple(segments),
                changes=sum(group.changes for group in groups),
                into_empty=state.mirror_id in self._empty,
                wires=tuple(sorted({group.dialect: group.types.wires for group in groups}.items())),
                lacking=lacking,
                computed=tuple(column.name for column in computed),
            )
        )
        self._empty.discard(state.mirror_id)
        self.mark(name, *unsent_columns([column for column in unknown if column not in computed]))

    def _fitting_state(self, name: TableName, groups: list[RowGroup]) -> MirrorState:
        """The mirror's state, made or widened where the rows have columns that no DDL has told of."""
        state = self.state(name)
        if state is None:
            schema = inferred_schema(groups)
            since = min((group.first_ts for group in groups if group.first_ts is not None), default=None)
            state = MirrorState(name, f"{name}@cut{self._cut_id}.{len(self.steps)}", schema, True, since=since)
            state = state.with_gaps(*unclear_types(schema.columns))
            if any(group.dialect != DATAWORKS.name for group in groups):  # DataWorks sends no DDL at all
                state = state.with_gaps(UNSEEN_START)
            return self.create(state)
        if state.inferred and not state.schema.columns:
            schema = inferred_schema(groups)
            wider = replace(state, schema=schema).with_gaps(*unclear_types(schema.columns))
        else:
            wider = self._widened(state, groups)
        if wider.schema == state.schema:
            return state
        origins = tuple(ColumnOrigin(column, state.schema.find(column.name)) for column in wider.schema.columns)
        return self.change_columns(state, wider, origins)

    def _widened(self, state: MirrorState, groups: list[RowGroup]) -> MirrorState:
        added = new_columns(state.schema, groups)
        kept = state.schema.columns
        if state.inferred:
            kept = tuple(repaired_column(column, groups) for column in kept)
        wider = replace(state, schema=state.schema.with_columns((*kept, *added)))
        wider = wider.with_gaps(*unclear_types(added))
        if added and not state.inferred:
            names = ", ".join(column.name for column in added)
            wider = wider.with_gaps(f"rows have columns that no DDL has told of: {names}")
        return wider
