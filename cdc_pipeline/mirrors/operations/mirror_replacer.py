"""Compares rebuilt mirrors with those of the lake by content hash, and replaces those that differ.

A replacement is a commit on the existing table, so its history, and with it earlier cuts, stay readable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.delta import Commit, TableState, commit_metadata, create_table, table_state
from cdc_pipeline.lake.delta_log import readable_version
from cdc_pipeline.lake.faults import affects_all_tables
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import first_line
from cdc_pipeline.lake.restored_tables import foreign_commit, require_not_restored
from cdc_pipeline.lake.writes import overwrite_once
from cdc_pipeline.mirrors.cuts.cut_execution import mirror_entry
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry
from cdc_pipeline.mirrors.execution.alter_columns import MAPPING, missing_features
from cdc_pipeline.mirrors.execution.mirror_folders import move_mirror
from cdc_pipeline.mirrors.model.computed_columns import NTZ
from cdc_pipeline.mirrors.model.state import METADATA_COLUMNS, MirrorState, row_gaps
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.small_frames import totals

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
    commit: Commit
    """The commit of the rebuild. Its writer is new, so Delta never skips it."""
    report: Callable[[str], None]
    """Receives one line per mirror."""
    require_unchanged: Callable[[], None] = lambda: None
    """Called before each replacement. Raises an error if another run has changed the lake."""

    def replace(
        self, name: TableName, published: MirrorEntry | None, rebuilt: MirrorEntry | None
    ) -> tuple[TableRebuild, MirrorEntry | None, bool]:
        """Replaces a mirror of the lake if it differs from the `rebuilt` one of the scratch lake.

        Also returns the mirror as it is then, and whether it differs from its `published` version, as it does too after a
        rebuild that died.
        """
        path = self._path(name, published, rebuilt)
        found = TableRebuild(
            f"mirror/{name}",
            None if published is None else self._lake_hash(path),
            None if rebuilt is None else self._hash(rebuilt.path),
        )
        if rebuilt is not None:
            self._replace_mirror(path, rebuilt.path, equal=found.equal)
        elif self.lake.paths.is_local and table_state(self.lake.spark, path) is not None:
            self.require_unchanged()
            dropped = self.lake.paths.dropped_mirror(name, f"rebuild-{self.commit.note['rebuild']}")
            move_mirror(self.lake, path, dropped)
        self.report(f"{found.table}: {'equal' if found.equal else 'replaced'}")
        entry = None if rebuilt is None else mirror_entry(self.lake, name, path)
        return found, entry, not (found.equal and self._is_published(published, entry))

    def _path(self, name: TableName, published: MirrorEntry | None, rebuilt: MirrorEntry | None) -> str:
        """Where the mirror is, or will be if the lake has none."""
        if published is not None and (rebuilt is None or table_state(self.lake.spark, published.path) is not None):
            return published.path
        assert rebuilt is not None
        return self.lake.paths.mirror_folder(name, rebuilt.mirror_id)

    def _is_published(self, published: MirrorEntry | None, now: MirrorEntry | None) -> bool:
        if published is None or now is None or now.mirror_id != published.mirror_id:
            return False
        return readable_version(self.lake.spark, now.path, published.version) == now.version

    def _lake_hash(self, path: str) -> str | None:
        """The content hash of a mirror in the lake. If another writer changed it, data files are lost or it was restored,
        another text, so that it is replaced."""
        try:
            require_not_restored(self.lake, path)
            return foreign_commit(self.lake, path) or self._hash(path)
        except Exception as error:
            if affects_all_tables(error) or table_state(self.lake.spark, path) is None:
                raise
            self.report(f"{path} is replaced: {first_line(error)}")
            return UNREADABLE

    def _hash(self, path: str) -> str | None:
        table = table_state(self.lake.spark, path)
        if table is None:
            return None
        mirror = MirrorState.from_properties(table.properties)
        # a DELETE in a keyless table removes any one of several equal rows, so the origins of the others may differ
        ignored = () if mirror.schema.row_key else mirror.metadata
        # upstream has dropped the columns of `kept`
        content = content_hash(self.lake.read_path(path), frozenset((*ignored, *mirror.kept_columns)))
        return content if mirror.metadata == METADATA_COLUMNS else f"{content}:{','.join(mirror.metadata)}"

    def _replace_mirror(self, path: str, rebuilt: str, *, equal: bool) -> None:
        """Gives the mirror the state of the one at `rebuilt`, and its rows unless `equal`."""
        spark = self.lake.spark
        now, new = table_state(spark, path), table_state(spark, rebuilt)
        assert new is not None
        if now is not None and equal and _compared_state(now) == _compared_state(new):
            return
        self.require_unchanged()
        if now is None:
            # a cut that follows a rebuild which died here takes the mirror as it is
            properties = new.properties | row_gaps(new, UNFINISHED)
            kept = {key: text for key, text in properties.items() if not key.startswith("delta.columnMapping.max")}
            # without the column mapping ids of the other table
            schema = StructType([StructField(field.name, field.dataType) for field in new.schema.fields])
            create_table(spark, path, self.commit, schema=schema, properties=kept)
            mirror_id = new.properties["cdc.mirror_id"]
        else:
            mirror_id = now.properties["cdc.mirror_id"]
            mapped, ntz = new.properties.get(MAPPING) == "name", NTZ in new.schema.simpleString()
            if not equal and (features := missing_features(now, mapped=mapped, ntz=ntz)):
                commit_metadata(spark, path, self.commit, properties=features)
        if not equal:
            rows = self.lake.read_path(rebuilt)
            overwrite_once(rows, path, replace(self.commit, version=2))
        own = {key: value for key, value in new.properties.items() if key.startswith("cdc.")}
        properties = {"cdc.row_gaps": "[]", **own, "cdc.mirror_id": mirror_id}
        commit_metadata(spark, path, replace(self.commit, version=3), properties=properties)


def _compared_state(table: TableState) -> tuple[object, ...]:
    state = MirrorState.from_properties(table.properties)
    sources = {(source.name, source.schema, source.inferred) for source in state.source_tables or ()}
    # the name too: an abandoned cut may have renamed the mirror
    masks, referencing = (state.masks, state.mask_key), set(state.referencing)
    return (state.name, state.schema, state.inferred, state.gaps, masks, sources, state.computed, referencing)


def content_hash(frame: DataFrame, without: frozenset[str] = frozenset()) -> str:
    """`rows:schema:sum`: the row count, a hash of column names and types, and the sum of a 64-bit hash of each row.

    Equal for two frames with the same columns in the same order, apart from those of `without`, and the same multiset of
    rows. The order of rows and of map entries does not matter.
    """
    fields = [field for field in frame.schema.fields if field.name not in without]
    cells = [cell for field in fields for cell in _cells(F.col(quoted(field.name)), field.dataType)]
    row = F.xxhash64(*cells) if cells else F.lit(0)
    rows, hashes = totals(frame, F.count("*"), F.sum(row.cast("DECIMAL(38,0)")))
    schema = "|".join(f"{field.name}:{field.dataType.simpleString()}" for field in fields)
    return f"{rows}:{hashlib.sha256(schema.encode()).hexdigest()[:16]}:{hashes or 0}"


def _cells(cell: Column, kind: DataType) -> list[Column]:
    """The values to hash for a cell. A flag marks NULL, which xxhash64 skips."""
    if _has_map(kind):
        # with this option JSON distinguishes a NULL in an array or map from an absent value
        return [cell.isNull(), F.to_json(_without_maps(cell, kind), {"ignoreNullFields": "false"})]
    return [cell.isNull(), cell]


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    return isinstance(kind, MapType)


def _without_maps(cell: Column, kind: DataType) -> Column:
    """The cell in a struct for `to_json`, a map as its sorted entries. Nested maps keep their own order."""
    value = F.array_sort(F.map_entries(cell)) if isinstance(kind, MapType) else cell
    return F.struct(value.alias("v"))
