"""Some mirrors made again from the change log, with the tables that statements tie to them
(`mirrors.operations.tied_tables`).

The records are not decoded again, and no other mirror is looked at, so that it costs what the chosen tables cost. The lake's
`change_log` and `ddl_history`, cut down to these tables, stand beside the lake while the mirrors are made, in one cut
up to the newest published one, by the code that makes any cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.claims import CLAIMS
from cdc_pipeline.dialects.releases import RELEASES
from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.tables.ddl_history import undecided
from cdc_pipeline.mirrors.changes.dead_letters import VALUE_HAS_TYPE
from cdc_pipeline.mirrors.changes.held_rows import APPROVALS
from cdc_pipeline.mirrors.changes.progress import NO_CUT, published_cut, stream_progress
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.cuts.cut_ddl import close_statements
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry, published_entries, with_held_gaps
from cdc_pipeline.mirrors.cuts.publish import publish
from cdc_pipeline.mirrors.cuts.quarantine import GivingUp
from cdc_pipeline.mirrors.cuts.totals import NO_CHANGES
from cdc_pipeline.mirrors.model.ddl_events import ddl_event
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.operations.begun_cut import settled
from cdc_pipeline.mirrors.operations.mirror_replacer import (
    MirrorReplacer,
    clear_rebuilds,
    rebuild_commit,
    rebuild_place,
)
from cdc_pipeline.mirrors.operations.rebuild import RebuildReport
from cdc_pipeline.mirrors.operations.tied_tables import event_tables, tied_and_merged
from cdc_pipeline.mirrors.settings.table_patterns import matches_any
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.changes.progress import PublishedCut
    from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
    from cdc_pipeline.mirrors.cuts.cut_report import CutReport

_BORROWED = ("raw_topic_snapshot", CLAIMS, RELEASES, APPROVALS, "watermarks", "batches")
_SHOWN = 20


@dataclass(frozen=True)
class _Chosen:
    """`tables` are upstream's names, ties included; `positions` the statements that are theirs, or nobody's."""

    tables: frozenset[TableName]
    positions: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class TableRebuilder:
    """Rebuilds mirrors of one pipeline. `maker` is how its cuts are made."""

    maker: CutMaker

    @property
    def _spark(self) -> SparkSession:
        return self.maker.spark

    @property
    def _paths(self) -> LakePaths:
        return self.maker.paths

    def rebuilt(self, patterns: Sequence[str]) -> RebuildReport:
        """Makes the mirrors whose `database.table` matches a pattern again, and puts right what differs. Raises LakeError
        where none does, or nothing was published yet. Call it as the only writer (`lake.lock`)."""
        settled(self.maker, abandon=False)
        published = published_cut(self._spark, self._paths)
        if published is NO_CUT:
            raise LakeError("there is no cut to rebuild yet", pipeline=self._paths.pipeline)
        chosen = self._chosen(patterns, published)
        self.maker.report(f"making again from the change log: {', '.join(map(str, sorted(chosen.tables)))}")
        aside = rebuild_place(self._paths, _BORROWED)
        clear_rebuilds(self._spark, self._paths)
        try:
            self._write_inputs(aside, chosen)
            maker = replace(self.maker, paths=aside, giving_up=GivingUp(None))
            made = maker.from_the_beginning(published.resolved_tso, published.last_batch)
            return self._put_right(made, chosen, published, aside)
        finally:
            clear_rebuilds(self._spark, self._paths)

    def _read(self, table: str) -> DataFrame:
        return self._spark.read.format("delta").load(self._paths.table(table))

    # ---- what to make again

    def _chosen(self, patterns: Sequence[str], published: PublishedCut) -> _Chosen:
        rows = self._read("change_log").select("database", "table").distinct().collect()
        events = [ddl_event(row) for row in self._read("ddl_history").collect()]
        named = {TableName(row["database"], row["table"]) for row in rows}
        named |= {source for name in published.names for source in self._upstream(name, published)}
        named |= {name for event in events for name in event_tables(event, frozenset())}
        selection = self.maker.selection
        mirrored = {name: str(selection.routed(name)) for name in named if selection.is_in(name)}
        wanted = [name for name, mirror in mirrored.items() if matches_any(mirror, patterns)]
        if not wanted:
            shown = sorted(mirrored.values())
            more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
            raise LakeError(
                f"tables: {list(patterns)} names no table; there are: {', '.join(shown[:_SHOWN])}{more}",
                pipeline=self._paths.pipeline,
            )
        known = frozenset(named)
        tables = tied_and_merged(events, known, wanted, mirrored)
        # a statement of which nobody knows whose it is may concern these too
        mine = [event.position for event in events if not (names := event_tables(event, known)) or names & tables]
        return _Chosen(tables, tuple(mine))

    def _upstream(self, name: TableName, published: PublishedCut) -> tuple[TableName, ...]:
        """The names that upstream had for a mirror, which a DROP may have set apart (`ddl_policy`), and routes rename."""
        table = table_state(self._spark, self._paths.mirror(name))
        own = name if table is None else MirrorState.from_properties(table.properties).name_upstream
        return published.sources.get(name) or published.upstream(own)

    def _write_inputs(self, aside: LakePaths, chosen: _Chosen) -> None:
        """The lake's decoded tables, cut down to the chosen ones."""
        names = F.broadcast(
            small_frame(
                self._spark,
                [(name.database, name.table) for name in chosen.tables],
                "`database` STRING, `table` STRING",
            )
        )
        places = F.broadcast(
            small_frame(self._spark, list(chosen.positions), "topic STRING, `partition` INT, `offset` BIGINT")
        )
        of_tables = {
            "change_log": self._read("change_log").join(names, ["database", "table"], "left_semi"),
            "ddl_history": undecided(
                self._read("ddl_history").join(places, ["topic", "partition", "offset"], "left_semi")
            ),
            "dead_letters": self._read("dead_letters")
            .where(F.col("rule") != VALUE_HAS_TYPE)  # those are told anew
            .join(names, ["database", "table"], "left_semi"),
        }
        for table, rows in of_tables.items():
            rows.select(*self._read(table).columns).write.format("delta").save(aside.table(table))

    # ---- compare and replace

    def _put_right(self, made: CutReport, chosen: _Chosen, published: PublishedCut, aside: LakePaths) -> RebuildReport:
        cut_id = published.cut_id + 1
        entries = {entry.name: entry for entry in published_entries(published, self._paths)}
        before = {name: entry for name, entry in entries.items() if chosen.tables & {*self._upstream(name, published)}}
        after = {entry.name: entry for entry in made.mirrors}
        commit = rebuild_commit(self._paths, cut_id, self.maker.run_id)
        found, changed = MirrorReplacer(self._spark, self._paths, commit, self.maker.report).put_right(before, after)
        sources = published.sources
        others_held = (table for table in published.held if not chosen.tables & {*published.upstream(table.name)})
        held = (*others_held, *made.held)
        # what waited for an approval and waits no more, or the other way round
        returned = sum(table.rows for table in published.held) - sum(table.rows for table in held)
        back = {table.name for table in published.held if table.error} - {table.name for table in held}
        if not changed and not returned and not back:
            return RebuildReport(tuple(found), None)
        close_statements(self._spark, self._paths, aside, commit.note)
        others = [entry for name, entry in entries.items() if name not in before]
        anew = [entry for name in sorted(after) if (entry := self.maker.entry(name)) is not None]
        report = replace(
            made,
            cut_id=cut_id,
            streams=stream_progress(self._spark, self._paths),
            mirrors=_in_order(with_held_gaps([*others, *anew], held)),
            # all changes but these are in the cuts before
            totals=replace(NO_CHANGES, changes=returned, pending=published.pending - returned),
            held=held,
            sources={**{name: source for name, source in sources.items() if name not in before}, **made.sources},
        )
        window = Window(cut_id, None, made.resolved_tso, 0, published.last_batch)
        note = {**commit.note, "cut": cut_id, "pipeline": self._paths.pipeline}
        tables = tuple(sorted(chosen.tables))
        publish(self._spark, self._paths, window, report, note, self.maker.settings, rebuilt_tables=tables)
        return RebuildReport(tuple(found), cut_id)


def _in_order(entries: Iterable[MirrorEntry]) -> tuple[MirrorEntry, ...]:
    return tuple(sorted(entries, key=lambda entry: entry.name))
