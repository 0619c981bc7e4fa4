"""Carries out the steps of a cut on the mirrors, each in Delta commits of its own that are skipped when they are in.

Steps of tables that have no name in common run side by side; those of one table, and of tables that a rename or a
re-creation ties together, run in order.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from typing_extensions import assert_never

from cdc_pipeline.dialects.canal import CANAL
from cdc_pipeline.errors import LakeError
from cdc_pipeline.mirrors.columns import MAPPING, change_columns, needs_mapping
from cdc_pipeline.mirrors.dead_letters import value_letters
from cdc_pipeline.mirrors.derived_values import DerivedValues, update_derived
from cdc_pipeline.mirrors.masked_values import folded_images, masked_cells, with_masks
from cdc_pipeline.mirrors.masks import NULL
from cdc_pipeline.mirrors.partial_rows import absent_defaults
from cdc_pipeline.mirrors.row_findings import row_findings
from cdc_pipeline.mirrors.row_moves import rows_deleted, rows_exchanged, rows_restored
from cdc_pipeline.mirrors.rows import (
    Merged,
    append_rows,
    merge_keyed,
    merge_keyless,
    rows_of_unknown,
    typed_rows,
    with_computed,
)
from cdc_pipeline.mirrors.shard_rows import shard_rows_changed
from cdc_pipeline.mirrors.soft_deletes import deleted_forgotten, one_kept_per_key, rows_ended
from cdc_pipeline.mirrors.state import has_row_gaps, no_row_gaps, row_gaps
from cdc_pipeline.mirrors.step_order import independent_chains
from cdc_pipeline.mirrors.steps import (
    ApplyRows,
    ChangeColumns,
    ChangeShardRows,
    CreateMirror,
    DeleteRows,
    DropMirror,
    ExchangeRows,
    ForgetDeleted,
    KeepOnePerKey,
    NoteState,
    RenameMirror,
    RestoreMirror,
    RestoreRows,
    Step,
    TruncateMirror,
)
from cdc_pipeline.resources.delta import (
    Commit,
    append_once,
    commit_metadata,
    create_table,
    forget_cached_log,
    is_in,
    session_for,
    stored_bytes,
    table_state,
)
from cdc_pipeline.resources.few_rows import are_few
from cdc_pipeline.resources.lake import move_folder
from cdc_pipeline.resources.null_on_error import fit
from cdc_pipeline.resources.threads import side_by_side
from cdc_pipeline.schemas.gaps import Gap, GapKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.mirrors.order import RowSet
    from cdc_pipeline.mirrors.state import MirrorState
    from cdc_pipeline.resources.lake import LakePaths

_COMMITS_PER_STEP = 100
COMMITS_OF_A_CUT = 1_000_000 * _COMMITS_PER_STEP
"""The numbers of a cut's commits to a mirror begin with its own, times this."""
SMALL_MIRROR = 4 * 2**20
"""Bytes up to which a merge writes files of a mirror anew: to mark rows in them takes one pass more and leaves one file more
each time, which costs more than to write some MB."""
TINY_MIRROR = 2**20
"""Bytes up to which a mirror has few rows, as `few_rows` has it: some ten thousand narrow ones."""
_CREATION = {
    # deletes and updates mark rows instead of copying files: 7 KB against 20 MB for 1000 rows of 2 million
    "delta.enableDeletionVectors": "true",
}


