"""Rebuild: change log and mirrors made again from the raw snapshot, held against what the lake has, and put right.

All is made anew beside the lake's tables, in `<lake>/<pipeline>/rebuild`, in one cut up to the newest published one. A
table whose content is equal stays as it is, with its history; one that differs gets the new rows in one commit of its
own, so that earlier cuts stay readable. A rebuild that dies is begun again: each table is then right or not yet.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from cdc_pipeline.dialects.change_tables import OTHERS, decoded_batches
from cdc_pipeline.dialects.claims import CLAIMS
from cdc_pipeline.errors import LakeError
from cdc_pipeline.mirrors.column_rules import MaskSaltError
from cdc_pipeline.mirrors.columns import MAPPING
from cdc_pipeline.mirrors.content import content_hash
from cdc_pipeline.mirrors.cut_report import CutReport, MirrorEntry, published_entries, with_held_gaps
from cdc_pipeline.mirrors.dead_letters import VALUE_HAS_TYPE
from cdc_pipeline.mirrors.holding import APPROVALS
from cdc_pipeline.mirrors.progress import NO_CUT, PublishedCut, published_cut, stream_progress
from cdc_pipeline.mirrors.publication import publish
from cdc_pipeline.mirrors.state import TRACE_NAMES, MirrorState
from cdc_pipeline.mirrors.window import Window, begun_cut
from cdc_pipeline.resources.delta import (
    Commit,
    append_once,
    commit_metadata,
    create_table,
    forget_cached_log,
    overwrite_once,
    table_state,
)
from cdc_pipeline.resources.lake import LakePaths, move_folder, remove_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.dialects.decode import DialectName
    from cdc_pipeline.mirrors.cut import CutMaker
    from cdc_pipeline.resources.delta import TableState
    from cdc_pipeline.schemas.table import TableName

_DECODED = ("change_log", *OTHERS, "batches")
# what differs between two decodings of the same bytes, or is written by a cut
_NOT_COMPARED = {
    "batches": frozenset({"run_id", "decoded_at"}),
    "ddl_history": frozenset({"status", "effect", "cut_id", "tables"}),
    # the words tell of a claim store as it was when it was looked at; rule and bytes say all else
    "dead_letters": frozenset({"reason"}),
}


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
class RebuildReport:
    """What a rebuild found: one line per table, and the cut that it published where it put something right."""

    tables: tuple[TableRebuild, ...]
    cut_id: int | None

    @property
    def equal(self) -> bool:
        return all(table.equal for table in self.tables)


@dataclass(frozen=True)
class Rebuilder:
    """Rebuilds one pipeline. `maker` is how its cuts are made; `claim_store` is where large messages are looked for that the
    lake does not keep yet."""

    maker: CutMaker
    dialect: DialectName
    claim_store: str | None = None

    @property
    def spark(self) -> SparkSession:
        return self.maker.spark

    @property
    def _paths(self) -> LakePaths:
        return self.maker.paths

    def rebuilt(self) -> RebuildReport:
        """Raises LakeError where nothing was published yet. Call it as the only writer (`resources.lock`)."""
        try:
            self.maker.brought_up_to_date()  # a cut that was begun is finished first
        except MaskSaltError:
            if begun_cut(self.spark, self._paths, published_cut(self.spark, self._paths), self.maker.columns.salt):
                raise
            self.maker.report("mask_salt has changed: what is masked is hashed anew")
        published = published_cut(self.spark, self._paths)
        if published is NO_CUT:
            raise LakeError("there is no cut to rebuild yet", pipeline=self._paths.pipeline)
        aside = LakePaths(
            # a name of its own each time: Delta remembers the tables that it has seen at a path
            f"{self._paths.home}/rebuild/{uuid.uuid4().hex}",
            self._paths.pipeline,
            {name: self._paths.table(name) for name in ("raw_topic_snapshot", CLAIMS, APPROVALS)},
        )
        self._clear()
        try:
            # through all decoded batches: later ones may hold what waits for a later cut
            streams = stream_progress(self.spark, self._paths)
            self.maker.report(f"decoding {streams.last_batch} batches again")
            decoded_batches(self.spark, aside, self.dialect, streams.last_batch, self.claim_store)
            self.maker.report("making the mirrors again")
            made = replace(self.maker, paths=aside).from_the_beginning(published.resolved_tso, published.last_batch)
            return self._put_right(aside, replace(made, cut_id=published.cut_id + 1, streams=streams), published)
        finally:
            self._clear()

    def _clear(self) -> None:
        """Removes what this rebuild, or one that died, has made beside the lake's tables."""
        remove_folder(self.spark, f"{self._paths.home}/rebuild")

    # ---- compare and replace

    def _put_right(self, aside: LakePaths, made: CutReport, published: PublishedCut) -> RebuildReport:
        # Of its own: each table is compared first, so that nothing is done twice, and no commit may be passed over.
        writer = f"cdc:{self._paths.pipeline}:rebuild:{uuid.uuid4().hex}"
        commit = Commit(writer, 1, {"rebuild": made.cut_id, "run_id": self.maker.run_id})
        decoded = [self._compared(table, aside) for table in _DECODED]
        changed = not all(table.equal for table in decoded)
        if changed:
            for table in _DECODED:
                overwrite_once(self._read(aside.table(table)), self._paths.table(table), commit)
        before = {entry.name: entry for entry in published_entries(published, self._paths)}
        after = {entry.name: entry for entry in made.mirrors}
        mirrors = []
        for name in sorted({*before, *after}):
            found = self._mirror_compared(name, before.get(name), after.get(name))
            mirrors.append(found)
            if not found.equal:
                self._replace_mirror(name, after.get(name), commit)
                changed = True
            elif self._renewed_state(name, after[name], commit):
                changed = True
            self.maker.report(f"{found.table}: {'equal' if found.equal else 'put right'}")
        if not changed:
            return RebuildReport((*decoded, *mirrors), None)
        entries = with_held_gaps(filter(None, map(self.maker.entry, sorted(after))), (), made.held)
        report = replace(made, mirrors=entries)
        window = Window(made.cut_id, None, made.resolved_tso, 0, published.last_batch)
        note = {**commit.note, "cut": made.cut_id, "pipeline": self._paths.pipeline}
        publish(self.spark, self._paths, window, report, note, self.maker.settings, rebuilt=True)
        return RebuildReport((*decoded, *mirrors), made.cut_id)

    def _read(self, path: str) -> DataFrame:
        return self.spark.read.format("delta").load(path)

    def _compared(self, table: str, aside: LakePaths) -> TableRebuild:
        without = _NOT_COMPARED.get(table, frozenset())
        frames = [self._read(paths.table(table)) for paths in (self._paths, aside)]
        if table == "dead_letters":
            # a cut sets aside the last bad value of a row, and there were more cuts than one
            frames = [frame.where(F.col("rule") != VALUE_HAS_TYPE) for frame in frames]
        before, after = (content_hash(frame, without) for frame in frames)
        return TableRebuild(table, before, after)

    def _mirror_compared(self, name: TableName, before: MirrorEntry | None, after: MirrorEntry | None) -> TableRebuild:
        return TableRebuild(
            f"mirror/{name}",
            None if before is None else self._mirror_hash(self._paths.mirror(name)),
            None if after is None else self._mirror_hash(after.path),
        )

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
        path = self._paths.mirror(name)
        now = table_state(self.spark, path)
        if after is None:
            if now is not None:
                move_folder(self.spark, path, self._paths.dropped(name, f"rebuild-{commit.note['rebuild']}"))
                forget_cached_log(self.spark, path)
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
        if new.properties.get(MAPPING) == "name" and now.properties.get(MAPPING) != "name":
            commit_metadata(self.spark, path, replace(commit, version=1), properties={MAPPING: "name"})
        overwrite_once(rows, path, replace(commit, version=2))
        self._renew(path, now, new, replace(commit, version=3))

    def _renewed_state(self, name: TableName, after: MirrorEntry, commit: Commit) -> bool:
        """Whether what the mirror says of itself had to be put right, its rows being equal."""
        path = self._paths.mirror(name)
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
    return (state.schema, state.inferred, state.gaps, state.masks, state.mask_key)


def _plain(table: TableState) -> StructType:
    """The columns without the ids by which the files of another table know them."""
    return StructType([StructField(field.name, field.dataType) for field in table.schema.fields])
