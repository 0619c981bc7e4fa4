"""Mirrors that were made again, held against those of the lake by content; what differs is replaced.

Each is replaced in one commit on the mirror that is there, so that its history, and with it earlier cuts, stay readable.
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
from cdc_pipeline.lake.faults import is_everywhere
from cdc_pipeline.lake.paths import LakePaths, first_line, remove_folder
from cdc_pipeline.mirrors.execution.alter_columns import MAPPING, NTZ_FEATURE
from cdc_pipeline.mirrors.execution.mirror_folders import move_mirror
from cdc_pipeline.mirrors.model.computed_columns import NTZ
from cdc_pipeline.mirrors.model.state import TRACE_NAMES, MirrorState
from cdc_pipeline.mirrors.operations.content_hash import content_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.delta import TableState
    from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry
    from cdc_pipeline.mysql.model.table import TableName

_FOLDER = "rebuild"
UNREADABLE = "unreadable"
"""In the place of the content hash of a mirror whose rows cannot be read."""


def rebuild_place(paths: LakePaths, borrowed: Iterable[str]) -> LakePaths:
    """Where tables are made again, beside the lake's, of which those of `borrowed` are read where they are."""
    # a name of its own each time: Delta remembers the tables that it has seen at a path
    place = f"{paths.home}/{_FOLDER}/{uuid.uuid4().hex}"
    return LakePaths(place, paths.pipeline, {name: paths.table(name) for name in borrowed})


def clear_rebuilds(spark: SparkSession, paths: LakePaths) -> None:
    """Removes what a rebuild, or one that died, has made beside the lake's tables."""
    remove_folder(spark, f"{paths.home}/{_FOLDER}")


def rebuild_commit(paths: LakePaths, cut_id: int, run_id: str) -> Commit:
    """As whom a rebuild writes. Each is a writer of its own: it compares first, so that nothing is done twice, and no
    commit may be passed over."""
    return Commit(f"cdc:{paths.pipeline}:rebuild:{uuid.uuid4().hex}", 1, {"rebuild": cut_id, "run_id": run_id})


@dataclass(frozen=True)
class TableRebuild:
    """One table: its content hash as it was (None where it was missing) and as the rebuild has it (None where upstream
    has no such table), and whether it was replaced."""

    table: str
    before: str | None
    after: str | None

    @property
    def equal(self) -> bool:
        return self.before == self.after


@dataclass(frozen=True)
class MirrorReplacer:
    """Writes into the lake at `paths`, as `commit`, whose note has the `rebuild`. `report` is told of each table."""

    spark: SparkSession
    paths: LakePaths
    commit: Commit
    report: Callable[[str], None]

    def put_right(
        self, before: Mapping[TableName, MirrorEntry], after: Mapping[TableName, MirrorEntry]
    ) -> tuple[list[TableRebuild], bool]:
        """What was found of each mirror of the lake (`before`) and each made again (`after`), and whether anything had to
        be put right."""
        found, changed = [], False
        for name in sorted({*before, *after}):
            table = self._mirror_compared(name, before.get(name), after.get(name))
            found.append(table)
            if not table.equal:
                self._replace_mirror(name, after.get(name), self.commit)
                changed = True
            elif self._renewed_state(name, after[name], self.commit):
                changed = True
            self.report(f"{table.table}: {'equal' if table.equal else 'put right'}")
        return found, changed

    def _read(self, path: str) -> DataFrame:
        return self.spark.read.format("delta").load(path)

    def _mirror_compared(self, name: TableName, before: MirrorEntry | None, after: MirrorEntry | None) -> TableRebuild:
        return TableRebuild(
            f"mirror/{name}",
            None if before is None else self._hash_that_was(self.paths.mirror(name)),
            None if after is None else self._mirror_hash(after.path),
        )

    def _hash_that_was(self, path: str) -> str | None:
        """The content hash of a mirror of the lake, which may have lost files of its rows: then it is replaced."""
        try:
            return self._mirror_hash(path)
        except Exception as error:
            if is_everywhere(error) or table_state(self.spark, path) is None:
                raise
            self.report(f"{path} cannot be read: {first_line(error)}")
            return UNREADABLE

    def _mirror_hash(self, path: str) -> str | None:
        state = table_state(self.spark, path)
        if state is None:
            return None
        mirror = MirrorState.from_properties(state.properties)
        # of equal rows without a key any one may have gone: which message each came from is not the table's content
        trace = () if mirror.schema.row_key else mirror.trace
        # what upstream has dropped is no part of it either
        content = content_hash(self._read(path), frozenset((*trace, *mirror.kept)))
        return content if mirror.trace == TRACE_NAMES else f"{content}:{','.join(mirror.trace)}"

    def _replace_mirror(self, name: TableName, after: MirrorEntry | None, commit: Commit) -> None:
        path = self.paths.mirror(name)
        now = table_state(self.spark, path)
        if after is None:
            if now is not None:
                aside = self.paths.dropped(name, f"rebuild-{commit.note['rebuild']}")
                move_mirror(self.spark, self.paths, path, aside)
            return
        new = table_state(self.spark, after.path)
        assert new is not None
        rows = self._read(after.path)
        if now is None:
            kept = {
                key: value for key, value in new.properties.items() if not key.startswith("delta.columnMapping.max")
            }
            create_table(self.spark, path, replace(commit, version=1), schema=_plain(new), properties=kept)
            append_once(rows, path, replace(commit, version=2))
            return
        features = {}
        if new.properties.get(MAPPING) == "name" and now.properties.get(MAPPING) != "name":
            features[MAPPING] = "name"
        if NTZ in new.schema.simpleString() and NTZ not in now.schema.simpleString():
            features |= NTZ_FEATURE
        if features:
            commit_metadata(self.spark, path, replace(commit, version=1), properties=features)
        overwrite_once(rows, path, replace(commit, version=2))
        self._renew(path, now, new, replace(commit, version=3))

    def _renewed_state(self, name: TableName, after: MirrorEntry, commit: Commit) -> bool:
        """Whether what the mirror says of itself had to be put right, its rows being equal."""
        path = self.paths.mirror(name)
        now, new = table_state(self.spark, path), table_state(self.spark, after.path)
        assert now is not None and new is not None  # noqa: PT018
        if _said(now) == _said(new):
            return False
        self._renew(path, now, new, replace(commit, version=3))
        return True

    def _renew(self, path: str, now: TableState, new: TableState, commit: Commit) -> None:
        """The mirror keeps its id, and says of itself what the new one says."""
        said = {key: value for key, value in new.properties.items() if key.startswith("cdc.")}
        said["cdc.mirror_id"] = now.properties["cdc.mirror_id"]
        said.setdefault("cdc.row_gaps", "[]")
        commit_metadata(self.spark, path, commit, properties=said)


def _said(table: TableState) -> tuple[object, ...]:
    state = MirrorState.from_properties(table.properties)
    shards = {(shard.name, shard.schema, shard.inferred) for shard in state.shards or ()}
    # a cut that is given up may have renamed it
    return (state.name, state.schema, state.inferred, state.gaps, state.masks, state.mask_key, shards, state.derived)


def _plain(table: TableState) -> StructType:
    """The columns without the ids by which the files of another table know them."""
    return StructType([StructField(field.name, field.dataType) for field in table.schema.fields])
