"""The draft of a plan at one point of the stream: the states of the mirrors, the rows without a step, the steps so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait
from cdc_pipeline.errors import DeclarationError
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.changes.row_groups import RowGroup, encodings_of_groups
from cdc_pipeline.mirrors.model import steps
from cdc_pipeline.mirrors.model.computed_columns import merged_columns
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.masks import Mask, stale_hash_gaps
from cdc_pipeline.mirrors.model.state import DELETED, MirrorState, name_gap
from cdc_pipeline.mirrors.planning import inferred_schema
from cdc_pipeline.mirrors.planning.contradicted_definitions import definition_gaps
from cdc_pipeline.mirrors.planning.merged_definitions import require_free_names, with_lacking_columns, with_rows
from cdc_pipeline.mirrors.settings.column_rules import HAS_OWN_DELETED
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mysql.ddl.evolution import row_shape
from cdc_pipeline.mysql.expressions.conversions import absent_column_gaps, replace_type_gaps
from cdc_pipeline.mysql.model.change_names import folded
from cdc_pipeline.mysql.model.table import ColumnOrigin, TableName, TableSchema, origins_by_name


class PlanDraft:
    """The planners apply each DDL event to it, in stream order, and append steps.

    Mirrors are found by their keys, or by a name of the same key (`TableSelection.key`).

    lookup: returns the mirror of this key as the last cut left it.
    known: the names of the mirrors of that cut.
    """

    def __init__(
        self,
        groups: Iterable[RowGroup],
        lookup: Callable[[TableName], MirrorState | None],
        known: frozenset[TableName],
        cut_id: int,
        settings: CutSettings,
    ) -> None:
        self._groups: dict[TableName, dict[int, list[RowGroup]]] = defaultdict(lambda: defaultdict(list))
        for group in groups:
            self._groups[group.name][group.segment].append(group)
        self._lookup = lookup
        self.settings = settings
        self._rules = settings.columns
        self.time_zone = settings.time_zone
        self._selection = settings.selection
        self._key = settings.selection.key
        self._known = frozenset(map(self._key, known))
        self._upstream: dict[TableName, TableName] = {}
        """Key → upstream's name of the table that a mirror of this key gets."""
        self._cut_id = cut_id
        self._states: dict[TableName, MirrorState | None] = {}
        self._passed_events: dict[TableName, int] = defaultdict(int)
        self._empty: set[str] = set()
        """The ids of mirrors that are known to have no rows."""
        self.steps: list[steps.Step] = []

    # ---- mirrors

    def state(self, name: TableName) -> MirrorState | None:
        """The mirror of that name at this point; None if there is none. Raises MaskSaltError if its salt differs."""
        name = self._key(name)
        if name not in self._states:
            found = self._states[name] = self._lookup(name)
            if found is not None:
                self._rules.check_salt(found)
        return self._states[name]

    def add(self, step: steps.Step) -> None:
        """Adds the step, with what it changes for the steps after it."""
        self.steps.append(step)
        state = step.state
        match step:
            case steps.DropMirror():
                self._states[self._key(state.name)] = None
            case steps.CreateMirror() | steps.UpdateState() | steps.ChangeColumns() | steps.PurgeSurplusRows():
                self._states[self._key(state.name)] = state
            case steps.RenameMirror():
                if step.dropped_by is None:
                    self._states[self._key(step.before.name)] = None
                self._states[self._key(state.name)] = state
        match step:
            case steps.CreateMirror():
                self._empty.add(state.mirror_id)
            case steps.TruncateMirror() if not state.has_soft_delete:
                self._empty.add(state.mirror_id)
            case steps.ApplyRows() | steps.LoadBaseline() | steps.ExchangeRows():
                self._empty.difference_update(mirror.mirror_id for mirror in step.mirrors())

    def name_tables(self, tables: Iterable[tuple[TableName, TableName]]) -> None:
        """Sets which tables the next mirrors of these keys get: pairs of key and upstream's name."""
        self._upstream.update(tables)

    def require_same_table(self, key: TableName, names: Iterable[TableName] = ()) -> None:
        """Raises DeclarationError if the mirror has another table than these (or its next one), and no route merges them."""
        state, following = self.state(key), self._upstream.get(key)
        tables = [*(() if state is None else state.upstream_tables), *(names or ([following] if following else []))]
        found = {self._key(name): name for name in tables}
        if len(found) > 1 and not all(map(self._selection.merges, tables)):
            first, second, *_ = sorted(found.values())
            raise DeclarationError(
                f"routes: {first} and {second} would both be mirrored as {key}, and their routes do not merge tables. No "
                "mirror was changed. Route or exclude one of them, or set merge: true on the routes of all"
            )

    def named(self, state: MirrorState, upstream: TableName | None = None) -> MirrorState:
        """The state with the name that the mirror of this table (or of its next one) gets by the route."""
        upstream = upstream or self._upstream.get(self._key(state.name))
        if upstream is None:
            return state
        name = self._selection.mirror_name(upstream)
        is_routed = name != upstream and state.source_tables is None
        return replace(state, name=name, upstream=upstream if is_routed else None)

    def rename(self, state: MirrorState, new_name: TableName, upstream: TableName | None = None) -> MirrorState:
        """Renames the mirror as `named`. Returns its state."""
        renamed = self.named(replace(state, name=new_name), upstream)
        if renamed.name != state.name:
            self.add(steps.RenameMirror(renamed, state))
        elif renamed != state:
            self.add(steps.UpdateState(renamed))
        return renamed

    def exists(self, name: TableName) -> bool:
        """Whether the mirror exists, or rows before this point create it."""
        return self.state(name) is not None or bool(self._pending_segments(name))

    def names(self) -> list[TableName]:
        """The names of the mirrors that exist at this point, sorted."""
        return sorted(name for name in {*self._known, *self._groups, *self._states} if self.exists(name))

    def create(self, state: MirrorState, upstream: TableName | None = None) -> MirrorState:
        """Creates the mirror, with the columns and masks of the rules, as `named`. Returns its state."""
        state = self.named(state, upstream)
        declared = replace(state, metadata=self._rules.metadata, computed=self._rules.computed_for(state))
        created = self._rules.with_masks(declared, {})
        created = self._rules.with_soft_delete(created, self.key(created))
        self.add(steps.CreateMirror(created))
        return created

    def change_columns(
        self,
        before: MirrorState,
        after: MirrorState,
        origins: tuple[ColumnOrigin, ...],
        event: DdlEvent | None = None,
        kept: tuple[tuple[str, str], ...] = (),
        *,
        inherited_masks: Mapping[str, Mask] | None = None,
    ) -> MirrorState:
        """Changes the columns of the mirror. Returns its state: `after` with the masks of its columns.

        A masked column stays masked under its new name. The rules may mask further columns.

        event: the statement that changes them; None: a change of the pipeline, after which rows keep their values.
        inherited_masks: masks that columns take over from other columns.
        """
        masks = dict(before.masks)
        own = {
            origin.after.name: masks[origin.before.name]
            for origin in origins
            if origin.before is not None and origin.before.name in masks
        }
        masked = self._rules.with_masks(after, {**(inherited_masks or {}), **own}).with_gaps(
            *stale_hash_gaps(origins, masks)
        )
        if not before.schema.columns:
            masked = self._rules.with_soft_delete(masked, self.key(masked))
        elif before.soft_delete_key is not None:
            masked = self._keep_soft_delete(before, masked, origins)
        commit_ms, is_start = (event.es, event.is_start) if event is not None else (0, False)
        self._change(steps.ChangeColumns(masked, before, origins, commit_ms, kept, is_start))
        return masked

    def _keep_soft_delete(
        self, before: MirrorState, after: MirrorState, origins: tuple[ColumnOrigin, ...]
    ) -> MirrorState:
        """`after` with the soft-delete key of `before`. Purges deleted rows if upstream now has a column `_deleted`."""
        assert before.soft_delete_key is not None
        if after.schema.find(DELETED) is None:
            return replace(after, soft_delete_key=_key_after_alter(before.soft_delete_key, origins))
        self.add(steps.PurgeDeletedRows(before))
        return replace(after, soft_delete_key=None).with_gaps(HAS_OWN_DELETED)

    def key(self, state: MirrorState) -> tuple[str, ...]:
        """The columns that identify a row of the mirror; empty for a keyless table."""
        return state.key_columns(self.settings.keys)

    def apply_masks(self, state: MirrorState) -> MirrorState:
        """Masks the columns that the rules name and the mirror still shows. Returns the mirror's state."""
        self._rules.check_salt(state)
        if dict(self._rules.with_masks(state, dict(state.masks)).masks) == dict(state.masks):
            return state
        return self.change_columns(state, state, origins_by_name(state.schema, state.schema.columns))

    def apply_name_rules(self, state: MirrorState) -> MirrorState:
        """Adds the masks and computed columns that the rules declare for the mirror's new name. Returns its state."""
        state = self.apply_masks(state)
        computed = merged_columns(self._rules.computed_for(state), state.computed)
        if computed == state.computed:
            return state
        origins = origins_by_name(state.schema, state.schema.columns)
        return self.change_columns(state, replace(state, computed=computed), origins)

    def mask_all(self) -> None:
        """Masks the columns that the rules name in mirrors of earlier cuts."""
        for name in sorted(name for name in self._known if self._rules.has_masks_for(name)):
            state = self.state(name)
            if state is not None:
                self.apply_masks(state)

    def is_empty(self, state: MirrorState) -> bool:
        """Whether the mirror is known to have no rows."""
        return state.mirror_id in self._empty

    def add_gaps(self, name: TableName, *gaps: Gap) -> None:
        """Adds the gaps to the mirror, if it exists."""
        state = self.state(name)
        if state is None:
            return
        marked = state.with_gaps(*gaps)
        if marked != state:
            self.record_state(marked)

    def record_state(self, state: MirrorState) -> None:
        """Changes the mirror's properties. Its rows and columns stay as they are."""
        self._change(steps.UpdateState(state))

    def _change(self, step: steps.UpdateState | steps.ChangeColumns) -> None:
        """Adds the step, or includes it in the last one of a merged mirror: a thousand CREATE TABLE become one commit."""
        state, keeps_columns = step.state, isinstance(step, steps.ChangeColumns) and step.kept_columns
        if state.source_tables is not None and not keeps_columns:
            own = [index for index, other in enumerate(self.steps) if other.state.mirror_id == state.mirror_id]
            last = self.steps[own[-1]] if own else None
            if isinstance(last, steps.CreateMirror) or (
                isinstance(last, steps.UpdateState) and isinstance(step, steps.UpdateState)
            ):
                self.steps[own[-1]] = replace(last, state=state)
                self._states[self._key(state.name)] = state
                return
        self.add(step)

    # ---- rows

    def pass_event(self, name: TableName) -> None:
        """Moves on to the point after the next DDL event of the name."""
        self._passed_events[name] += 1

    def passed_events(self, name: TableName) -> int:
        """The number of DDL events of the name before this point."""
        return self._passed_events[name]

    def _pending_segments(self, name: TableName, *, everything: bool = False) -> list[int]:
        """The segments without a step that lie before this point, or (`everything`) all."""
        segments = self._groups.get(self._key(name), {})
        return sorted(segment for segment in segments if everything or segment <= self._passed_events[name])

    def discard_rows(self, name: TableName, *, everything: bool = False) -> None:
        """Discards the pending rows of the name that lie before this point, or (`everything`) all."""
        for segment in self._pending_segments(name, everything=everything):
            del self._groups[self._key(name)][segment]

    def names_with_rows(self) -> list[TableName]:
        """The names with rows."""
        return list(self._groups)

    def flush_rows(self, name: TableName, *, everything: bool = False) -> MirrorState | None:
        """Adds a step for the pending rows of the name that lie before this point, or (`everything`) for all. Returns the
        mirror's state.

        Creates the mirror if it does not exist.
        """
        name = self._key(name)
        segments = self._pending_segments(name, everything=everything)
        if not segments:
            return self.state(name)
        groups = [group for segment in segments for group in self._groups[name].pop(segment)]
        require_free_names(groups)
        spellings = inferred_schema.column_spellings(groups, self.state(name))
        groups = [inferred_schema.with_spellings(group, spellings) for group in groups] if spellings else groups
        state = self._make_keys_unique(self._fit_state(name, groups))
        state = self._take_name_of_rows(name, state, groups)
        if state.source_tables is not None:
            groups = [with_lacking_columns(group, state) for group in groups]
        key = self.key(state)
        lacking = tuple(column.name for column in inferred_schema.partial_columns(state.schema, key, groups))
        unknown = inferred_schema.unknown_columns(state, key, groups)
        # the merge treats rows with their handle key only one by one: they do not keep a column from being computed
        partial = inferred_schema.partial_columns(
            state.schema, key, [group for group in groups if not group.handle_key_only]
        )
        missing_in_deletes = inferred_schema.columns_missing_in_deletes(state, key, groups)
        missing = list(dict.fromkeys((*unknown, *inferred_schema.columns_in_no_row(missing_in_deletes, groups))))
        computed = () if partial else inferred_schema.computed_columns(state.schema, missing, self.time_zone)
        first = state.mirror_id in self._empty
        unfilled = [column for column in unknown if column not in computed]
        filtered = inferred_schema.filtered_columns(state.schema, key, groups, first=first)
        unfilled += [column for column in filtered if column not in unfilled]
        self.add_gaps(name, *absent_column_gaps(unfilled))
        state = self.state(name) or state
        self.add(
            steps.ApplyRows(
                state,
                name,
                tuple(segments),
                changes=sum(group.changes for group in groups),
                into_empty=first,
                encodings=encodings_of_groups(groups),
                absent=lacking,
                generated=tuple(column.name for column in computed),
                absent_in_deletes=tuple(column.name for column in missing_in_deletes if column not in computed),
                spellings=tuple(sorted(spellings.items())),
            )
        )
        self.add_gaps(name, *definition_gaps(state, groups, newest=everything))
        if not key:
            self.add_gaps(name, *inferred_schema.unsure_update_gaps(groups))
            self.add_gaps(name, *inferred_schema.exported_twice_gaps(state, groups))
        return self.state(name)

    def _take_name_of_rows(self, key: TableName, state: MirrorState, groups: Iterable[RowGroup]) -> MirrorState:
        """Renames the mirror as rows of MySQL spell it: in lower case with `lower_case_table_names=1`.

        Adds a gap if they show two tables. Returns the mirror's state.
        """
        starts_with_rows = state.inferred and any(gap.kind is GapKind.UNSEEN_START for gap in state.gaps)
        names: dict[TableName | None, set[TableName]] = defaultdict(set)
        for group in groups:
            if not dialect_has_trait(group.dialect, Trait.FROM_TIDB):
                names[group.source].update(group.spelled)
        for source, found in names.items():
            name = min(found, default=None)
            is_same = name is None or source is not None or self._selection.mirror_name(name) == state.name
            if name is not None and not is_same and len(found) == 1 and name == folded(name) and not starts_with_rows:
                return self.rename(state, key, name)
            # several names, or another one than that of former rows, or than a definition with other capital letters
            if len(found) > 1 or not is_same:
                self.add_gaps(key, name_gap(*found, *([] if is_same else [state.name])))
        return self.state(key) or state

    def _make_keys_unique(self, state: MirrorState) -> MirrorState:
        """Ensures, before rows are merged by key, that no two rows of a soft-delete mirror share a key.

        Returns the mirror's state.
        """
        key = self.key(state)
        if state.soft_delete_key is None or state.soft_delete_key == key:
            return state
        unique = replace(state, soft_delete_key=key)
        self.add(steps.PurgeSurplusRows(unique) if key else steps.UpdateState(unique))
        return unique

    def _fit_state(self, name: TableName, groups: list[RowGroup]) -> MirrorState:
        """Creates the mirror, or adds the columns that the rows have and no DDL declared. Returns its state."""
        state = self.state(name)
        tables = [table for group in groups for table in group.spelled]
        upstream = tables[0] if tables else None
        if tables:
            self.require_same_table(name, tables)
        is_merged = groups[0].source is not None
        before = state
        if before is None:
            mirror_id = f"{name}@cut{self._cut_id}.{len(self.steps)}"
            gaps, sources = ((), ()) if is_merged else ((inferred_schema.unseen_start(groups),), None)
            before = MirrorState(name, mirror_id, TableSchema(()), not is_merged, gaps, source_tables=sources)
        after = with_rows(before, groups) if is_merged else self._widened(before, groups)
        if state is None:
            return self.create(after, upstream)
        if after == before:
            return before
        if is_merged and row_shape(after.schema) == row_shape(before.schema):
            self.record_state(after)
            return after
        return self.change_columns(before, after, origins_by_name(before.schema, after.schema.columns))

    def _widened(self, state: MirrorState, groups: list[RowGroup]) -> MirrorState:
        schema, added = inferred_schema.widened_schema(state.schema, groups, inferred=state.inferred)
        if schema == state.schema:
            return state
        wider = replace(state, schema=schema, gaps=replace_type_gaps(state.gaps, schema.columns))
        return wider if state.inferred else wider.with_gaps(*inferred_schema.undeclared_column_gaps(added))


def _key_after_alter(key: tuple[str, ...], origins: Iterable[ColumnOrigin]) -> tuple[str, ...]:
    """The soft-delete key under the new column names.

    Empty if a column of it was dropped or changed its type: values that differed may be equal in the new type.
    """
    by_old_name = {origin.before.name: origin for origin in origins if origin.before is not None}
    found = [by_old_name.get(name) for name in key]
    if any(origin is None or origin.before is None or origin.before.type != origin.after.type for origin in found):
        return ()
    return tuple(origin.after.name for origin in found if origin is not None)
