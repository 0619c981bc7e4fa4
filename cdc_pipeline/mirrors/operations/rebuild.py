"""Rebuilds change log and mirrors from the raw snapshot, compares them with the lake, and replaces tables that differ.

The rebuild writes to a scratch lake, `<lake>/<pipeline>/rebuild`, in one cut up to the newest published one. A table with
equal content stays as it is. One that differs gets the new rows in a commit of its own, so earlier cuts stay readable.
A rebuild that dies is simply run again.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.claims import CLAIMS
from cdc_pipeline.dialects.decoded_tables import OTHER_TABLES, decode_batches
from cdc_pipeline.dialects.releases import RELEASES
from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import overwrite_once
from cdc_pipeline.mirrors.changes.dead_letters import VALUE_HAS_TYPE
from cdc_pipeline.mirrors.changes.held_rows import APPROVALS
from cdc_pipeline.mirrors.changes.progress import NO_CUT, PublishedCut, published_cut, read_progress
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.cuts.cut_ddl import close_held_statements
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, published_entries, with_held_gaps
from cdc_pipeline.mirrors.cuts.publish import publish
from cdc_pipeline.mirrors.cuts.quarantine import QuarantinePolicy
from cdc_pipeline.mirrors.operations.begun_cut import finish_begun_cut, move_mirrors_back
from cdc_pipeline.mirrors.operations.content_hash import content_hash
from cdc_pipeline.mirrors.operations.mirror_replacer import (
    MirrorReplacer,
    TableRebuild,
    clear_rebuilds,
    rebuild_commit,
    rebuild_paths,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from cdc_pipeline.dialects.decode import DialectName
    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker

_DECODED = ("change_log", *OTHER_TABLES, "batches")
# columns that differ between two decodings of the same bytes, or that cuts write
_NOT_COMPARED = {
    "batches": frozenset({"run_id", "decoded_at"}),
    "ddl_history": frozenset({"status", "effect", "cut_id", "tables"}),
    # it may describe the claim store at that time
    "dead_letters": frozenset({"reason"}),
}


@dataclass(frozen=True)
class RebuildReport:
    """The result of a rebuild."""

    tables: tuple[TableRebuild, ...]
    cut_id: int | None
    """The cut that it published; None if nothing changed."""

    @property
    def all_equal(self) -> bool:
        return all(table.equal for table in self.tables)


@dataclass(frozen=True)
class RebuiltTables:
    """All tables of a pipeline, rebuilt in a scratch lake up to a published cut."""

    paths: LakePaths
    """The scratch lake."""
    report: CutReport
    """Its cut, with the number after `published`."""
    published: PublishedCut
    releases: bool
    """Whether other releases than the lake's own were applied (`dialects.releases`)."""
    abandoned: bool = False
    """Whether the lake has a begun cut that cannot be finished."""


