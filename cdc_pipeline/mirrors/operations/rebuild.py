"""Rebuilds tables in a scratch lake, compares them with the lake, and replaces those that differ.

All tables are decoded again from the raw snapshot. Chosen ones are built from the change log (`rebuild_scope`), also those
that wait: a rebuild with an approval, or after a quarantine, applies what waited. The scratch lake,
`<lake>/<pipeline>/rebuild`, gets one cut up to the newest published one. A table with equal content stays as it is. One that
differs gets the new rows in a commit of its own, so earlier cuts stay readable. A rebuild that dies is simply run again: it
publishes what the other has replaced.
"""

from __future__ import annotations

import glob
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.dialects.claims import CLAIMS
from cdc_pipeline.dialects.contents import RELEASES
from cdc_pipeline.dialects.decoded_tables import DecodeSettings, decode_batches
from cdc_pipeline.errors import TransientError
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.delta import Commit, table_state
from cdc_pipeline.lake.faults import affects_all_tables
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import BASELINE_ROWS, LakePaths, first_line, remove_folder, table_folders
from cdc_pipeline.lake.restored_tables import foreign_commit
from cdc_pipeline.lake.tables.baselines import BASELINES
from cdc_pipeline.lake.tables.ddl_history import APPLIED
from cdc_pipeline.lake.writes import append_once, overwrite_once
from cdc_pipeline.mirrors.changes.dead_letters import VALUE_HAS_TYPE
from cdc_pipeline.mirrors.changes.progress import (
    NO_CUT,
    PublishedCut,
    newest_known_cut,
    published_cut,
    read_progress,
    require_published,
    with_ends,
)
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.cuts.cut_ddl import mark_approved, update_held_statements
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, publish, published_entries, with_held_gaps
from cdc_pipeline.mirrors.cuts.quarantine import QuarantinePolicy
from cdc_pipeline.mirrors.cuts.stored_plan import is_begun
from cdc_pipeline.mirrors.cuts.totals import NO_CHANGES, lake_balance
from cdc_pipeline.mirrors.execution.mirror_folders import move_mirror
from cdc_pipeline.mirrors.merge.step_context import add_row_gaps
from cdc_pipeline.mirrors.operations.maintenance import EVERY, keep_table_small
from cdc_pipeline.mirrors.operations.mirror_replacer import MirrorReplacer, TableRebuild, content_hash
from cdc_pipeline.mirrors.operations.rebuild_scope import ALL, Scope, chosen_scope, copy_baseline_events, copy_inputs
from cdc_pipeline.mirrors.operations.retention import DECODED, rebuild_start
from cdc_pipeline.mirrors.operations.verification import Verifier
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable, quarantined_tables
from cdc_pipeline.mirrors.settings.table_patterns import matches_any
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import POSITION, Position

_BORROWED = frozenset({"raw_topic_snapshot", CLAIMS, RELEASES, BASELINES, BASELINE_ROWS})
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
    """Tables of a pipeline, rebuilt in a scratch lake up to a published cut."""

    lake: Lake
    """The scratch lake."""
    scope: Scope
    report: CutReport
    """The cut to publish, which follows `published`. Its mirrors are those of the scratch lake."""
    published: PublishedCut
    replaces_all: bool
    """Whether all decoded tables are replaced, because other releases were applied or a begun cut cannot be finished."""
    lake_state: tuple[object, ...]
    """What another run would change in the lake."""


def _valid_cut(published: PublishedCut, scratch: Lake) -> PublishedCut:
    """The cut to rebuild: with another TSO and all batches if the watermark of the published one is a dead letter now, or if
    it has none and the stream has TSOs."""
    streams, tso = read_progress(scratch), published.resolved_tso
    is_valid = tso is not None and bool(read_rows(scratch, "watermarks", ("watermark_ts", "=", tso)))
    if streams.resolved_tso is None or is_valid:
        return published
    return replace(published, resolved_tso=streams.resolved_tso, ends={}, last_batch=streams.last_batch)


