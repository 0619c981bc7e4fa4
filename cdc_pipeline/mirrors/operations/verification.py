"""Verifies mirrors by their own streams: each UPDATE and DELETE says what the row was before it (`merge.row_chains`).

The changes between the last verified cut and the newest one are compared with the mirrors as they were at the former. A
change that contradicts its row gives the table the gap `contradicted`: a change before it never arrived, arrived in the
wrong place, or was written past the binlog.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.control_tables import read_sums
from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.delta_log import readable_version
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.batches import first_decoding
from cdc_pipeline.lake.tables.verifications import (
    VERIFICATIONS,
    Rows,
    Verified,
    append_verified,
    last_verification,
    last_verified_cut,
    read_verifications,
    verified_totals,
)
from cdc_pipeline.mirrors.changes.cut_rows import CutRows, RowSelection
from cdc_pipeline.mirrors.changes.deliveries import RESENT_MS
from cdc_pipeline.mirrors.changes.progress import PublishedCut, cut_with_id, published_cut, window_between
from cdc_pipeline.mirrors.changes.row_groups import RowGroup, encodings_of_groups, with_types
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry, published_entries
from cdc_pipeline.mirrors.cuts.stored_plan import is_begun
from cdc_pipeline.mirrors.merge.row_chains import Chains, ChainTable, check_chains
from cdc_pipeline.mirrors.merge.soft_deletes import live_rows
from cdc_pipeline.mirrors.merge.step_context import add_row_gaps
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent, ddl_event, in_upstream_order
from cdc_pipeline.mirrors.model.state import MirrorState, mirror_state
from cdc_pipeline.mirrors.operations.retention import rebuilt_cuts
from cdc_pipeline.mirrors.planning.included_ddl import mirrored_event
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mysql.model.schema_changes import CreateTable, CreateTableLike, SchemaChange, TruncateTable
from cdc_pipeline.mysql.model.table import TableName

_UNKNOWN_START = frozenset(
    {GapKind.UNSEEN_START, GapKind.UNSEEN_TABLES, GapKind.NOT_INCLUDED_BEFORE, GapKind.CONTRADICTED}
)
"""Gaps of tables whose rows are right, but which may lack some."""


_MOST_IN_A_RUN = 2_000_000
"""Row changes that a run verifies between two batches, in about two minutes."""


@dataclass
class Verifier:
    """Verifies the mirrors of one pipeline, in one run."""

    lake: Lake
    settings: CutSettings
    report: Callable[[str], None]
    """Receives one line per table with a contradiction."""

    @cached_property
    def verified(self) -> Rows:
        """The rows of `verifications`, with those of `verify`."""
        return read_verifications(self.lake)

    def verify(self, run_id: str) -> tuple[Verified, ...]:
        """Verifies what cuts have applied since the last verification, and gives tables with a contradiction their gap. Call
        it as the only writer. Returns what is new; nothing while a cut is begun."""
        published, verified = published_cut(self.lake), last_verified_cut(self.verified)
        if published.cut_id <= verified or is_begun(self.lake, published):
            return ()
        start = cut_with_id(self.lake, verified)
        found = self.check(start, published)
        commit = Commit(self.lake.paths.app_id(VERIFICATIONS), published.cut_id, {"run_id": run_id})
        for name, (_, gap) in found.items():
            if gap is not None:
                path = published.mirror_folder(name, self.lake.paths)
                if _contradiction(mirror_state(self.lake.spark, path)) is None:
                    add_row_gaps(self.lake.spark, path, [gap], commit)
                self.report(f"{name}: {gap}")
        tables = tuple(verified for verified, _ in found.values())
        self.verified = [*self.verified, *append_verified(self.lake, published.cut_id, run_id, tables)]
        return tables

    def verify_if_due(self, run_id: str, pause: timedelta) -> None:
        """`verify`, if it last ran, or the first batch was decoded, longer ago than `pause`, and if a run has time for the
        changes."""
        if (last_verification(self.verified) or first_decoding(self.lake)) <= datetime.now(timezone.utc) - pause:
            first = cut_with_id(self.lake, last_verified_cut(self.verified)).last_batch
            new = read_sums(self.lake, "batches", ("batch_id", ">", first), columns=["row_changes"])["row_changes"]
            if new <= _MOST_IN_A_RUN:
                self.verify(run_id)
            else:
                self.report(f"{new} row changes are not verified yet: run {self.lake.paths.pipeline}_verify")

    def contradicted(self) -> dict[TableName, Gap]:
        """The mirrors with the gap `contradicted`."""
        ids = {one.mirror_id for one in verified_totals(self.verified).values() if one.contradicted}
        entries = published_entries(published_cut(self.lake), self.lake.paths)
        states = {entry.name: mirror_state(self.lake.spark, entry.path) for entry in entries if entry.mirror_id in ids}
        return {name: gap for name, state in states.items() if (gap := _contradiction(state)) is not None}

    def check(
        self, start: PublishedCut, published: PublishedCut, names: Iterable[TableName] | None = None
    ) -> dict[TableName, tuple[Verified, Gap | None]]:
        """Compares the changes that the cuts after `start` have applied. Writes nothing. `names`: of mirrors; None: all.

        Returns, for each mirror with changes, what they prove, and the gap if they contradict its rows.
        """
        window, selection = window_between(start, published), published.selection
        statements = window.rows_in(self.lake.read("ddl_history")).collect()
        events = (mirrored_event(event, selection) for event in in_upstream_order(map(ddl_event, statements)))
        last_statements = {name: event for event in events for name in event.names()}
        entries = published_entries(published, self.lake.paths)
        chosen = {selection.key(entry.name): entry for entry in entries if names is None or entry.name in set(names)}
        with contextlib.closing(CutRows(self.lake, window, selection, RowSelection())) as rows:
            before = window.rows_before(rows.log)
            tables = _Tables(self.lake, self.settings, start, published, before, rows, last_statements)
            keys = sorted(chosen.keys() & tables.groups.keys(), key=lambda key: chosen[key].name)
            return {chosen[key].name: tables.verified(key, chosen[key]) for key in keys}


def _contradiction(state: MirrorState | None) -> Gap | None:
    """The gap `contradicted` of a mirror."""
    gaps = () if state is None else state.gaps
    return next((gap for gap in gaps if gap.kind is GapKind.CONTRADICTED), None)


@dataclass(frozen=True)
class _Tables:
    """The tables with changes in the window between two cuts."""

    lake: Lake
    settings: CutSettings
    start: PublishedCut
    published: PublishedCut
    before: DataFrame
    """The row changes before the window."""
    rows: CutRows
    """Those in the window."""
    statements: Mapping[TableName, DdlEvent]
    """Mirror's key → its last statement in the window."""

    @cached_property
    def groups(self) -> dict[TableName, list[RowGroup]]:
        """The row changes of each table, by key."""
        found = defaultdict(list)
        for group in self.rows.group(with_text_bytes=False):
            found[group.name].append(group)
        return found

    @cached_property
    def _former(self) -> dict[str, MirrorEntry]:
        """Mirror id → the mirror at the start."""
        return {entry.mirror_id: entry for entry in published_entries(self.start, self.lake.paths)}

    @cached_property
    def _rebuilt(self) -> set[TableName | None]:
        return _rebuilt_between(self.lake, self.start.cut_id, self.published.cut_id)

    def verified(self, key: TableName, entry: MirrorEntry) -> tuple[Verified, Gap | None]:
        """What the changes of one table prove, and the gap if they contradict its rows."""
        changes = sum(group.changes for group in self.groups[key])
        found = Verified(entry.mirror_id, entry.name.database, entry.name.table, changes)
        if (state := mirror_state(self.lake.spark, entry.path)) is None:
            return replace(found, reason="the mirror is not there"), None
        table = self._table(key, state)
        if (reason := _obstacle(table)) is not None:
            return replace(found, reason=reason), None
        chains, reason = self._chains(key, entry, table)
        found = replace(found, proved=chains.proved, contradicted=chains.contradicted, reason=reason)
        return found, _gap(chains) if chains.contradicted else None

    def _chains(self, key: TableName, entry: MirrorEntry, table: ChainTable) -> tuple[Chains, str | None]:
        """What the changes prove, and why not all of them were looked at."""
        rows, last = self._settled(key), self.statements.get(key)
        starts_complete = not any(gap.kind in _UNKNOWN_START for gap in table.state.gaps)
        if last is None:
            mirror = self._former_rows(entry) if table.has_plain_key else None
            is_complete = mirror is not None and starts_complete
            return check_chains(rows, self._earlier(key), table, mirror, is_complete=is_complete), None
        # before it the table may have had other columns. Without TSOs a row may have the time of a statement before it
        is_empty = any(_empties(change) for change in last.changes if key in change.names().touched)
        chains = check_chains(
            _rows_after(rows, last),
            self._earlier(key),
            table,
            None,
            is_complete=is_empty and last.exact_ts and starts_complete,
        )
        return chains, None if is_empty else "a statement has changed the table in between"

    @cached_property
    def _newest(self) -> tuple[dict[TableName, set[str]], dict[str, dict[int, int]]]:
        """Key → the topics of its changes in the window; topic → partition → `at` of its newest change."""
        topics: dict[TableName, set[str]] = defaultdict(set)
        newest: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        rows = self.rows.changes.groupBy("database", "table", "topic", "partition").agg(F.max("at")).collect()
        for database, table, topic, partition, at in rows:
            topics[TableName(database, table)].add(topic)
            newest[topic][partition] = max(newest[topic][partition], at)
        return topics, newest

    def _settled(self, key: TableName) -> DataFrame:
        """The changes of a table in the window. Without watermarks: those before which no partition of the topic can bring
        others, unless it is far behind."""
        rows = _of_table(self.rows.changes, key)
        if not self.published.ends:
            return rows
        topics, newest = self._newest
        ends = [at for topic in topics[key] for at in newest[topic].values()]
        settled = max(min(ends), max(ends) - (RESENT_MS << TSO_SHIFT))
        return rows.where(F.col("at") <= settled)

    def _earlier(self, key: TableName) -> DataFrame:
        """The changes of the table before the window that an encoder without TSOs may have sent again in it."""
        ends = self.start.ends.values()
        since = F.lit(False) if not ends else F.col("at") >= min(ends) - (RESENT_MS << TSO_SHIFT)
        return _of_table(self.before, key).where(since)

    def _former_rows(self, entry: MirrorEntry) -> DataFrame | None:
        """The rows of the mirror at the start; None if they cannot be read, or a rebuild has replaced the mirror since."""
        former = self._former.get(entry.mirror_id)
        if former is None or entry.name in self._rebuilt or None in self._rebuilt:
            return None
        if (version := readable_version(self.lake.spark, entry.path, former.version)) is None:
            return None
        mirror = self.lake.read_path(entry.path, version)
        return live_rows(mirror, keeps_deleted=former.keeps_deleted)

    def _table(self, key: TableName, state: MirrorState) -> ChainTable:
        groups = with_types(self.groups[key], self.lake, self.rows.changes, lambda _: state)
        sent = {name.lower(): name for group in groups for name in group.columns}
        spelled = {name: sent.get(name.lower(), name) for name in state.schema.column_names}
        own = state.key_columns(self.settings.keys)
        return ChainTable(state, own, encodings_of_groups(groups), self.settings.time_zone, spelled)