@dataclass(frozen=True)
class Rebuilder:
    """Rebuilds all tables of one pipeline."""

    maker: CutMaker
    dialect: DialectName
    claim_store: str | None = None
    """Where large messages are read that the lake does not keep yet."""

    @property
    def _lake(self) -> Lake:
        return self.maker.lake

    def rebuild(self) -> RebuildReport:
        """Rebuilds and replaces what differs. Call it as the only writer (`lake.lock`).

        Raises LakeError if no cut is published yet.
        """
        with self.rebuild_in_scratch() as rebuilt:
            return self.replace_differing(rebuilt)

    @contextmanager
    def rebuild_in_scratch(self, releases: DataFrame | None = None) -> Iterator[RebuiltTables]:
        """Rebuilds all tables in a scratch lake, which exists until the `with` block ends. The lake itself stays the same.

        `releases` are applied in place of the lake's own (`dialects.releases`). Raises as `rebuild`.
        """
        abandoned = finish_begun_cut(self.maker, abandon=True)
        published = published_cut(self._lake)
        if published is NO_CUT:
            raise LakeError("no cut is published yet: run the ingest first", pipeline=self._lake.paths.pipeline)
        borrowed = ["raw_topic_snapshot", CLAIMS, APPROVALS, *([RELEASES] if releases is None else [])]
        scratch = rebuild_paths(self._lake.paths, borrowed)
        clear_rebuilds(self._lake)
        try:
            if releases is not None:
                releases.write.format("delta").save(scratch.table(RELEASES))
            # all decoded batches: those after the published cut have pending changes
            streams = read_progress(self._lake)
            self.maker.report(f"decoding {streams.last_batch} batches again")
            decode_batches(replace(self._lake, paths=scratch), self.dialect, streams.last_batch, self.claim_store)
            self.maker.report("rebuilding the mirrors")
            # a quarantined table that fails again stays quarantined, any other failure stops the rebuild
            quarantine_policy = QuarantinePolicy(None, frozenset(table.name for table in published.held if table.error))
            maker = replace(self.maker, lake=replace(self._lake, paths=scratch), quarantine_policy=quarantine_policy)
            report = maker.replay_all(published.resolved_tso, published.last_batch)
            report = replace(report, cut_id=published.cut_id + 1, streams=streams)
            yield RebuiltTables(scratch, report, published, releases is not None, abandoned)
        finally:
            clear_rebuilds(self._lake)

    # ---- compare and replace

    def replace_differing(self, rebuilt: RebuiltTables) -> RebuildReport:
        """Replaces the lake's tables that differ, and publishes a cut if any does."""
        scratch, report, published = rebuilt.paths, rebuilt.report, rebuilt.published
        commit = rebuild_commit(self._lake.paths, report.cut_id, self.maker.run_id)
        decoded = [self._compare(table, scratch) for table in _DECODED]
        # the comparison ignores dead letters of cuts (VALUE_HAS_TYPE): a release may remove some
        changed = rebuilt.releases or rebuilt.abandoned or not all(table.equal for table in decoded)
        if rebuilt.abandoned:
            move_mirrors_back(self._lake, published)
        if changed:
            for table in _DECODED:
                overwrite_once(self._lake.read_path(scratch.table(table)), self._lake.paths.table(table), commit)
        quarantined = {table.name for table in report.held if table.error}
        before = {entry.name: entry for entry in published_entries(published, self._lake.paths)}
        after = {entry.name: entry for entry in report.mirrors if entry.name not in quarantined}
        untouched = [before.pop(name) for name in quarantined & before.keys()]
        replacer = MirrorReplacer(self._lake, commit, self.maker.report)
        mirrors, replaced = replacer.replace_differing(before, after)
        changed = changed or replaced or {table.name for table in published.held if table.error} != quarantined
        if not changed:
            return RebuildReport((*decoded, *mirrors), None)
        close_held_statements(self._lake, scratch, commit.note)
        entries = [*filter(None, map(self.maker.mirror_entry, sorted(after))), *untouched]
        report = replace(report, mirrors=with_held_gaps(sorted(entries, key=lambda entry: entry.name), report.held))
        window = Window(report.cut_id, None, report.resolved_tso, 0, published.last_batch)
        note = {**commit.note, "cut": report.cut_id, "pipeline": self._lake.paths.pipeline}
        publish(self._lake, window, report, note, self.maker.settings, rebuilt=True)
        return RebuildReport((*decoded, *mirrors), report.cut_id)

    def _compare(self, table: str, scratch: LakePaths) -> TableRebuild:
        without = _NOT_COMPARED.get(table, frozenset())
        frames = [self._lake.read_path(paths.table(table)) for paths in (self._lake.paths, scratch)]
        if table == "dead_letters":
            # cuts write those: of a row's bad values each cut rejects the last one, and the lake had more cuts
            frames = [frame.where(F.col("rule") != VALUE_HAS_TYPE) for frame in frames]
        before, after = (content_hash(frame, without) for frame in frames)
        return TableRebuild(table, before, after)
