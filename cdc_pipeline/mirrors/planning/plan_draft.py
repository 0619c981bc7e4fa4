"""What a plan is made on: the mirrors as they are at one point of the stream, the rows that wait, and the steps so far."""

from __future__ import annotations

from collections import defaultdict
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.model.computed_columns import merged
from cdc_pipeline.mirrors.model.masks import unsure_hashes
from cdc_pipeline.mirrors.model.row_key import key_columns
from cdc_pipeline.mirrors.model.state import DELETED, MirrorState
from cdc_pipeline.mirrors.model.steps import (
    ApplyRows,
    ChangeColumns,
    CreateMirror,
    ForgetDeleted,
    KeepOnePerKey,
    NoteState,
    Step,
)
from cdc_pipeline.mirrors.planning.inferred_schema import (
    first_commit_ts,
    inferred_schema,
    unseen_start,
    untold_columns_gaps,
    widened_schema,
)
from cdc_pipeline.mirrors.planning.lacking_columns import computed_columns, partial_columns, unknown_columns
from cdc_pipeline.mirrors.planning.shard_definitions import with_lacking_columns, with_rows
from cdc_pipeline.mirrors.planning.soft_delete_plans import brought_by_none, carried_key, untold_columns
from cdc_pipeline.mirrors.settings.column_rules import OWN_DELETED, ColumnRules
from cdc_pipeline.mysql.ddl.evolution import shape
from cdc_pipeline.mysql.expressions.conversions import unsent_columns, with_unclear_types
from cdc_pipeline.mysql.model.table import ColumnOrigin, TableSchema, origins_by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cdc_pipeline.gaps import Gap
    from cdc_pipeline.mirrors.changes.row_groups import RowGroup
    from cdc_pipeline.mirrors.model.masks import Mask
    from cdc_pipeline.mysql.model.table import TableName


