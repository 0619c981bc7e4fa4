"""Runs the steps of a cut on the mirrors. Each step makes its own Delta commits and skips those that exist already.

Steps of tables without a common name run in parallel. Steps of one table, and of tables that share a name by RENAME or
CREATE, run in order.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from typing_extensions import assert_never

from cdc_pipeline.lake.delta import commit_metadata
from cdc_pipeline.lake.faults import affects_all_tables
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import first_line, hadoop_path, is_local_path
from cdc_pipeline.mirrors.execution.alter_columns import change_columns
from cdc_pipeline.mirrors.execution.mirror_folders import MirrorFolders
from cdc_pipeline.mirrors.execution.row_moves import delete_rows, exchange_rows, truncate_rows
from cdc_pipeline.mirrors.execution.source_rows import change_source_rows
from cdc_pipeline.mirrors.merge.apply_rows import RowCounts, RowMerger
from cdc_pipeline.mirrors.merge.computed_values import recompute_columns
from cdc_pipeline.mirrors.merge.row_entries import RowSet
from cdc_pipeline.mirrors.merge.soft_deletes import purge_deleted_rows, purge_surplus_rows
from cdc_pipeline.mirrors.merge.step_context import StepContext
from cdc_pipeline.mirrors.model.step_commits import CutCommits
from cdc_pipeline.mirrors.model.steps import (
    ApplyRows,
    ChangeColumns,
    ChangeSourceRows,
    CreateMirror,
    DeleteRows,
    DropMirror,
    ExchangeRows,
    LoadBaseline,
    PurgeDeletedRows,
    PurgeSurplusRows,
    RenameMirror,
    Step,
    TruncateMirror,
    UpdateState,
)
from cdc_pipeline.mysql.model.change_names import folded
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.threads import map_in_threads

_LONGEST_ERROR = 500
_JVM_ENDS = re.compile(r"OutOfMemoryError|SparkContext (was|has been) (shut ?down|stopped)")


@dataclass(frozen=True)
class StepResult:
    """A finished step."""

    step: Step
    counts: RowCounts
    seconds: float


@dataclass(frozen=True)
class StepFailure:
    """A step that failed for a reason that concerns its table only."""

    index: int
    step: Step
    error: Exception
    chain: tuple[int, ...] = ()
    """The indexes of all steps of its table and of tables that share a name with it."""

    @property
    def message(self) -> str:
        """The error in one line of up to 500 characters."""
        return f"{type(self.error).__name__}: {first_line(self.error)}"[:_LONGEST_ERROR]


@dataclass
class StepResults:
    """The results of a cut's steps."""

    results: dict[int, StepResult] = field(default_factory=dict)
    """By the step's index."""
    failures: list[StepFailure] = field(default_factory=list)