def _of_table(rows: DataFrame, key: TableName) -> DataFrame:
    return rows.where((F.col("database") == key.database) & (F.col("table") == key.table))


def _rows_after(rows: DataFrame, statement: DdlEvent) -> DataFrame:
    """The rows that certainly follow the statement, without a hole in their order (`row_chains`)."""
    if not dialect_has_trait(statement.dialect, Trait.IN_LOG_ORDER):
        return rows.where(F.col("at") > statement.at)
    is_own = (F.col("topic") == statement.topic) & (F.col("partition") == statement.partition)
    is_before = (F.col("at") <= statement.at) | (is_own & (F.col("offset") <= statement.offset))
    last = F.max(F.when(is_before, F.col("offset"))).over(Over.partitionBy("topic", "partition"))
    return rows.withColumn("last", last).where("last IS NULL OR offset > last").drop("last")


def _obstacle(table: ChainTable) -> str | None:
    """Why the changes of a table prove nothing; None if they can."""
    state = table.state
    if state.source_tables is not None:
        return "it is merged with other tables"
    if not table.key:
        return "it has no key"
    if not {column.name for column in table.columns}.issuperset(table.key):
        return "its key has a gap"
    of_rows = (gap for gap in state.gaps if gap.column is None and gap.kind not in _UNKNOWN_START)
    gap = next(of_rows, None)
    return None if gap is None else f"it has a gap: {gap.kind.value}"


def _empties(change: SchemaChange) -> bool:
    """Whether the table has no rows after the change."""
    is_baseline = isinstance(change, CreateTable) and bool(change.baseline)
    return isinstance(change, CreateTable | CreateTableLike | TruncateTable) and not is_baseline


def _gap(chains: Chains) -> Gap:
    where = f" (columns {', '.join(chains.columns)})" if chains.columns else ""
    detail = (
        f"{chains.contradicted} change(s) found another row than they replace{where}, the first at {chains.first}: changes "
        "before them are missing or out of place; compare the table with upstream"
    )
    return Gap(GapKind.CONTRADICTED, detail)


def _rebuilt_between(lake: Lake, first: int, last: int) -> set[TableName | None]:
    """The tables that rebuilds after the cut `first` have replaced; with None all of them."""
    cuts = [cut for cut in rebuilt_cuts(lake) if first < cut["cut_id"] <= last]
    tables = (table for cut in cuts for table in cut["rebuilt_tables"] or ())
    found: set[TableName | None] = {TableName(table["database"], table["table"]) for table in tables}
    return found | {None} if any(cut["rebuilt"] for cut in cuts) else found