class PlanDraft:
    """`lookup` gives a mirror as the last cut left it; `known` are the names that cut had; `time_zone` is the encoder's;
    `rules` are what mirrors that are made here carry beside upstream's columns; `keys` the columns that identify a row, by
    `database.table`, of tables whose definition has no key."""

    def __init__(
        self,
        groups: Iterable[RowGroup],
        lookup: Callable[[TableName], MirrorState | None],
        known: frozenset[TableName],
        cut_id: int,
        time_zone: str,
        rules: ColumnRules | None = None,
        keys: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self._groups: dict[TableName, dict[int, list[RowGroup]]] = defaultdict(lambda: defaultdict(list))
        for group in groups:
            self._groups[group.name][group.segment].append(group)
        self._lookup = lookup
        self._known = known
        self._cut_id = cut_id
        self.time_zone = time_zone
        self._rules = rules or ColumnRules()
        self._keys = keys or {}
        self._live: dict[TableName, MirrorState | None] = {}
        self._events_passed: dict[TableName, int] = defaultdict(int)
        self._empty: set[str] = set()
        self.steps: list[Step] = []

    def snapshot(self) -> PlanDraft:
        """The draft as it is now, apart from what becomes of this one."""
        found = copy(self)
        found._copy_from(self)
        return found

    def restore(self, saved: PlanDraft) -> None:
        """The draft is again as it was `saved`, which may be used once more."""
        self._copy_from(saved)

    def _copy_from(self, other: PlanDraft) -> None:
        self._groups = defaultdict(lambda: defaultdict(list))
        for name, segments in other._groups.items():
            self._groups[name] = defaultdict(list, segments)
        self._live, self._empty, self.steps = dict(other._live), set(other._empty), list(other.steps)
        self._events_passed = defaultdict(int, other._events_passed)

    # ---- mirrors

    def state(self, name: TableName) -> MirrorState | None:
        """The mirror of that name at this point; None where there is none."""
        if name not in self._live:
            found = self._live[name] = self._lookup(name)
            if found is not None:
                self._rules.check_salt(found)
        return self._live[name]

    def set_state(self, state: MirrorState) -> None:
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
        state = replace(state, gaps=self._shown(state.name, state.gaps))
        declared = replace(state, trace=self._rules.trace, derived=self._rules.derived_of(state))
        made = self._rules.masked(declared, {})
        made = self._rules.with_deleted(made, self.key(made))
        self.steps.append(CreateMirror(made))
        self.set_state(made)
        self._empty.add(made.mirror_id)
        return made

    def change_columns(
        self,
        before: MirrorState,
        after: MirrorState,
        origins: tuple[ColumnOrigin, ...],
        commit_ms: int = 0,
        kept: tuple[tuple[str, str], ...] = (),
        *,
        carried: Mapping[str, Mask] | None = None,
        anew: bool = False,
    ) -> MirrorState:
        """The mirror has other columns from now on: what was masked stays so under its new name, and what the rules name is
        masked too. `carried` are masks that other columns take over besides. `anew`: nothing is in it, and all of its rows
        come again. Returns it as it is then."""
        masks = dict(before.masks)
        own = {
            origin.after.name: masks[origin.before.name]
            for origin in origins
            if origin.before is not None and origin.before.name in masks
        }
        ruled = self._rules.masked(after, {**(carried or {}), **own}).with_gaps(*unsure_hashes(origins, masks))
        if anew or not before.schema.columns:
            ruled = self._rules.with_deleted(ruled, self.key(ruled))
        elif before.soft_key is not None:
            ruled = self._deleted_carried(before, ruled, origins)
        self.steps.append(ChangeColumns(before, ruled, origins, commit_ms, kept))
        self.set_state(ruled)
        return ruled

    def _deleted_carried(
        self, before: MirrorState, after: MirrorState, origins: tuple[ColumnOrigin, ...]
    ) -> MirrorState:
        """`after`, which keeps what upstream deletes as `before` did, unless upstream has given it a column of that name."""
        assert before.soft_key is not None
        if after.schema.find(DELETED) is None:
            return replace(after, soft_key=carried_key(before.soft_key, origins))
        self.steps.append(ForgetDeleted(before))
        return replace(after, soft_key=None).with_gaps(OWN_DELETED)

    def key(self, state: MirrorState) -> tuple[str, ...]:
        """The columns that identify a row of the mirror; empty where rows have no identity."""
        return key_columns(state, self._keys)

    def keeps_deleted(self, name: TableName) -> bool:
        """Whether the table's mirror keeps what upstream deletes; where there is none, whether it is to."""
        state = self.state(name)
        return self._rules.keeps_deleted(name) if state is None else state.keeps_deleted

    def with_masks(self, state: MirrorState) -> MirrorState:
        """The state as it is with all masks that the rules want of it."""
        return self._rules.masked(state, dict(state.masks))

    def apply_masks(self, state: MirrorState) -> MirrorState:
        """The mirror, of which the rules may name columns that it shows still: then these are masked where they are."""
        self._rules.check_salt(state)
        if dict(self.with_masks(state).masks) == dict(state.masks):
            return state
        return self.change_columns(state, state, origins_by_name(state.schema, state.schema.columns))

    def apply_name_rules(self, state: MirrorState) -> MirrorState:
        """The mirror, which has just got its name: it is masked by it, and has the derived columns of it beside its own."""
        state = self.apply_masks(state)
        derived = merged(self._rules.derived_of(state), state.derived)
        if derived == state.derived:
            return state
        origins = origins_by_name(state.schema, state.schema.columns)
        return self.change_columns(state, replace(state, derived=derived), origins)

    def has_salt(self, state: MirrorState) -> bool:
        """Whether the mirror's values were hashed with the declared salt, if any were."""
        return self._rules.has_salt(state)

    def has_masks(self, name: TableName) -> bool:
        """Whether values of the table's columns are masked, or would be."""
        state = self.state(name)
        return self._rules.names(name) or (state is not None and bool(state.masks))

    def mask_all(self) -> None:
        """Masks what mirrors of earlier cuts show and the rules name."""
        for name in sorted(name for name in self._known if self._rules.names(name)):
            state = self.state(name)
            if state is not None:
                self.apply_masks(state)

    def mark_empty(self, state: MirrorState) -> None:
        """Says that nothing is in the mirror now: rows that follow are appended."""
        self._empty.add(state.mirror_id)

    def is_empty(self, state: MirrorState) -> bool:
        """Whether nothing is in the mirror for sure."""
        return state.mirror_id in self._empty

    def truncate(self, state: MirrorState) -> None:
        """Says that upstream has emptied the table, of which the mirror may keep the rows."""
        if not state.keeps_deleted:
            self.mark_empty(state)

    def reset_soft_delete_key(self, state: MirrorState) -> None:
        """Says that rows have come from elsewhere, which may have the keys of deleted ones."""
        if state.keeps_deleted:
            self.record_state(replace(state, soft_key=()))

    def mark_filled(self, state: MirrorState) -> None:
        """Says that rows are in the mirror which no step of rows has put there."""
        self._empty.discard(state.mirror_id)

    def add_gaps(self, name: TableName, *gaps: Gap) -> None:
        """Notes the gaps with the table's mirror, if there is one."""
        state = self.state(name)
        if state is None:
            return
        marked = state.with_gaps(*self._shown(name, gaps))
        if marked != state:
            self.record_state(marked)

    def _shown(self, name: TableName, gaps: Iterable[Gap]) -> tuple[Gap, ...]:
        """The gaps as the table's mirror may show them."""
        return tuple(gap.hidden for gap in gaps) if self.has_masks(name) else tuple(gaps)

    def record_state(self, state: MirrorState) -> None:
        """The mirror says this of itself from now on; its rows and columns are as they were."""
        self.steps.append(NoteState(state))
        self.set_state(state)

    # ---- rows

    def pass_event(self, name: TableName) -> None:
        self._events_passed[name] += 1

    def passed_events(self, name: TableName) -> int:
        """How many events of the name lie before this point."""
        return self._events_passed[name]

    def _segments_now(self, name: TableName, *, everything: bool = False) -> list[int]:
        """The segments of the name that lie before this point and are not in yet."""
        waiting = self._groups.get(name, {})
        return sorted(segment for segment in waiting if everything or segment <= self._events_passed[name])

    def discard_rows(self, name: TableName, *, everything: bool = False) -> None:
        """Leaves out the rows of the name that lie before this point, or all that wait."""
        for segment in self._segments_now(name, everything=everything):
            del self._groups[name][segment]

    def first_pending_segments(self) -> dict[TableName, int]:
        """The names of which rows are not in yet, each with the first segment that waits."""
        return {name: min(segments) for name, segments in self._groups.items() if segments}

    def flush_all_rows(self) -> None:
        for name in list(self._groups):
            self.flush_rows(name, everything=True)

    def flush_rows(self, name: TableName, *, everything: bool = False) -> None:
        """Rows of the name that lie before this point go into its mirror, which they make where there is none."""
        segments = self._segments_now(name, everything=everything)
        if not segments:
            return
        groups = [group for segment in segments for group in self._groups[name].pop(segment)]
        state = self._with_one_per_key(self._fitting_state(name, groups))
        if state.shards is not None:
            groups = [with_lacking_columns(group, state) for group in groups]
        key = self.key(state)
        lacking = tuple(column.name for column in partial_columns(state.schema, key, groups))
        unknown = unknown_columns(state, key, groups)
        # where some rows came with their handle key only, what is computed of the others' columns is told apart by row
        partial = partial_columns(state.schema, key, [group for group in groups if not group.only_key])
        untold = untold_columns(state, key, groups)
        missing = list(dict.fromkeys((*unknown, *brought_by_none(untold, groups))))
        computed = () if partial else computed_columns(state.schema, missing, self.time_zone)
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
                untold=tuple(column.name for column in untold if column not in computed),
            )
        )
        self._empty.discard(state.mirror_id)
        self.add_gaps(name, *unsent_columns([column for column in unknown if column not in computed]))

    def _with_one_per_key(self, state: MirrorState) -> MirrorState:
        """The mirror, in which rows may come by their key: of those that it keeps none has the key of another."""
        key = self.key(state)
        if state.soft_key is None or state.soft_key == key:
            return state
        settled = replace(state, soft_key=key)
        self.steps.append(KeepOnePerKey(settled) if key else NoteState(settled))
        self.set_state(settled)
        return settled

    def _fitting_state(self, name: TableName, groups: list[RowGroup]) -> MirrorState:
        """The mirror's state, made or widened where the rows have columns that no DDL has told of."""
        state = self.state(name)
        if groups[0].source is not None:
            return self._fitting_merged(name, state, groups)
        if state is None:
            schema = inferred_schema(groups)
            since = first_commit_ts(groups)
            state = MirrorState(name, f"{name}@cut{self._cut_id}.{len(self.steps)}", schema, True, since=since)
            state = replace(state, gaps=with_unclear_types((), schema.columns))
            return self.create(state.with_gaps(unseen_start(groups)))
        if state.inferred and not state.schema.columns:
            schema = inferred_schema(groups)
            wider = replace(state, schema=schema, gaps=with_unclear_types(state.gaps, schema.columns))
        else:
            wider = self._widened(state, groups)
        if wider.schema == state.schema:
            return state
        return self.change_columns(state, wider, origins_by_name(state.schema, wider.schema.columns))

    def _fitting_merged(self, name: TableName, state: MirrorState | None, groups: list[RowGroup]) -> MirrorState:
        """As `_fitting_state`, of a mirror of several tables, which has what each of them has."""
        before = state or MirrorState(name, f"{name}@cut{self._cut_id}.{len(self.steps)}", TableSchema(()), shards=())
        fitting = with_rows(before, groups)
        return self.create(fitting) if state is None else self.change_merged(before, fitting)

    def change_merged(self, before: MirrorState, after: MirrorState, commit_ms: int = 0) -> MirrorState:
        """The merged mirror is so from now on: columns keep their names. Returns it as it is then."""
        if after == before:
            return before
        if shape(after.schema) == shape(before.schema):
            self.record_state(after)
            return after
        return self.change_columns(before, after, origins_by_name(before.schema, after.schema.columns), commit_ms)

    def _widened(self, state: MirrorState, groups: list[RowGroup]) -> MirrorState:
        schema, added = widened_schema(state.schema, groups, inferred=state.inferred)
        wider = replace(state, schema=schema, gaps=with_unclear_types(state.gaps, schema.columns))
        return wider if state.inferred else wider.with_gaps(*untold_columns_gaps(added))
