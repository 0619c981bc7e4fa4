"""Mirrors that are made, renamed, dropped and brought back: steps that are folders more than commits.

A run that finishes another's cut walks all steps again, and a mirror may stand where a later step has taken it: then an
earlier one must not take it back. A mirror is known by its id; how far it is, by the number of its newest commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import commit_metadata, create_table, forget_cached_log, is_in, table_state
from cdc_pipeline.lake.folder_moves import move_folder
from cdc_pipeline.mirrors.execution.alter_columns import MAPPING, needs_mapping

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.delta import Commit
    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mirrors.model.step_commits import StepCommits
    from cdc_pipeline.mirrors.model.steps import DropMirror, RenameMirror, RestoreMirror

_CREATION = {
    # deletes and updates mark rows instead of copying files: 7 KB against 20 MB for 1000 rows of 2 million
    "delta.enableDeletionVectors": "true",
}


def move_mirror(spark: SparkSession, paths: LakePaths, source: str, target: str) -> None:
    """Takes the folder of a mirror to another place, where nothing is."""
    move_folder(spark, source, target, paths.moves)
    for path in (source, target):
        forget_cached_log(spark, path)


@dataclass(frozen=True)
class MirrorMoves:
    """`later_places` are the folders to which the cut's steps take mirrors, by mirror id."""

    spark: SparkSession
    paths: LakePaths
    later_places: Mapping[str, Sequence[str]]

    def is_at(self, path: str, state: MirrorState) -> bool:
        """Whether this very mirror stands there."""
        table = table_state(self.spark, path)
        return table is not None and table.properties.get("cdc.mirror_id") == state.mirror_id

    def require_elsewhere(self, path: str, state: MirrorState) -> None:
        """Raises LakeError where the mirror, which is not at the path, is not where a later step takes it either: then the
        step before was not done."""
        if not self._stands_elsewhere(state):
            raise LakeError(
                f"the mirror {state.name} is not at {path}, where the plan of the cut has it, nor where the cut takes it",
                pipeline=self.paths.pipeline,
            )

    def create(self, path: str, state: MirrorState, commit: Commit) -> None:
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

    def rename(self, step: RenameMirror, commits: StepCommits) -> None:
        old, new = self.paths.mirror(step.before.name), self.paths.mirror(step.state.name)
        self._taken(old, new, step.state, commits(0))

    def restore(self, step: RestoreMirror, commits: StepCommits) -> None:
        aside, path = self.paths.dropped(step.before.name, step.mark), self.paths.mirror(step.state.name)
        self._taken(aside, path, step.state, commits(0))

    def drop(self, step: DropMirror, after: StepCommits) -> None:
        """`after` are the commits of the step that follows."""
        path = self.paths.mirror(step.state.name)
        # with a commit of a later step it was dropped already, and has come back
        if self.is_at(path, step.state) and not is_in(self.spark, path, after(0)):
            move_mirror(self.spark, self.paths, path, self.paths.dropped(step.state.name, step.mark))

    def _taken(self, source: str, target: str, state: MirrorState, commit: Commit) -> None:
        """The mirror goes from one folder to the other, where it says of itself what `state` does."""
        # with this commit it was taken there already, and a later step has taken it back
        if self.is_at(source, state):
            if is_in(self.spark, source, commit):
                return
            move_mirror(self.spark, self.paths, source, target)
        if self.is_at(target, state):
            commit_metadata(self.spark, target, commit, properties=state.properties())
        else:
            self.require_elsewhere(target, state)

    def _stands_elsewhere(self, state: MirrorState) -> bool:
        """Whether this mirror is already where a later step of the same cut takes it."""
        return any(self.is_at(path, state) for path in self.later_places.get(state.mirror_id, ()))
