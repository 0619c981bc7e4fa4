"""Compares rebuilt mirrors with those of the lake by content hash, and replaces those that differ.

A replacement is a commit on the existing table, so its history, and with it earlier cuts, stay readable.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from cdc_pipeline.lake.delta import (
    Commit,
    append_once,
    commit_metadata,
    create_table,
    overwrite_once,
    table_state,
)
from cdc_pipeline.lake.faults import affects_all_tables
from cdc_pipeline.lake.paths import LakePaths, first_line, remove_folder
from cdc_pipeline.lake.restored_tables import require_not_restored
from cdc_pipeline.mirrors.execution.alter_columns import MAPPING, missing_features
from cdc_pipeline.mirrors.execution.mirror_folders import move_mirror
from cdc_pipeline.mirrors.model.computed_columns import NTZ
from cdc_pipeline.mirrors.model.state import METADATA_COLUMNS, MirrorState
from cdc_pipeline.mirrors.operations.content_hash import content_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cdc_pipeline.lake.delta import TableState
    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry
    from cdc_pipeline.mysql.model.table import TableName

_FOLDER = "rebuild"
UNREADABLE = "unreadable"
"""The content hash of a mirror whose rows cannot be read, or that was restored (RESTORE)."""


def rebuild_paths(paths: LakePaths, borrowed: Iterable[str]) -> LakePaths:
    """The paths of a new scratch lake beside the lake's tables, whose `table_paths` tables it reads in place."""
    # a new folder each time: Delta caches the logs of the paths it has read
    folder = f"{paths.home}/{_FOLDER}/{uuid.uuid4().hex}"
    return LakePaths(folder, paths.pipeline, {name: paths.table(name) for name in borrowed})


def clear_rebuilds(lake: Lake) -> None:
    """Removes the scratch lakes of all rebuilds, of those that died too."""
    remove_folder(lake.spark, f"{lake.paths.home}/{_FOLDER}")


def rebuild_commit(paths: LakePaths, cut_id: int, run_id: str) -> Commit:
    """The commit of one rebuild. Its writer is new, so Delta never skips it: a rebuild compares before it writes."""
    return Commit(f"cdc:{paths.pipeline}:rebuild:{uuid.uuid4().hex}", 1, {"rebuild": cut_id, "run_id": run_id})


@dataclass(frozen=True)
class TableRebuild:
    """The content of one table before and after a rebuild."""

    table: str
    before: str | None
    """The content hash in the lake, UNREADABLE, or None if the lake did not have the table."""
    after: str | None
    """The content hash of the rebuilt table, or None if upstream has no such table."""

    @property
    def equal(self) -> bool:
        return self.before == self.after


