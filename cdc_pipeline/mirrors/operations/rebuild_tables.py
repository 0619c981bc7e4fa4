"""Rebuilds some mirrors from the change log, with the tables that statements tie to them (`tied_tables`).

Records are not decoded again and other mirrors are not read, so the cost depends on the chosen tables only. A scratch lake
gets the rows of `change_log`, `ddl_history` and `dead_letters` that concern these tables. CutMaker then builds the mirrors
there, in one cut up to the newest published one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.claims import CLAIMS
from cdc_pipeline.dialects.releases import RELEASES
from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.tables.ddl_history import with_empty_results
from cdc_pipeline.mirrors.changes.dead_letters import VALUE_HAS_TYPE
from cdc_pipeline.mirrors.changes.held_rows import APPROVALS
from cdc_pipeline.mirrors.changes.progress import NO_CUT, published_cut, read_progress
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.cuts.cut_ddl import close_held_statements
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry, published_entries, with_held_gaps
from cdc_pipeline.mirrors.cuts.publish import publish
from cdc_pipeline.mirrors.cuts.quarantine import QuarantinePolicy
from cdc_pipeline.mirrors.cuts.totals import NO_CHANGES
from cdc_pipeline.mirrors.model.ddl_events import ddl_event
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.operations.begun_cut import finish_begun_cut
from cdc_pipeline.mirrors.operations.mirror_replacer import (
    MirrorReplacer,
    clear_rebuilds,
    rebuild_commit,
    rebuild_paths,
)
from cdc_pipeline.mirrors.operations.rebuild import RebuildReport
from cdc_pipeline.mirrors.operations.tied_tables import event_tables, tied_and_merged
from cdc_pipeline.mirrors.settings.table_patterns import matches_any
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.changes.progress import PublishedCut
    from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
    from cdc_pipeline.mirrors.cuts.cut_report import CutReport

_BORROWED = ("raw_topic_snapshot", CLAIMS, RELEASES, APPROVALS, "watermarks", "batches")
_SHOWN = 20


@dataclass(frozen=True)
class _Chosen:
    tables: frozenset[TableName]
    """Names of upstream, tied tables included."""
    positions: tuple[tuple[str, int, int], ...]
    """The statements of these tables, and statements without a known table."""


@dataclass(frozen=True)
class TableRebuilder:
    """Rebuilds chosen mirrors of one pipeline."""

    maker: CutMaker

    @property
    def _lake(self) -> Lake:
        return self.maker.lake

    def rebuild(self, patterns: Sequence[str]) -> RebuildReport:
        """Rebuilds the mirrors whose `database.table` matches a pattern, and replaces those that differ. Call it as the only
        writer (`lake.lock`).

        Raises LakeError if no mirror matches, or no cut is published yet.
        """
        finish_begun_cut(self.maker, abandon=False)
        published = published_cut(self._lake)
        if published is NO_CUT:
            raise LakeError("no cut is published yet: run the ingest first", pipeline=self._lake.paths.pipeline)
        chosen = self._choose(patterns, published)
        self.maker.report(f"rebuilding from the change log: {', '.join(map(str, sorted(chosen.tables)))}")
        scratch = rebuild_paths(self._lake.paths, _BORROWED)
        clear_rebuilds(self._lake)
        try:
            self._write_inputs(scratch, chosen)
            maker = replace(
                self.maker, lake=replace(self._lake, paths=scratch), quarantine_policy=QuarantinePolicy(None)
            )
            built = maker.replay_all(published.resolved_tso, published.last_batch)
            return self._replace_differing(built, chosen, published, scratch)
        finally:
            clear_rebuilds(self._lake)

    # ---- what to rebuild

    def _choose(self, patterns: Sequence[str], published: PublishedCut) -> _Chosen:
        rows = self._lake.read("change_log").select("database", "table").distinct().collect()
        events = [ddl_event(row) for row in self._lake.read("ddl_history").collect()]
        named = {TableName(row["database"], row["table"]) for row in rows}
        named |= {source for name in published.names for source in self._source_tables(name, published)}
        named |= {name for event in events for name in event_tables(event, frozenset())}
        selection = self.maker.selection
        mirror_names = {name: str(selection.mirror_name(name)) for name in named if selection.includes(name)}
        wanted = [name for name, mirror in mirror_names.items() if matches_any(mirror, patterns)]
        if not wanted:
            shown = sorted(mirror_names.values())
            more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
            raise LakeError(
                f"tables: {list(patterns)} matches no table; there are: {', '.join(shown[:_SHOWN])}{more}",
                pipeline=self._lake.paths.pipeline,
            )
        known = frozenset(named)
        tables = tied_and_merged(events, known, wanted, mirror_names)
        # a statement without a known table may concern any table
        positions = [event.position for event in events if not (names := event_tables(event, known)) or names & tables]
        return _Chosen(tables, tuple(positions))

    def _source_tables(self, name: TableName, published: PublishedCut) -> tuple[TableName, ...]:
        """The upstream tables of a mirror. Its own name may differ: `routes` rename, and `ddl_policy: keep` renames the
        mirror of a dropped table."""
        table = table_state(self._lake.spark, self._lake.paths.mirror(name))
        former = name if table is None else MirrorState.from_properties(table.properties).former_name
        return published.sources.get(name) or published.upstream(former)

    def _write_inputs(self, scratch: LakePaths, chosen: _Chosen) -> None:
        """Writes the rows of the lake's decoded tables that concern the chosen tables."""
        names = F.broadcast(
            small_frame(
                self._lake.spark,
                [(name.database, name.table) for name in chosen.tables],
                "`database` STRING, `table` STRING",
            )
        )
        positions = F.broadcast(
            small_frame(self._lake.spark, list(chosen.positions), "topic STRING, `partition` INT, `offset` BIGINT")
        )
        inputs = {
            "change_log": self._lake.read("change_log").join(names, ["database", "table"], "left_semi"),
            "ddl_history": with_empty_results(
                self._lake.read("ddl_history").join(positions, ["topic", "partition", "offset"], "left_semi")
            ),
            "dead_letters": self._lake.read("dead_letters")
            .where(F.col("rule") != VALUE_HAS_TYPE)  # the cut finds those again
            .join(names, ["database", "table"], "left_semi"),
        }
        for table, rows in inputs.items():
            rows.select(*self._lake.read(table).columns).write.format("delta").save(scratch.table(table))

    # ---- compare and replace

    def _replace_differing(
        self, built: CutReport, chosen: _Chosen, published: PublishedCut, scratch: LakePaths
    ) -> RebuildReport:
        cut_id = published.cut_id + 1
        entries = {entry.name: entry for entry in published_entries(published, self._lake.paths)}
        before = {
            name: entry
            for name, entry in entries.items()
            if chosen.tables.intersection(self._source_tables(name, published))
        }
        after = {entry.name: entry for entry in built.mirrors}
        commit = rebuild_commit(self._lake.paths, cut_id, self.maker.run_id)
        replacer = MirrorReplacer(self._lake, commit, self.maker.report)
        tables, changed = replacer.replace_differing(before, after)
        sources = published.sources
        others_held = (table for table in published.held if not chosen.tables & {*published.upstream(table.name)})
        held = (*others_held, *built.held)
        # negative if more rows are held than before
        released_rows = sum(table.rows for table in published.held) - sum(table.rows for table in held)
        recovered = {table.name for table in published.held if table.error} - {table.name for table in held}
        if not changed and not released_rows and not recovered:
            return RebuildReport(tuple(tables), None)
        close_held_statements(self._lake, scratch, commit.note)
        others = [entry for name, entry in entries.items() if name not in before]
        rebuilt = [entry for name in sorted(after) if (entry := self.maker.mirror_entry(name)) is not None]
        report = replace(
            built,
            cut_id=cut_id,
            streams=read_progress(self._lake),
            mirrors=_in_order(with_held_gaps([*others, *rebuilt], held)),
            # earlier cuts have counted all other changes
            totals=replace(NO_CHANGES, changes=released_rows, pending=published.pending - released_rows),
            held=held,
            sources={**{name: source for name, source in sources.items() if name not in before}, **built.sources},
        )
        window = Window(cut_id, None, built.resolved_tso, 0, published.last_batch)
        note = {**commit.note, "cut": cut_id, "pipeline": self._lake.paths.pipeline}
        names = tuple(sorted(chosen.tables))
        publish(self._lake, window, report, note, self.maker.settings, rebuilt_tables=names)
        return RebuildReport(tuple(tables), cut_id)


def _in_order(entries: Iterable[MirrorEntry]) -> tuple[MirrorEntry, ...]:
    return tuple(sorted(entries, key=lambda entry: entry.name))