@dataclass(frozen=True)
class Rebuilder:
    """Rebuilds tables of one pipeline."""

    maker: CutMaker
    decoding: DecodeSettings = field(default_factory=DecodeSettings)

    @property
    def _lake(self) -> Lake:
        return self.maker.lake

    def rebuild(self, patterns: Sequence[str] = (), approved: frozenset[Position] = frozenset()) -> RebuildReport:
        """Rebuilds from the change log the mirrors whose `database.table` matches a pattern, or, without patterns, all
        tables from the raw snapshot. Replaces what differs. Call it as the only writer (`lake.lock`).

        `approved`: statements that `ddl_policy` no longer holds. Raises LakeError if no mirror matches, or no cut is
        published yet.
        """
        with self.rebuild_in_scratch(patterns, approved) as rebuilt:
            return self.replace_differing(rebuilt)

    def approve(self, held: Iterable[HeldTable]) -> RebuildReport:
        """Rebuilds these tables with the statements that hold them. Call it as the only writer."""
        held = list(held)
        mark_approved(self._lake, (table.statement for table in held), self.maker.run_id)
        names = [glob.escape(str(table.name)) for table in held]
        return self.rebuild(names, frozenset(table.statement for table in held))

    def finish_begun_cut(self, *, abandon: bool) -> bool:
        """Finishes a begun cut. A table whose step fails is quarantined at once.

        Returns True if the cut failed and the caller replaces it; without `abandon` that raises the cut's error instead.
        Errors of the disk, the lake or Spark are raised.
        """
        try:
            replace(self.maker, quarantine_policy=QuarantinePolicy(1)).finish_begun_cut(published_cut(self._lake))
        except Exception as error:
            begun = is_begun(self._lake, published_cut(self._lake))
            if affects_all_tables(error) or not (abandon and begun):
                raise
            self.maker.report(f"the begun cut failed, the rebuild ignores it: {first_line(error)}")
            return True
        return False

    @contextmanager
    def rebuild_in_scratch(
        self,
        patterns: Sequence[str] = (),
        approved: frozenset[Position] = frozenset(),
        releases: DataFrame | None = None,
    ) -> Iterator[RebuiltTables]:
        """Rebuilds tables in a scratch lake, which exists until the `with` block ends. The lake itself stays the same.

        `releases` are applied in place of the lake's own (`dialects.contents`), without patterns only. Raises as `rebuild`.
        """
        # chosen tables cannot replace what a cut has begun in the others
        abandoned = self.finish_begun_cut(abandon=not patterns)
        published, streams = published_cut(self._lake), read_progress(self._lake)
        lake_state = published.cut_id, is_begun(self._lake, published), None if patterns else streams.last_batch
        if not patterns and (lost := newest_known_cut(self._lake, published)) > published.cut_id:
            if streams.without_watermark:
                raise self._lake.error(f"no cut can be made: {streams.blocking_reason()}")
            # the lost cut, without its mirrors: all of them are made again
            streams = with_ends(self._lake, streams)
            abandoned, published = (
                True,
                PublishedCut(lost, streams.resolved_tso, streams.last_batch, (), ends=streams.ends),
            )
        require_published(self._lake, published, mirrors=False)
        if published is NO_CUT:
            raise self._lake.error("no cut is published yet: run the ingest first")
        if patterns and published.selection != self.maker.selection:
            raise self._lake.error(
                "include, exclude or routes have changed, and no cut has applied them yet: run the ingest first, or the "
                "rebuild without tables"
            )
        scope = chosen_scope(self.maker, patterns, published) if patterns else ALL
        start = rebuild_start(self._lake)
        borrowed = _BORROWED if scope.is_all else _BORROWED | {"watermarks", "batches"}
        with self._scratch_lake(borrowed if releases is None else borrowed - {RELEASES}) as scratch:
            if releases is not None:
                releases.write.format("delta").save(scratch.paths.table(RELEASES))
            if scope.is_all:
                if start is not None:
                    start.copy_decoded(self._lake, scratch)
                # all decoded batches: those after the published cut have pending changes
                self._decode(scratch, streams.last_batch)
                copy_baseline_events(self._lake, scratch, 0 if start is None else start.cut.last_batch)
                published = _valid_cut(published, scratch)
            else:
                copy_inputs(self._lake, scratch, scope, 0 if start is None else start.cut.last_batch)
            # a table that fails again stays quarantined, unless it is chosen: then the rebuild fails
            waiting = (name for name in quarantined_tables(published.held) if not matches_any(str(name), patterns))
            at_once = frozenset(map(self.maker.selection.key, waiting))
            if start is not None:
                self.maker.report(f"beginning with cut {start.cut.cut_id}, which has the changes of removed batches")
                start.copy_mirrors(self._lake, scratch, partial(self._is_covered, scope, start.cut))
            built = self._replayer(scratch, scope, at_once, approved).replay_all(published)
            self._keep_contradictions(scratch, NO_CUT if start is None else start.cut)
            if start is not None:
                earlier = built.totals.changes + start.earlier_changes(self._lake)
                built = replace(built, totals=replace(built.totals, changes=earlier))
            report = _scoped_report(replace(built, cut_id=published.cut_id + 1, streams=streams), scope, published)
            yield RebuiltTables(scratch, scope, report, published, abandoned or releases is not None, lake_state)

    def _keep_contradictions(self, scratch: Lake, start: PublishedCut) -> None:
        """Gives rebuilt mirrors their gap `contradicted` again, unless all their changes find their rows now."""
        verifier = Verifier(self._lake, self.maker.settings, self.maker.report)
        known = verifier.contradicted()
        if not known:
            return
        rebuilt = published_cut(scratch)
        commit = Commit(scratch.paths.app_id("verifications"), rebuilt.cut_id, {})
        for name, (one, _) in replace(verifier, lake=scratch).check(start, rebuilt, known).items():
            if one.contradicted or one.reason is not None:
                add_row_gaps(scratch.spark, rebuilt.mirror_folder(name, scratch.paths), [known[name]], commit)

    def _is_covered(self, scope: Scope, cut: PublishedCut, mirror: TableName) -> bool:
        """Whether the mirror of this earlier cut is one of the scope, under any name that its table had."""
        key, names = self.maker.selection.key, self._rebuilt_names(scope)
        names |= {cut.selection.mirror_name(name) for name in scope.tables or () if cut.selection.includes(name)}
        return scope.is_all or key(mirror) in set(map(key, names))

    def _decode(self, scratch: Lake, last_batch: int) -> None:
        """Decodes all batches into the scratch lake, and keeps its tables small meanwhile: each batch is a commit."""
        report = self.maker.report
        report(f"decoding {last_batch} batches again")

        def decoded(batch_id: int) -> None:
            if batch_id % EVERY == 0:
                report(f"decoded {batch_id} of {last_batch} batches")
                for table in DECODED:
                    keep_table_small(scratch, table, scratch.paths.table(table), lambda line: None)

        decode_batches(scratch, self.decoding, last_batch, self._lake, decoded=decoded)

    @contextmanager
    def _scratch_lake(self, borrowed: Iterable[str]) -> Iterator[Lake]:
        """A new lake that reads the tables in `borrowed` in place. Removes those of rebuilds that died."""
        paths = self._lake.paths
        folder = f"{paths.home}/rebuild"
        remove_folder(self._lake.spark, folder)
        try:
            # a new folder each time: Delta caches the logs of the paths it has read
            tables = {name: paths.table(name) for name in borrowed}
            yield replace(self._lake, paths=LakePaths(f"{folder}/{uuid.uuid4().hex}", paths.pipeline, tables))
        finally:
            remove_folder(self._lake.spark, folder)

    def _replayer(
        self, scratch: Lake, scope: Scope, at_once: frozenset[TableName], approved: frozenset[Position]
    ) -> CutMaker:
        """Makes the mirrors of the scratch lake. `at_once`: as in QuarantinePolicy."""
        named = "" if scope.tables is None else f" from the change log: {', '.join(map(str, sorted(scope.tables)))}"
        self.maker.report(f"rebuilding the mirrors{named}")
        # what the mirrors have applied was approved, or no policy held it then
        applied = read_rows(self._lake, "ddl_history", ("status", "=", APPLIED), columns=POSITION)
        return replace(
            self.maker,
            lake=scratch,
            quarantine_policy=QuarantinePolicy(None, at_once),
            permitted=approved | {Position(**row) for row in applied},
        )

    # ---- compare and replace

    def replace_differing(self, rebuilt: RebuiltTables) -> RebuildReport:
        """Replaces the lake's tables that differ, and publishes a cut if any does or other tables are held."""
        scratch, scope, report, published = rebuilt.lake, rebuilt.scope, rebuilt.report, rebuilt.published
        commit = Commit(
            # a new writer, so Delta never skips it: a rebuild compares before it writes
            f"cdc:{self._lake.paths.pipeline}:rebuild:{uuid.uuid4().hex}",
            1,
            {"rebuild": report.cut_id, "run_id": self.maker.run_id},
        )
        decoded, decoded_changed = self._replace_decoded(rebuilt, commit)
        entries = published_entries(published, self._lake.paths)
        # still quarantined: their mirrors stay as they are
        kept, key = quarantined_tables(report.held), self.maker.selection.key
        kept |= {entry.name for entry in (*entries, *report.mirrors) if key(entry.name) in set(map(key, kept))}
        before = {entry.name: entry for entry in entries if scope.covers(entry.name) and entry.name not in kept}
        after = {entry.name: entry for entry in report.mirrors if entry.name not in kept}
        if self._lake.paths.is_local:
            self._set_aside(rebuilt, kept)
        replacer = MirrorReplacer(self._lake, commit, self.maker.report, lambda: self._require_unchanged(rebuilt))
        mirrors = [replacer.replace(name, before.get(name), after.get(name)) for name in sorted({*before, *after})]
        tables = (*decoded, *(table for table, _, _ in mirrors))
        changed = decoded_changed or any(changed for _, _, changed in mirrors)
        self._require_unchanged(rebuilt)
        update_held_statements(self._lake, scratch, commit.note)
        if not changed and _held_rows(report.held) == _held_rows(published.held):
            return RebuildReport(tables, None)
        others = (entry for entry in entries if entry.name not in before)
        now = sorted([*others, *(entry for _, entry, _ in mirrors if entry)], key=lambda entry: entry.name)
        publish(
            self._lake,
            Window(report.cut_id, None, report.resolved_tso, 0, published.last_batch, before=published.ends),
            replace(report, mirrors=with_held_gaps(now, report.held)),
            {**commit.note, "cut": report.cut_id, "pipeline": self._lake.paths.pipeline},
            self.maker.settings,
            rebuilt=scope.is_all,
            rebuilt_tables=() if scope.is_all else sorted(self._rebuilt_names(scope) - kept | set(after)),
        )
        return RebuildReport(tables, report.cut_id)

    def _replace_decoded(self, rebuilt: RebuiltTables, commit: Commit) -> tuple[list[TableRebuild], bool]:
        """Replaces all decoded tables if any differs. Returns one entry per table, and whether they differ from what the
        cuts have counted."""
        is_all = rebuilt.scope.is_all
        tables = [self._compare(table, rebuilt.lake) for table in DECODED] if is_all else []
        # the comparison ignores dead letters of cuts (VALUE_HAS_TYPE): a release may remove some
        changed = is_all and (rebuilt.replaces_all or not all(table.equal for table in tables))
        if changed:
            self._require_unchanged(rebuilt)
            for table in DECODED:
                overwrite_once(rebuilt.lake.read(table), self._lake.paths.table(table), commit)
        else:
            self._add_dead_letters(rebuilt.lake, commit)
        # a rebuild that died may have replaced them before
        return tables, changed or (is_all and not lake_balance(self._lake).is_balanced)

    def _set_aside(self, rebuilt: RebuiltTables, kept: frozenset[TableName]) -> None:
        """Moves mirrors to `dropped/` that the published cut does not have at their paths: a cut that failed has moved or
        created them. Those of `kept` stay."""
        paths, scope = self._lake.paths, rebuilt.scope
        ids = {entry.path: entry.mirror_id for entry in published_entries(rebuilt.published, paths)}
        aside = f"{paths.home}/dropped/given-up-{uuid.uuid4().hex[:8]}"
        found = {*table_folders(self._lake.spark, f"{paths.home}/mirror")}
        if not scope.is_all:
            found &= set(map(paths.mirror, self._rebuilt_names(scope)))
        for number, path in enumerate(found - set(map(paths.mirror, kept))):
            table = table_state(self._lake.spark, path)
            if table is not None and table.properties.get("cdc.mirror_id") != ids.get(path):
                self._require_unchanged(rebuilt)
                move_mirror(self._lake, path, f"{aside}/{number}")

    def _rebuilt_names(self, scope: Scope) -> frozenset[TableName]:
        """The mirrors of the chosen tables, under all names that the tables had."""
        selection = self.maker.selection
        names = {selection.mirror_name(name) for name in scope.tables or () if selection.includes(name)}
        # breaches are stored by key
        return scope.mirrors.union(names, map(selection.key, names))

    def _require_unchanged(self, rebuilt: RebuiltTables) -> None:
        """Raises TransientError if another run has written since the rebuild began, as it can on lakes without a lock."""
        published = published_cut(self._lake)
        last_batch = read_progress(self._lake).last_batch if rebuilt.scope.is_all else None
        if (published.cut_id, is_begun(self._lake, published), last_batch) != rebuilt.lake_state:
            raise TransientError(
                "another run has written since the rebuild began: stop the sensor and other runs, and rebuild again",
                pipeline=self._lake.paths.pipeline,
            )

    def _add_dead_letters(self, scratch: Lake, commit: Commit) -> None:
        """Appends the dead letters of rows that only the rebuild has merged."""
        key = [*POSITION, "database", "table"]
        known, found = (
            lake.read("dead_letters").where(F.col("rule") == VALUE_HAS_TYPE) for lake in (self._lake, scratch)
        )
        new = found.join(known.select(*key), key, "left_anti").select(*found.columns).localCheckpoint()
        if not new.isEmpty():
            append_once(new, self._lake.paths.table("dead_letters"), commit)

    def _compare(self, table: str, scratch: Lake) -> TableRebuild:
        without = _NOT_COMPARED.get(table, frozenset())
        frames = [lake.read(table) for lake in (self._lake, scratch)]
        if table == "dead_letters":
            # cuts write those: of a row's bad values each cut rejects the last one, and the lake had more cuts
            frames = [frame.where(F.col("rule") != VALUE_HAS_TYPE) for frame in frames]
        before, after = (content_hash(frame, without) for frame in frames)
        return TableRebuild(table, foreign_commit(self._lake, self._lake.paths.table(table)) or before, after)


def _scoped_report(report: CutReport, scope: Scope, published: PublishedCut) -> CutReport:
    """The report of a rebuild's cut, with what `published` has of other tables."""
    if scope.is_all:
        return report
    held = (*(table for table in published.held if not scope.covers(table.name)), *report.held)
    # negative if more rows are held than before
    released_rows = published.held_rows - sum(table.rows for table in held)
    # earlier cuts have counted all other changes
    totals = replace(NO_CHANGES, changes=released_rows, pending=published.pending - released_rows)
    return replace(report, held=held, totals=totals)


def _held_rows(held: Iterable[HeldTable]) -> set[tuple[TableName, int, bool]]:
    return {(table.name, table.rows, bool(table.error)) for table in held}
