"""Which tables a rebuild covers: all, or chosen ones with those that statements tie to them (RENAME, LIKE, EXCHANGE …).

Chosen tables are rebuilt from the change log: records are not decoded again and other mirrors are not read, so the cost
depends on the chosen tables only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import functions as F

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.ddl_history import with_empty_results
from cdc_pipeline.mirrors.changes.dead_letters import VALUE_HAS_TYPE
from cdc_pipeline.mirrors.changes.progress import PublishedCut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent, ddl_event
from cdc_pipeline.mirrors.model.state import mirror_state
from cdc_pipeline.mirrors.settings.table_patterns import matches_any
from cdc_pipeline.mysql.ddl.statements import BASELINE_EVENT
from cdc_pipeline.mysql.model import schema_changes as ddl
from cdc_pipeline.mysql.model.change_names import folded
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position
from cdc_pipeline.spark.small_frames import small_frame

_SHOWN = 20


@dataclass(frozen=True)
class Scope:
    """The tables that a rebuild covers."""

    tables: frozenset[TableName] | None = None
    """Names of upstream, tied tables included. None: all."""
    mirrors: frozenset[TableName] = frozenset()
    """The mirrors of these tables, as far as the published cut knows them."""
    statements: tuple[Position, ...] = ()
    """The statements of these tables, and statements without a known table."""

    @property
    def is_all(self) -> bool:
        return self.tables is None

    def covers(self, mirror: TableName) -> bool:
        return self.is_all or mirror in self.mirrors


ALL = Scope()


def chosen_scope(maker: CutMaker, patterns: Sequence[str], published: PublishedCut) -> Scope:
    """The tables whose mirror's `database.table` matches a pattern, and those tied to them. Raises LakeError if no mirror
    matches."""
    rows = maker.lake.read("change_log").select("database", "table").distinct().collect()
    events = [ddl_event(row) for row in maker.lake.read("ddl_history").collect()]
    mirrors = {*published.names, *(table.name for table in published.held)}
    sources = {name: _upstream_tables(maker, published, name) for name in mirrors}
    known = frozenset(TableName(row["database"], row["table"]) for row in rows).union(
        *sources.values(), *(_event_tables(event, frozenset()) for event in events)
    )
    mirror_names = {name: str(maker.selection.mirror_name(name)) for name in known if maker.selection.includes(name)}
    wanted = [name for name, mirror in mirror_names.items() if matches_any(mirror, patterns)]
    if not wanted:
        shown = sorted(mirror_names.values())
        more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        raise maker.lake.error(
            f"tables: {list(patterns)} matches no table; there are: {', '.join(shown[:_SHOWN])}{more}"
        )
    tables = tied_tables(events, known, wanted, mirror_names)
    # a statement without a known table may concern any table
    statements = (event.position for event in events if not (names := _event_tables(event, known)) or names & tables)
    return Scope(tables, frozenset(name for name in mirrors if tables.intersection(sources[name])), tuple(statements))


def _upstream_tables(maker: CutMaker, published: PublishedCut, name: TableName) -> tuple[TableName, ...]:
    """The upstream tables of a mirror. Its own name may differ: `routes` rename, and `ddl_policy: keep` renames the mirror
    of a dropped table."""
    state = mirror_state(maker.lake.spark, published.mirror_folder(name, maker.lake.paths))
    return (name,) if state is None else state.upstream_tables


def tied_tables(
    events: Iterable[DdlEvent],
    known: Iterable[TableName],
    chosen: Iterable[TableName],
    mirror_names: Mapping[TableName, str] | None = None,
) -> frozenset[TableName]:
    """The chosen tables and all that statements or a merged mirror tie to them, directly or through others.

    `known`: all names that tables ever had. A statement on a database ties all of its tables. Names that differ in case
    alone may be one table. `mirror_names`: the mirror of each included table.
    """
    known = frozenset(known)
    merged: dict[str | TableName, set[TableName]] = defaultdict(set)
    for name, mirror in (mirror_names or {}).items():
        merged[mirror].add(name)
    for name in known:
        merged[folded(name)].add(name)
    groups = [*(_event_tables(event, known) for event in events), *merged.values()]
    tied, size = set(chosen), -1
    while len(tied) > size:
        size = len(tied)
        for group in groups:
            if not tied.isdisjoint(group):
                tied |= group
    return frozenset(tied)


def _event_tables(event: DdlEvent, known: frozenset[TableName]) -> set[TableName]:
    """All tables that the event names, those it only reads included. A name without a database means every known table of
    that name."""
    found: set[TableName] = set()
    for change in event.changes:
        for name in {*change.names().touched, *change.names().read}:
            found |= (
                {name} if name.database else {other for other in known if other.table.lower() == name.table.lower()}
            )
        # its rows change with those of the tables that its foreign keys reference
        added = [one.key for one in getattr(change, "clauses", ()) if isinstance(one, ddl.AddForeignKey)]
        for key in change.schema.foreign_keys if isinstance(change, ddl.CreateTable) else added:
            found.add(replace(key.table, database=key.table.database or event.database))
        if isinstance(change, (ddl.DropDatabase, ddl.RecoverDatabase)):
            found |= {name for name in known if name.database.lower() == change.database.lower()}
    return found


def copy_baseline_events(lake: Lake, scratch: Lake, after: int) -> None:
    """Copies the events of baselines of the batches after `after` to the scratch lake: no raw record brings them back."""
    rows = lake.read("ddl_history").where((F.col("kind") == BASELINE_EVENT) & (F.col("batch_id") > after))
    if not rows.isEmpty():
        events = with_empty_results(rows).select(*rows.columns)
        events.write.format("delta").mode("append").save(scratch.paths.table("ddl_history"))


def copy_inputs(lake: Lake, scratch: Lake, scope: Scope, decided: int) -> None:
    """Copies the rows of the lake's decoded tables that concern the chosen tables to the scratch lake. Statements of batches
    up to `decided` keep their results."""
    tables = [(name.database, name.table) for name in scope.tables or ()]
    by_table = F.broadcast(small_frame(lake.spark, tables, "`database` STRING, `table` STRING"))
    by_position = F.broadcast(
        small_frame(lake.spark, list(scope.statements), "topic STRING, `partition` INT, `offset` BIGINT")
    )
    for table, keys in (("change_log", by_table), ("ddl_history", by_position), ("dead_letters", by_table)):
        rows = lake.read(table)
        copied = rows.join(keys, keys.columns, "left_semi")
        if table == "ddl_history":
            is_decided = F.col("batch_id") <= decided
            emptied = with_empty_results(copied.where(~is_decided)).select(*copied.columns)
            copied = copied.where(is_decided).unionByName(emptied)
        elif table == "dead_letters":
            copied = copied.where(F.col("rule") != VALUE_HAS_TYPE)  # the cut finds those again
        copied.select(*rows.columns).write.format("delta").save(scratch.paths.table(table))
