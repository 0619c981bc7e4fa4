"""Steps that create, rename, drop or restore the folder of a mirror.

A resumed run walks all steps again, and a later step may have moved a mirror already: an earlier step must not move it
back. Properties identify the mirror (`cdc.mirror_id`); its newest commit number shows how far it is. In a lake that is not
local, mirrors do not move (`LakePaths.mirror_folder`): renames and drops are commits of properties only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import Commit, commit_metadata, create_table, forget_cached_log, is_committed, table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import remove_folder
from cdc_pipeline.mirrors.execution.alter_columns import MAPPING, needs_mapping
from cdc_pipeline.mirrors.model.state import DROPPED_BY, MirrorState
from cdc_pipeline.mirrors.model.step_commits import StepCommits
from cdc_pipeline.mirrors.model.steps import DropMirror, RenameMirror, Step

_CREATION = {
    # deletes and updates mark rows instead of copying files: 7 KB against 20 MB for 1000 rows of 2 million
    "delta.enableDeletionVectors": "true",
    # Spark's default; that of delta-rs is 100, and to read so many commits takes it longer than to rewrite the mirror
    "delta.checkpointInterval": "10",
}


def move_mirror(lake: Lake, source: str, target: str) -> None:
    """Moves the folder of a mirror of a local lake to `target`, which must not exist. Raises LakeError if it does."""
    move_folder(source, target)
    for path in (source, target):
        forget_cached_log(lake.spark, path)


def move_folder(source: str, target: str) -> None:
    if os.path.lexists(target):
        raise LakeError(f"cannot move {source} to {target}: the target exists")
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(source).rename(target)


@dataclass(frozen=True)
class MirrorFolders:
    """Runs the folder steps of one cut."""

    lake: Lake
    steps: Sequence[Step]
    """All steps of the cut."""

    def is_in_place(self, path: str, state: MirrorState) -> bool:
        """Whether the mirror is at `path`. False if a step of the cut has moved it already, so that this one is done.

        Raises LakeError if the mirror is in neither place.
        """
        if self._is_at(path, state):
            return True
        if self._is_moved(state):
            return False
        raise self.lake.error(
            f"the mirror {state.name} is not at {path}, where the plan of the cut expects it, nor in a folder to which "
            "the cut moves it: restore the folder, or rebuild the table"
        )

    def _is_at(self, path: str, state: MirrorState) -> bool:
        """Whether this mirror, by its id, is at the path."""
        table = table_state(self.lake.spark, path)
        return table is not None and table.properties.get("cdc.mirror_id") == state.mirror_id

    def create(self, path: str, state: MirrorState, commit: Commit) -> None:
        """Creates the empty mirror unless it exists. Raises LakeError if the folder holds another table."""
        spark = self.lake.spark
        if self._is_moved(state) if self.lake.paths.is_local else is_committed(spark, path, commit):
            return
        table = table_state(spark, path)
        if table is not None and not self.lake.paths.is_local:
            # left by a cut that a rebuild abandoned, where `Rebuilder` sets nothing aside
            remove_folder(spark, path)
            forget_cached_log(spark, path)
        elif table is not None:
            if table.properties.get("cdc.mirror_id") == state.mirror_id:
                return
            raise LakeError(
                f"cannot create the mirror {state.name}: {path} holds another table (cdc.mirror_id "
                f"{table.properties.get('cdc.mirror_id')}, expected {state.mirror_id}); move that folder away"
            )
        settings = {**_CREATION, **state.properties()}
        if needs_mapping(state.spark_schema().names):
            settings[MAPPING] = "name"
        create_table(spark, path, commit, schema=state.spark_schema(), properties=settings)

    def rename(self, step: RenameMirror, commits: StepCommits) -> None:
        """Moves the mirror and writes its state to its properties."""
        paths, commit = self.lake.paths, commits(0)
        source, target = step.folder_before(paths), step.state.folder(paths)
        properties = step.state.properties()
        if not paths.is_local:
            properties[DROPPED_BY] = ""
        elif self._is_at(source, step.state):
            # this commit means that the mirror was moved already, and that a later step has moved it back
            if is_committed(self.lake.spark, source, commit):
                return
            move_mirror(self.lake, source, target)
        if self.is_in_place(target, step.state):
            commit_metadata(self.lake.spark, target, commit, properties=properties)

    def drop(self, step: DropMirror, commits: StepCommits, next_commits: StepCommits) -> None:
        """`next_commits`: those of the step that follows the DROP."""
        paths, path = self.lake.paths, step.state.folder(self.lake.paths)
        if not paths.is_local:
            if self.is_in_place(path, step.state):
                commit_metadata(self.lake.spark, path, commits(0), properties={DROPPED_BY: step.ddl_id})
            return
        # a commit of a later step means that the mirror was dropped already and then restored
        if self._is_at(path, step.state) and not is_committed(self.lake.spark, path, next_commits(0)):
            dropped = paths.dropped_mirror(step.state.name, step.ddl_id)
            if self._is_at(dropped, step.state):  # left by a cut that a rebuild abandoned
                remove_folder(self.lake.spark, dropped)
            move_mirror(self.lake, path, dropped)

    def _is_moved(self, state: MirrorState) -> bool:
        """Whether the mirror is in a folder to which a step of this cut moves it."""
        own = (step.folder_after(self.lake.paths) for step in self.steps if step.state.mirror_id == state.mirror_id)
        return any(self._is_at(path, state) for path in own if path is not None)
