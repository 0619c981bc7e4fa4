"""Rebuild: change log and mirrors made again from the raw snapshot, held against what the lake has, and put right.

All is made anew beside the lake's tables, in `<lake>/<pipeline>/rebuild`, in one cut up to the newest published one. A
table whose content is equal stays as it is, with its history; one that differs gets the new rows in one commit of its
own, so that earlier cuts stay readable. A rebuild that dies is begun again: each table is then right or not yet.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.claims import CLAIMS
from cdc_pipeline.dialects.decoded_tables import OTHERS, decode_batches
from cdc_pipeline.dialects.releases import RELEASES
from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import (
    overwrite_once,
)
from cdc_pipeline.mirrors.changes.dead_letters import VALUE_HAS_TYPE
from cdc_pipeline.mirrors.changes.held_rows import APPROVALS
from cdc_pipeline.mirrors.changes.progress import NO_CUT, PublishedCut, published_cut, stream_progress
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.cuts.cut_ddl import close_statements
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, published_entries, with_held_gaps
from cdc_pipeline.mirrors.cuts.publish import publish
from cdc_pipeline.mirrors.cuts.quarantine import GivingUp
from cdc_pipeline.mirrors.operations.begun_cut import settled, take_mirrors_back
from cdc_pipeline.mirrors.operations.content_hash import content_hash
from cdc_pipeline.mirrors.operations.mirror_replacer import (
    MirrorReplacer,
    TableRebuild,
    clear_rebuilds,
    rebuild_commit,
    rebuild_place,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.dialects.decode import DialectName
    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker

_DECODED = ("change_log", *OTHERS, "batches")
# what differs between two decodings of the same bytes, or is written by a cut
_NOT_COMPARED = {
    "batches": frozenset({"run_id", "decoded_at"}),
    "ddl_history": frozenset({"status", "effect", "cut_id", "tables"}),
    # the words tell of a claim store as it was when it was looked at; rule and bytes say all else
    "dead_letters": frozenset({"reason"}),
}


@dataclass(frozen=True)
class RebuildReport:
    """What a rebuild found: one line per table, and the cut that it published where it put something right."""

    tables: tuple[TableRebuild, ...]
    cut_id: int | None

    @property
    def equal(self) -> bool:
        return all(table.equal for table in self.tables)


@dataclass(frozen=True)
class Remade:
    """A pipeline's tables made again at `paths`: its mirrors up to the cut that was published, as `report` has them.
    `releases`: whether by other releases than the lake's own. `abandoned`: a cut that was begun could not be finished."""

    paths: LakePaths
    report: CutReport
    published: PublishedCut
    releases: bool
    abandoned: bool = False


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
        """Raises LakeError where nothing was published yet. Call it as the only writer (`lake.lock`)."""
        with self.remade() as found:
            return self.put_right(found)

    @contextmanager
    def remade(self, releases: DataFrame | None = None) -> Iterator[Remade]:
        """All made again beside the lake, which is as it was, until the end of the `with`. `releases` are to be gone by in
        place of the lake's own (`dialects.releases`). Raises as `rebuilt`."""
        abandoned = settled(self.maker, abandon=True)
        published = published_cut(self.spark, self._paths)
        if published is NO_CUT:
            raise LakeError("there is no cut to rebuild yet", pipeline=self._paths.pipeline)
        borrowed = ["raw_topic_snapshot", CLAIMS, APPROVALS, *([RELEASES] if releases is None else [])]
        aside = rebuild_place(self._paths, borrowed)
        clear_rebuilds(self.spark, self._paths)
        try:
            if releases is not None:
                releases.write.format("delta").save(aside.table(RELEASES))
            # through all decoded batches: later ones may hold what waits for a later cut
            streams = stream_progress(self.spark, self._paths)
            self.maker.report(f"decoding {streams.last_batch} batches again")
            decode_batches(self.spark, aside, self.dialect, streams.last_batch, self.claim_store)
            self.maker.report("making the mirrors again")
            # what fails again of tables that are put aside stays so
            giving_up = GivingUp(None, frozenset(table.name for table in published.held if table.error))
            maker = replace(self.maker, paths=aside, giving_up=giving_up)
            made = maker.from_the_beginning(published.resolved_tso, published.last_batch)
            made = replace(made, cut_id=published.cut_id + 1, streams=streams)
            yield Remade(aside, made, published, releases is not None, abandoned)
        finally:
            clear_rebuilds(self.spark, self._paths)

    # ---- compare and replace

    def put_right(self, remade: Remade) -> RebuildReport:
        """Replaces what differs in the lake, and publishes a cut where anything does."""
        aside, made, published = remade.paths, remade.report, remade.published
        commit = rebuild_commit(self._paths, made.cut_id, self.maker.run_id)
        decoded = [self._compared(table, aside) for table in _DECODED]
        # a value that a type could not hold is a dead letter of no decoding: released, it has to go from there too
        changed = remade.releases or remade.abandoned or not all(table.equal for table in decoded)
        if remade.abandoned:
            take_mirrors_back(self.spark, self._paths, published)
        if changed:
            for table in _DECODED:
                overwrite_once(self._read(aside.table(table)), self._paths.table(table), commit)
        stuck = {table.name for table in made.held if table.error}
        before = {entry.name: entry for entry in published_entries(published, self._paths)}
        after = {entry.name: entry for entry in made.mirrors if entry.name not in stuck}
        as_before = [before.pop(name) for name in stuck & before.keys()]
        mirrors, replaced = MirrorReplacer(self.spark, self._paths, commit, self.maker.report).put_right(before, after)
        back = {table.name for table in published.held if table.error} != stuck
        changed = changed or replaced or back
        if not changed:
            return RebuildReport((*decoded, *mirrors), None)
        close_statements(self.spark, self._paths, aside, commit.note)
        anew = [*filter(None, map(self.maker.entry, sorted(after))), *as_before]
        report = replace(made, mirrors=with_held_gaps(sorted(anew, key=lambda entry: entry.name), made.held))
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
