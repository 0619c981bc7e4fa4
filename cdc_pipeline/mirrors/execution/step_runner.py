"""Carries out the steps of a cut on the mirrors, each in Delta commits of its own that are skipped when they are in.

Steps of tables that have no name in common run side by side; those of one table, and of tables that a rename or a
re-creation ties together, run in order.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from typing_extensions import assert_never

from cdc_pipeline.lake.delta import commit_metadata, table_state
from cdc_pipeline.lake.faults import is_everywhere
from cdc_pipeline.lake.paths import first_line
from cdc_pipeline.mirrors.execution.alter_columns import change_columns
from cdc_pipeline.mirrors.execution.mirror_folders import MirrorMoves
from cdc_pipeline.mirrors.execution.row_moves import delete_rows, exchange_rows, restore_rows
from cdc_pipeline.mirrors.execution.shard_rows import change_shard_rows
from cdc_pipeline.mirrors.execution.step_order import independent_chains, later_places
from cdc_pipeline.mirrors.merge.apply_rows import RowCounts, RowSteps
from cdc_pipeline.mirrors.merge.computed_values import update_derived
from cdc_pipeline.mirrors.merge.soft_deletes import end_rows, forget_deleted_rows, keep_one_per_key
from cdc_pipeline.mirrors.model.state import has_row_gaps, no_row_gaps, row_gaps
from cdc_pipeline.mirrors.model.steps import (
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
    touched,
)
from cdc_pipeline.spark.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from cdc_pipeline.gaps import Gap
    from cdc_pipeline.lake.delta import Commit
    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.merge.net_changes import RowSet
    from cdc_pipeline.mirrors.model.step_commits import CutCommits, StepCommits
    from cdc_pipeline.mysql.model.table import TableName

_ChangeOfMirror: TypeAlias = (
    ApplyRows
    | ChangeColumns
    | NoteState
    | KeepOnePerKey
    | ForgetDeleted
    | TruncateMirror
    | DeleteRows
    | ChangeShardRows
)
"""Steps of a mirror that stays where it is."""
_LONGEST_ERROR = 500


@dataclass
class StepResult:
    """What a step did, and in how many seconds."""

    step: Step
    counts: RowCounts = field(default_factory=RowCounts)
    seconds: float = 0.0


@dataclass(frozen=True)
class StepFailure:
    """A step of one table that could not be carried out, for a reason that is the table's own."""

    index: int
    step: Step
    error: Exception

    @property
    def words(self) -> str:
        return f"{type(self.error).__name__}: {first_line(self.error)}"[:_LONGEST_ERROR]


