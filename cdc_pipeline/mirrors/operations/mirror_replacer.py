"""Compares rebuilt mirrors with those of the lake by content hash, and replaces those that differ.

A replacement is a commit on the existing table, so its history, and with it earlier cuts, stay readable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.delta import (
    Commit,
    append_once,
    commit_metadata,
    create_table,
    overwrite_once,
    table_state,
)
from cdc_pipeline.lake.delta_log import readable_version
from cdc_pipeline.lake.faults import affects_all_tables
from cdc_pipeline.lake.paths import first_line
from cdc_pipeline.lake.restored_tables import foreign_commit, require_not_restored
from cdc_pipeline.mirrors.execution.alter_columns import MAPPING, missing_features
from cdc_pipeline.mirrors.execution.mirror_folders import move_mirror
from cdc_pipeline.mirrors.model.computed_columns import NTZ
from cdc_pipeline.mirrors.model.state import METADATA_COLUMNS, MirrorState, row_gaps
from cdc_pipeline.mirrors.operations.content_hash import content_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from cdc_pipeline.lake.delta import TableState
    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry
    from cdc_pipeline.mysql.model.table import TableName

UNFINISHED = Gap(GapKind.UNSEEN_START, "a rebuild that creates the mirror has not finished: run it again")
UNREADABLE = "unreadable"
"""The content hash of a mirror whose rows cannot be read, or that was restored (RESTORE)."""


@dataclass(frozen=True)
class TableRebuild:
    """The content of one table before and after a rebuild."""

    table: str
    before: str | None
    """The content hash in the lake, UNREADABLE, the commit of another writer, or None if the lake did not have the table."""
    after: str | None
    """The content hash of the rebuilt table, or None if upstream has no such table."""

    @property
    def equal(self) -> bool:
        return self.before == self.after


@dataclass(frozen=True)
class MirrorReplacer:
    """Writes the mirrors of a scratch lake into the lake."""

    lake: Lake
    scratch: Lake
    commit: Commit
    """The commit of the rebuild. Its writer is new, so Delta never skips it."""
    report: Callable[[str], None]
    """Receives one line per mirror."""
    require_unchanged: Callable[[], None] = lambda: None
    """Called before each replacement. Raises an error if another run has changed the lake."""

    def replace_differing(
        self, before: Mapping[TableName, MirrorEntry], after: Collection[TableName]
    ) -> tuple[list[TableRebuild], bool]:
        """Compares the lake's mirrors (`before`) with the rebuilt ones (`after`) and replaces those that differ.

        `before` has the published versions. Returns one entry per name, and whether any mirror differs from its version.
        """
        tables, changed = [], False
        for name in sorted({*before, *after}):
            table = TableRebuild(
                f"mirror/{name}",
                self._lake_hash(self.lake.paths.mirror(name)) if name in before else None,
                self._mirror_hash(self.scratch.paths.mirror(name)) if name in after else None,
            )
            tables.append(table)
            if name not in after:
                self._drop_mirror(name)
                changed = True
            elif self._replace_mirror(name, equal=table.equal) or not self._is_published(before[name], table.after):
                changed = True
            self.report(f"{table.table}: {'equal' if table.equal else 'replaced'}")
        return tables, changed

    def _lake_hash(self, path: str) -> str | None:
        """The content hash of a mirror in the lake. If another writer changed it, data files are lost or it was restored,
        another text, so that it is replaced."""
        try:
            require_not_restored(self.lake, path)
            return foreign_commit(self.lake, path) or self._mirror_hash(path)
        except Exception as error:
            if affects_all_tables(error) or table_state(self.lake.spark, path) is None:
                raise
            self.report(f"{path} is replaced: {first_line(error)}")
            return UNREADABLE

    def _is_published(self, entry: MirrorEntry, content: str | None) -> bool:
        """Whether the published version of an equal mirror has this content and the mirror's state. It has not if a rebuild
        died after it had replaced the mirror."""
        path = self.lake.paths.mirror(entry.name)
        now = table_state(self.lake.spark, path)
        assert now is not None
        if now.properties["cdc.mirror_id"] != entry.mirror_id:
            return False
        if readable_version(self.lake.spark, path, entry.version) == now.version:
            return True
        try:
            published = table_state(self.lake.spark, path, entry.version)
            same_state = published is not None and _compared_state(published) == _compared_state(now)
            return same_state and self._mirror_hash(path, entry.version) == content
        except Exception as error:
            if affects_all_tables(error):
                raise
            return False

    def _mirror_hash(self, path: str, at: int | None = None) -> str | None:
        """The content hash of the version `at`, or of the newest."""
        state = table_state(self.lake.spark, path, at)
        if state is None:
            return None
        mirror = MirrorState.from_properties(state.properties)
        # a DELETE in a keyless table removes any one of several equal rows, so the origins of the others may differ
        ignored = () if mirror.schema.row_key else mirror.metadata
        # upstream has dropped the columns of `kept`
        rows = self.lake.spark.read.format("delta").option("versionAsOf", state.version).load(path)
        content = content_hash(rows, frozenset((*ignored, *mirror.kept_columns)))
        return content if mirror.metadata == METADATA_COLUMNS else f"{content}:{','.join(mirror.metadata)}"

    def _drop_mirror(self, name: TableName) -> None:
        path = self.lake.paths.mirror(name)
        if table_state(self.lake.spark, path) is not None:
            self.require_unchanged()
            dropped = self.lake.paths.dropped_mirror(name, f"rebuild-{self.commit.note['rebuild']}")
            move_mirror(self.lake, path, dropped)

    def _replace_mirror(self, name: TableName, *, equal: bool) -> bool:
        """Gives the mirror the state of the rebuilt one, and its rows unless `equal`. Returns whether it changed."""
        path, rebuilt = self.lake.paths.mirror(name), self.scratch.paths.mirror(name)
        now, new = table_state(self.lake.spark, path), table_state(self.lake.spark, rebuilt)
        assert new is not None
        if now is None:
            properties = {
                key: value for key, value in new.properties.items() if not key.startswith("delta.columnMapping.max")
            }
            self.require_unchanged()
            # a cut that follows a rebuild which died here takes the mirror as it is
            unfinished = properties | row_gaps(new, UNFINISHED)
            create_table(self.lake.spark, path, self.commit, schema=_plain_schema(new), properties=unfinished)
            append_once(self.lake.read_path(rebuilt), path, replace(self.commit, version=2))
            commit_metadata(self.lake.spark, path, replace(self.commit, version=3), properties=row_gaps(new))
            return True
        if equal and _compared_state(now) == _compared_state(new):
            return False
        self.require_unchanged()
        if not equal:
            mapped = new.properties.get(MAPPING) == "name"
            if features := missing_features(now, mapped=mapped, ntz=NTZ in new.schema.simpleString()):
                commit_metadata(self.lake.spark, path, self.commit, properties=features)
            overwrite_once(self.lake.read_path(rebuilt), path, replace(self.commit, version=2))
        properties = {key: value for key, value in new.properties.items() if key.startswith("cdc.")}
        properties["cdc.mirror_id"] = now.properties["cdc.mirror_id"]
        properties.setdefault("cdc.row_gaps", "[]")
        commit_metadata(self.lake.spark, path, replace(self.commit, version=3), properties=properties)
        return True


def _compared_state(table: TableState) -> tuple[object, ...]:
    state = MirrorState.from_properties(table.properties)
    sources = {(source.name, source.schema, source.inferred) for source in state.source_tables or ()}
    # the name too: an abandoned cut may have renamed the mirror
    return (state.name, state.schema, state.inferred, state.gaps, state.masks, state.mask_key, sources, state.computed)


def _plain_schema(table: TableState) -> StructType:
    """The columns without the column mapping ids of their table."""
    return StructType([StructField(field.name, field.dataType) for field in table.schema.fields])