@dataclass(frozen=True)
class StepRunner:
    """Runs the steps of one cut."""

    lake: Lake
    steps: Sequence[Step]
    row_sets: Mapping[int, RowSet]
    """The rows of each ApplyRows step, by the step's index."""
    commits: CutCommits
    rows: RowMerger
    """Merges the rows of ApplyRows steps."""
    threads: int
    """The number of threads (`merge_threads`)."""
    marks: str | None = None
    """The beginning of the paths for `_marked`, before the index of the step. None: no marks."""
    given_up: Mapping[int, Exception] = field(default_factory=dict)
    """Steps that fail without running, each with its error."""

    def run(self, report: Callable[[str], None]) -> StepResults:
        """Runs all steps, except those after a failed one in its chain.

        Raises an error that concerns more than one table at once, and starts no further step. `report` receives one line
        per step.
        """
        done, folders = StepResults(), MirrorFolders(self.lake, self.steps)
        stopped = threading.Event()

        def run(chain: list[int]) -> None:
            for index in chain:
                step = self.steps[index]
                if stopped.is_set():
                    return
                started = time.monotonic()
                try:
                    if index in self.given_up:
                        raise self.given_up[index]
                    counts = self._run(index, step, folders)
                except Exception as error:
                    if affects_all_tables(error):
                        stopped.set()
                        raise
                    done.failures.append(StepFailure(index, step, error, tuple(chain)))
                    return
                seconds = time.monotonic() - started
                done.results[index] = StepResult(step, counts, seconds)
                report(f"{type(step).__name__} {step.state.name} {seconds:.1f} s")

        map_in_threads(self.lake.spark, run, independent_chains(self.steps), self.threads)
        return done

    # ---- one step

    def _run(self, index: int, step: Step, folders: MirrorFolders) -> RowCounts:
        path = step.state.folder(self.lake.paths)
        context = StepContext(self.lake.spark, path, self.commits.step(index), self.rows.time_zone, self.rows.salt)
        moves_folders = isinstance(step, (CreateMirror, RenameMirror, DropMirror, ExchangeRows))
        if moves_folders or folders.is_in_place(path, step.state):
            with _marked(self.lake.spark, None if moves_folders else self.marks and f"{self.marks}-{index}"):
                return self._run_on_mirror(index, step, context, folders)
        return self.rows.recount(step, self.row_sets[index]) if isinstance(step, ApplyRows) else RowCounts()

    def _run_on_mirror(self, index: int, step: Step, context: StepContext, folders: MirrorFolders) -> RowCounts:
        spark, path, commits = context.spark, context.path, context.commits
        match step:
            case CreateMirror():
                folders.create(path, step.state, commits(0))
            case RenameMirror():
                folders.rename(step, commits)
            case DropMirror():
                folders.drop(step, commits, self.commits.step(index + 1))
            case ExchangeRows():
                other = step.other.folder(self.lake.paths)
                exchange_rows(
                    context,
                    step,
                    path if folders.is_in_place(path, step.state) else None,
                    other if folders.is_in_place(other, step.other) else None,
                    f"{self.lake.paths.home}/staged/exchange-{self.commits.cut_id}-{index}",
                )
            case ApplyRows():
                return self.rows.apply(context, step, self.row_sets[index])
            case LoadBaseline():
                return self.rows.load(context, step)
            case ChangeColumns():
                change_columns(context, step)
            case UpdateState():
                commit_metadata(spark, path, commits(0), properties=step.state.properties())
            case PurgeSurplusRows():
                purge_surplus_rows(spark, path, step.state, commits(0))
                commit_metadata(spark, path, commits(1), properties=step.state.properties())
            case PurgeDeletedRows():
                purge_deleted_rows(spark, path, commits(0))
            case TruncateMirror():
                truncate_rows(context, step)
            case DeleteRows():
                return RowCounts(delete_rows(context, step))
            case ChangeSourceRows():
                change_source_rows(context, step)
                if step.state.computed_shown:
                    recompute_columns(spark, path, step.state, step.state.computed_shown, commits(3))
            case _:
                assert_never(step)
        return RowCounts()


def independent_chains(steps: Sequence[Step]) -> list[list[int]]:
    """Groups the indexes of the steps: steps in different chains share no name, in any case, and can run in parallel."""
    leader: dict[TableName, TableName] = {}

    def find(name: TableName) -> TableName:
        leader.setdefault(name, name)
        while leader[name] != name:
            name = leader[name]
        return name

    for step in steps:
        first, *others = map(folded, step.names())
        for other in others:
            leader[find(other)] = find(first)
        find(first)
    chains: dict[TableName, list[int]] = defaultdict(list)
    for index, step in enumerate(steps):
        chains[find(folded(step.names()[0]))].append(index)
    return list(chains.values())


@contextlib.contextmanager
def _marked(spark: SparkSession, folder: str | None) -> Iterator[None]:
    """Keeps an empty folder while a step runs. If the process or its JVM ends, it remains for the next run."""
    if folder is None:
        yield
        return
    make, remove = _folder_operations(spark, folder)
    make()
    try:
        yield
    except Exception as error:
        if not _JVM_ENDS.search("".join(traceback.format_exception(error))):
            with contextlib.suppress(Exception):
                remove()
        raise
    remove()


def _folder_operations(spark: SparkSession, folder: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """What creates the empty folder, and what removes it. Hadoop would start processes for a local one."""
    if is_local_path(folder):
        return partial(Path(folder).mkdir, parents=True, exist_ok=True), partial(
            shutil.rmtree, folder, ignore_errors=True
        )
    filesystem, path = hadoop_path(spark, folder)
    return partial(filesystem.mkdirs, path), partial(filesystem.delete, path, False)