@dataclass
class StepsDone:
    """What became of a cut's steps, by their indexes: `left_out` are those that failed, and those that depend on them."""

    results: dict[int, StepResult] = field(default_factory=dict)
    failures: list[StepFailure] = field(default_factory=list)
    left_out: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Mirrors:
    """Where and as whom to write. `row_sets` are those of the ApplyRows steps, by the step's index; `rows` lets them in."""

    spark: SparkSession
    paths: LakePaths
    steps: Sequence[Step]
    row_sets: Mapping[int, RowSet]
    commits: CutCommits
    rows: RowSteps
    side_by_side: int

    def carried_out(self, report: Callable[[str], None]) -> StepsDone:
        """Runs all steps but those that depend on one that has failed. Raises the error at once, and begins no other step,
        where the reason is not the table's own."""
        done, moves = StepsDone(), MirrorMoves(self.spark, self.paths, later_places(self.paths, self.steps))
        stopped = threading.Event()

        def run(chain: list[int]) -> None:
            stuck: set[TableName] = set()
            for index in chain:
                step = self.steps[index]
                if stopped.is_set():
                    return
                if touched(step) & stuck:
                    stuck |= touched(step)
                    done.left_out.add(index)
                    continue
                started = time.monotonic()
                try:
                    result = self._run(index, step, moves)
                except Exception as error:
                    if is_everywhere(error):
                        stopped.set()
                        raise
                    stuck |= touched(step)
                    done.left_out.add(index)
                    done.failures.append(StepFailure(index, step, error))
                    continue
                result.seconds = time.monotonic() - started
                done.results[index] = result
                report(f"{type(step).__name__} {step.state.name} {result.seconds:.1f} s")

        side_by_side(self.spark, run, independent_chains(self.steps), self.side_by_side)
        return done

    # ---- one step

    def _run(self, index: int, step: Step, moves: MirrorMoves) -> StepResult:
        result, commits = StepResult(step), self.commits.step(index)
        path = self.paths.mirror(step.state.name)
        match step:
            case CreateMirror():
                moves.create(path, step.state, commits(0))
            case RenameMirror():
                moves.rename(step, commits)
            case DropMirror():
                moves.drop(step, self.commits.step(index + 1))
            case RestoreMirror():
                moves.restore(step, commits)
            case RestoreRows():
                moves.create(path, step.state, commits(0))
                if self._is_there(path, step, moves):
                    self._restore_rows(path, step, commits)
            case ExchangeRows():
                self._exchange(index, step, commits, moves)
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
                if self._is_there(path, step, moves):
                    self._change(path, index, step, commits, result)
                elif isinstance(step, ApplyRows):
                    result.counts = self.rows.found_again(step, self.row_sets[index])
            case _:
                assert_never(step)
        return result

    def _is_there(self, path: str, step: Step, moves: MirrorMoves) -> bool:
        """False where a later step has moved the mirror already: then this one is in."""
        if moves.is_at(path, step.state):
            return True
        moves.require_elsewhere(path, step.state)
        return False

    def _change(self, path: str, index: int, step: _ChangeOfMirror, commits: StepCommits, result: StepResult) -> None:
        match step:
            case ApplyRows():
                result.counts = self.rows.let_in(path, step, self.row_sets[index], commits, self._notes(path))
            case ChangeColumns():
                time_zone, salt = self.rows.time_zone, self.rows.salt
                change_columns(self.spark, path, step, commits, time_zone, salt, self._notes(path))
            case NoteState():
                commit_metadata(self.spark, path, commits(0), properties=step.state.properties())
            case KeepOnePerKey():
                keep_one_per_key(self.spark, path, step.state, commits(0))
                commit_metadata(self.spark, path, commits(1), properties=step.state.properties())
            case ForgetDeleted():
                forget_deleted_rows(self.spark, path, commits(0))
            case TruncateMirror():
                self._truncate(path, step, commits)
            case DeleteRows():
                result.counts.merged = delete_rows(self.spark, path, step, commits, self._notes(path))
            case ChangeShardRows():
                change_shard_rows(self.spark, path, step, commits, self.rows.time_zone, self._notes(path))
                if step.state.derived_shown:
                    update_derived(self.spark, path, step.state, step.state.derived_shown, commits(3))
            case _:
                assert_never(step)

    def _notes(self, path: str) -> Callable[[Sequence[Gap], Commit], None]:
        """Notes what is found missing while rows are written, before they are written."""

        def note(gaps: Sequence[Gap], commit: Commit) -> None:
            table = table_state(self.spark, path)
            if gaps and table is not None:
                commit_metadata(self.spark, path, commit, properties=row_gaps(table, *gaps))

        return note

    def _restore_rows(self, path: str, step: RestoreRows, commits: StepCommits) -> None:
        source = self.paths.mirror(step.source.name)
        restore_rows(self.spark, source, path, step, commits, self._notes(path))

    def _exchange(self, index: int, step: ExchangeRows, commits: StepCommits, moves: MirrorMoves) -> None:
        places = []
        for state in (step.state, step.other):
            path = self.paths.mirror(state.name)
            there = moves.is_at(path, state)
            if not there:
                moves.require_elsewhere(path, state)
            places.append(path if there else None)
        staged = f"{self.paths.home}/staged/exchange-{self.commits.cut_id}-{index}"
        notes = self._notes(self.paths.mirror(step.state.name))
        exchange_rows(self.spark, places[0], places[1], staged, step, commits, notes)

    def _truncate(self, path: str, step: TruncateMirror, commits: StepCommits) -> None:
        state = step.state
        was = {"masks": state.masks, "mask_key": state.mask_key, "keeps_deleted": state.keeps_deleted}
        marked = commits(0, truncated=step.mark, **was) if step.mark else commits(0)
        end_rows(self.spark, path, None, marked, keeps_deleted=state.keeps_deleted and bool(step.mark))
        table = table_state(self.spark, path)
        if table is not None and has_row_gaps(table):
            # what was found missing in rows is gone with them
            commit_metadata(self.spark, path, commits(1), properties=no_row_gaps())