@dataclass(frozen=True)
class MirrorReplacer:
    """Writes rebuilt mirrors into the lake at `paths`."""

    lake: Lake
    commit: Commit
    """That of `rebuild_commit`."""
    report: Callable[[str], None]
    """Receives one line per mirror."""

    def replace_differing(
        self, before: Mapping[TableName, MirrorEntry], after: Mapping[TableName, MirrorEntry]
    ) -> tuple[list[TableRebuild], bool]:
        """Compares the lake's mirrors (`before`) with the rebuilt ones (`after`) and replaces those that differ.

        Returns one entry per name, and whether any mirror changed.
        """
        tables, changed = [], False
        for name in sorted({*before, *after}):
            table = self._compare(name, before.get(name), after.get(name))
            tables.append(table)
            if not table.equal:
                self._replace_mirror(name, after.get(name), self.commit)
                changed = True
            elif self._update_state(name, after[name], self.commit):
                changed = True
            self.report(f"{table.table}: {'equal' if table.equal else 'replaced'}")
        return tables, changed

    def _compare(self, name: TableName, before: MirrorEntry | None, after: MirrorEntry | None) -> TableRebuild:
        return TableRebuild(
            f"mirror/{name}",
            None if before is None else self._lake_hash(self.lake.paths.mirror(name)),
            None if after is None else self._mirror_hash(after.path),
        )

    def _lake_hash(self, path: str) -> str | None:
        """The content hash of a mirror in the lake; UNREADABLE if data files are lost or it was restored, so that it
        is replaced."""
        try:
            require_not_restored(self.lake, path)
            return self._mirror_hash(path)
        except Exception as error:
            if affects_all_tables(error) or table_state(self.lake.spark, path) is None:
                raise
            self.report(f"{path} is replaced: {first_line(error)}")
            return UNREADABLE

    def _mirror_hash(self, path: str) -> str | None:
        state = table_state(self.lake.spark, path)
        if state is None:
            return None
        mirror = MirrorState.from_properties(state.properties)
        # a DELETE in a keyless table removes any one of several equal rows, so the origins of the others may differ
        ignored = () if mirror.schema.row_key else mirror.metadata
        # upstream has dropped the columns of `kept`
        content = content_hash(self.lake.read_path(path), frozenset((*ignored, *mirror.kept_columns)))
        return content if mirror.metadata == METADATA_COLUMNS else f"{content}:{','.join(mirror.metadata)}"

    def _replace_mirror(self, name: TableName, after: MirrorEntry | None, commit: Commit) -> None:
        path = self.lake.paths.mirror(name)
        now = table_state(self.lake.spark, path)
        if after is None:
            if now is not None:
                move_mirror(self.lake, path, self.lake.paths.dropped_mirror(name, f"rebuild-{commit.note['rebuild']}"))
            return
        new = table_state(self.lake.spark, after.path)
        assert new is not None
        rows = self.lake.read_path(after.path)
        if now is None:
            properties = {
                key: value for key, value in new.properties.items() if not key.startswith("delta.columnMapping.max")
            }
            create_table(
                self.lake.spark, path, replace(commit, version=1), schema=_plain_schema(new), properties=properties
            )
            append_once(rows, path, replace(commit, version=2))
            return
        mapped = new.properties.get(MAPPING) == "name"
        if features := missing_features(now, mapped=mapped, ntz=NTZ in new.schema.simpleString()):
            commit_metadata(self.lake.spark, path, replace(commit, version=1), properties=features)
        overwrite_once(rows, path, replace(commit, version=2))
        self._set_state(path, now, new, replace(commit, version=3))

    def _update_state(self, name: TableName, after: MirrorEntry, commit: Commit) -> bool:
        """Gives a mirror with equal rows the state of the rebuilt one. Returns whether it differed."""
        path = self.lake.paths.mirror(name)
        now, new = table_state(self.lake.spark, path), table_state(self.lake.spark, after.path)
        assert now is not None and new is not None  # noqa: PT018
        if _compared_state(now) == _compared_state(new):
            return False
        self._set_state(path, now, new, replace(commit, version=3))
        return True

    def _set_state(self, path: str, now: TableState, new: TableState, commit: Commit) -> None:
        """Gives the mirror the properties of the rebuilt one, apart from its id."""
        properties = {key: value for key, value in new.properties.items() if key.startswith("cdc.")}
        properties["cdc.mirror_id"] = now.properties["cdc.mirror_id"]
        properties.setdefault("cdc.row_gaps", "[]")
        commit_metadata(self.lake.spark, path, commit, properties=properties)


def _compared_state(table: TableState) -> tuple[object, ...]:
    state = MirrorState.from_properties(table.properties)
    shards = {(shard.name, shard.schema, shard.inferred) for shard in state.shards or ()}
    # the name too: an abandoned cut may have renamed the mirror
    return (state.name, state.schema, state.inferred, state.gaps, state.masks, state.mask_key, shards, state.computed)


def _plain_schema(table: TableState) -> StructType:
    """The columns without the column mapping ids of their table."""
    return StructType([StructField(field.name, field.dataType) for field in table.schema.fields])