@dataclass
class StepResult:
    """What a step did: rows of the mirror, bad values kept out (`rejected` counts changes, not halves of them), dates
    that became NULL, seconds."""

    step: Step
    merged: Merged = field(default_factory=Merged)
    identities: int = 0
    bad_rows: int = 0
    rejected: int = 0
    zero_dates: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Mirrors:
    """Where and as whom to write. `net_view` is the global temporary view of `order.net_changes`."""

    spark: SparkSession
    paths: LakePaths
    cut_id: int
    note: dict[str, Any]
    time_zone: str
    net_view: str
    side_by_side: int
    later_places: dict[str, list[str]]
    """Where renames and drops of this cut take mirrors, by mirror id: a cut that is run again finds them there."""
    resumed: bool
    """Whether some of the steps may be done already."""
    salt: str = field(default="", repr=False)
    """That of masked values (`mask_salt`)."""

    def carried_out(
        self, steps: Sequence[Step], row_sets: dict[int, RowSet], report: Callable[[str], None]
    ) -> list[StepResult]:
        """Runs all steps; results in the order of `steps`. The first error stops what depends on it and is raised."""
        results: dict[int, StepResult] = {}

        def run(chain: list[int]) -> None:
            for index in chain:
                started = time.monotonic()
                result = self._run(index, steps[index], row_sets.get(index))
                result.seconds = time.monotonic() - started
                results[index] = result
                report(f"{type(steps[index]).__name__} {steps[index].state.name} {result.seconds:.1f} s")

        side_by_side(self.spark, run, independent_chains(steps), self.side_by_side)
        return [results[index] for index in range(len(steps))]

    # ---- one step

    def _commit(self, index: int, part: int) -> Commit:
        version = self.cut_id * COMMITS_OF_A_CUT + index * _COMMITS_PER_STEP + part
        return Commit(f"cdc:{self.paths.pipeline}:mirror", version, {**self.note, "step": index})

    def _run(self, index: int, step: Step, row_set: RowSet | None) -> StepResult:
        result = StepResult(step)
        match step:
            case CreateMirror():
                self._create(self.paths.mirror(step.state.name), step.state, self._commit(index, 0))
            case RenameMirror():
                self._rename(step, self._commit(index, 0))
            case DropMirror():
                self._drop(step)
            case RestoreMirror():
                self._restore(step, self._commit(index, 0))
            case RestoreRows():
                self._restore_rows(step, index)
            case ExchangeRows():
                self._exchange(step, index)
            case (
                ApplyRows()
                | ChangeColumns()
                | NoteState()
                | KeepOnePerKey()
                | ForgetDeleted()
                | TruncateMirror()
                | DeleteRows()
                | ChangeShardRows()
            ):
                path = self.paths.mirror(step.state.name)
                if not self._is_gone_with_a_later_step(path, step.state):
                    self._change(path, index, step, row_set, result)
            case _:
                assert_never(step)
        return result

    def _change(
        self,
        path: str,
        index: int,
        step: ApplyRows
        | ChangeColumns
        | NoteState
        | KeepOnePerKey
        | ForgetDeleted
        | TruncateMirror
        | DeleteRows
        | ChangeShardRows,
        row_set: RowSet | None,
        result: StepResult,
    ) -> None:
        """A step of a mirror that stays where it is."""
        match step:
            case ApplyRows():
                assert row_set is not None
                self._apply_rows(path, step, row_set, index, result)
            case ChangeColumns():
                change_columns(
                    self.spark, path, step, lambda part: self._commit(index, part), self.time_zone, self.salt
                )
            case NoteState():
                commit_metadata(self.spark, path, self._commit(index, 0), properties=step.state.properties())
            case KeepOnePerKey():
                one_kept_per_key(self.spark, path, step.state, self._commit(index, 0))
                commit_metadata(self.spark, path, self._commit(index, 1), properties=step.state.properties())
            case ForgetDeleted():
                deleted_forgotten(self.spark, path, self._commit(index, 0))
            case TruncateMirror():
                self._truncate(path, step, index)
            case DeleteRows():
                result.merged, gaps = rows_deleted(self.spark, path, step, self._commit(index, 1))
                self._note_gaps(path, gaps, self._commit(index, 2))
            case ChangeShardRows():
                gaps = shard_rows_changed(self.spark, path, step, self._commit(index, 1), self.time_zone)
                self._note_gaps(path, gaps, self._commit(index, 2))
                if step.state.derived_shown:
                    update_derived(self.spark, path, step.state, step.state.derived_shown, self._commit(index, 3))
            case _:
                assert_never(step)

    def _note_gaps(self, path: str, gaps: Sequence[Gap], commit: Commit) -> None:
        """What was found missing while rows were written."""
        table = table_state(self.spark, path)
        if gaps and table is not None:
            commit_metadata(self.spark, path, commit, properties=row_gaps(table, *gaps))

    def _is_gone_with_a_later_step(self, path: str, state: MirrorState) -> bool:
        """When a cut that was cut short is run again, a later rename or drop may have moved the mirror already."""
        table = table_state(self.spark, path)
        return table is None or table.properties.get("cdc.mirror_id") != state.mirror_id

    def _create(self, path: str, state: MirrorState, commit: Commit) -> None:
        if self._stands_elsewhere(state):
            return
        table = table_state(self.spark, path)
        if table is not None:
            if table.properties.get("cdc.mirror_id") == state.mirror_id:
                return
            raise LakeError(f"{path} holds another table than the {state.name} to be made there")
        settings = {**_CREATION, **state.properties()}
        if needs_mapping(state.spark_schema().names):
            settings[MAPPING] = "name"
        create_table(self.spark, path, commit, schema=state.spark_schema(), properties=settings)

    def _stands_elsewhere(self, state: MirrorState) -> bool:
        """Whether this mirror is already where a later step of the same cut takes it."""
        return any(
            not self._is_gone_with_a_later_step(path, state) for path in self.later_places.get(state.mirror_id, ())
        )

    def _rename(self, step: RenameMirror, commit: Commit) -> None:
        old, new = self.paths.mirror(step.before.name), self.paths.mirror(step.state.name)
        there = table_state(self.spark, old)
        if there is not None and there.properties.get("cdc.mirror_id") == step.state.mirror_id:
            move_folder(self.spark, old, new)
            forget_cached_log(self.spark, old)
            forget_cached_log(self.spark, new)
        if not self._is_gone_with_a_later_step(new, step.state):
            commit_metadata(self.spark, new, commit, properties=step.state.properties())

    def _drop(self, step: DropMirror) -> None:
        path = self.paths.mirror(step.state.name)
        table = table_state(self.spark, path)
        if table is None or table.properties.get("cdc.mirror_id") != step.state.mirror_id:
            return
        move_folder(self.spark, path, self.paths.dropped(step.state.name, step.mark))
        forget_cached_log(self.spark, path)

    def _restore(self, step: RestoreMirror, commit: Commit) -> None:
        aside, path = self.paths.dropped(step.before.name, step.mark), self.paths.mirror(step.state.name)
        table = table_state(self.spark, aside)
        if table is not None and table.properties.get("cdc.mirror_id") == step.state.mirror_id:
            move_folder(self.spark, aside, path)
            forget_cached_log(self.spark, aside)
            forget_cached_log(self.spark, path)
        if not self._is_gone_with_a_later_step(path, step.state):
            commit_metadata(self.spark, path, commit, properties=step.state.properties())

    def _restore_rows(self, step: RestoreRows, index: int) -> None:
        source, path = self.paths.mirror(step.source.name), self.paths.mirror(step.state.name)
        self._create(path, step.state, self._commit(index, 0))
        if not self._is_gone_with_a_later_step(path, step.state):
            gaps = rows_restored(self.spark, source, path, step, self._commit(index, 1))
            self._note_gaps(path, gaps, self._commit(index, 2))

    def _exchange(self, step: ExchangeRows, index: int) -> None:
        places = [
            None if self._is_gone_with_a_later_step(path, state) else path
            for state in (step.state, step.other)
            for path in [self.paths.mirror(state.name)]
        ]
        staged = f"{self.paths.home}/staged/exchange-{self.cut_id}-{index}"
        gaps = rows_exchanged(self.spark, places[0], places[1], staged, step, self._commit(index, 1))
        if places[0] is not None:
            self._note_gaps(places[0], gaps, self._commit(index, 2))

    def _truncate(self, path: str, step: TruncateMirror, index: int) -> None:
        commit = self._commit(index, 0)
        state = step.state
        was = {"masks": state.masks, "mask_key": state.mask_key, "keeps_deleted": state.keeps_deleted}
        marked = replace(commit, note={**commit.note, "truncated": step.mark, **was}) if step.mark else commit
        rows_ended(self.spark, path, None, marked, keeps_deleted=state.keeps_deleted and bool(step.mark))
        table = table_state(self.spark, path)
        if table is not None and has_row_gaps(table):
            # what was found missing in rows is gone with them
            commit_metadata(self.spark, path, self._commit(index, 1), properties=no_row_gaps())

    # ---- rows

    def _apply_rows(self, path: str, step: ApplyRows, row_set: RowSet, index: int, result: StepResult) -> None:
        commit = self._commit(index, 1)
        if self.resumed and is_in(self.spark, path, commit):
            return
        size = stored_bytes(self.spark, path)
        few = are_few(step.changes) and size <= TINY_MIRROR
        session = session_for(self.spark, commit, whole_files=size <= SMALL_MIRROR, few=few)
        net = session.table(f"global_temp.{self.net_view}").where(F.col("step") == index)
        schema, key, keyless = step.state.schema, row_set.columns, row_set.keyless
        trace, soft = step.state.trace, step.state.keeps_deleted
        derived = DerivedValues(fit(session), step.state) if step.state.derived_shown else None
        absent, gaps = absent_defaults(schema, step.lacking, self.time_zone, step.wires)
        absent = {**dict.fromkeys(step.untold), **absent}
        masks = dict(step.state.masks)
        rows = typed_rows(net, schema, key, self.time_zone, step.wires, keyless=keyless, absent=absent, masked=masks)
        rows = with_computed(rows, schema, step.computed, self.time_zone)
        rows = with_masks(rows, masked_cells(step.state), self.salt)
        if step.lacking and (unknown := rows_of_unknown(session, path, rows, schema, key, soft=soft)):
            words = f"{unknown} row(s) came without some columns, and were not known: {', '.join(step.lacking)}"
            gaps = (*gaps, Gap(GapKind.UNKNOWN_ROWS, words))
        there = self._set_bad_rows_aside(rows, step.state, row_set, index, result, gaps)
        good = rows.where("size(bad) = 0") if result.bad_rows else rows
        if step.into_empty:
            append_rows(path, good, schema, keyless, commit, trace, derived, soft=soft)
            result.merged = Merged(inserted=there)
        elif keyless:
            good = folded_images(good, len(schema.columns)) if NULL in masks.values() else good
            result.merged = merge_keyless(session, path, good, schema, step.state.kept, trace, derived, soft=soft)
        else:
            computed = step.computed if absent else ()
            # in a partition Canal's order is the binlog's, and what comes again is told and left out
            in_order = all(dialect == CANAL.name for dialect, _ in step.wires)
            result.merged = merge_keyed(
                session, path, good, schema, key, absent, computed, trace, derived, soft=soft, in_order=in_order
            )

    def _set_bad_rows_aside(
        self,
        rows: DataFrame,
        state: MirrorState,
        row_set: RowSet,
        index: int,
        result: StepResult,
        known_gaps: tuple[Gap, ...],
    ) -> int:
        """Rows with a value that its type cannot hold become dead letters, and the mirror is marked as having a gap.

        So it is for the other findings, and for `known_gaps`. Returns how many rows the others are where the mirror has
        none before.
        """
        found = row_findings(rows, keyless=row_set.keyless)
        result.identities, result.bad_rows, result.zero_dates = found.identities, found.bad, found.zero_dates
        result.rejected = found.rejected
        gaps = [*known_gaps, *found.gaps]
        if result.bad_rows:
            raw = self.spark.read.format("delta").load(self.paths.table("raw_topic_snapshot"))
            place = Commit(
                f"cdc:{self.paths.pipeline}:bad_rows:{state.mirror_id}", self._commit(index, 0).version, self.note
            )
            append_once(value_letters(rows, state, raw), self.paths.table("dead_letters"), place)
            words = f"{result.bad_rows} row(s) with values that their types cannot hold: see dead_letters"
            gaps.append(Gap(GapKind.BAD_VALUES, words))
        self._note_gaps(self.paths.mirror(state.name), gaps, self._commit(index, 0))
        return found.there
