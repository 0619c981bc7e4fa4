"""Makes the loaded tables of an export the beginning of their mirrors.

Each table becomes an event of `ddl_history` at the moment of the export: it replaces what the stream has sent before, and
the changes after it follow. If the newest cut has passed the moment, the tables are rebuilt; else the cut that passes it
applies the events, in their order among the statements.

An export without a TSO is of an unknown moment while it ran. The changes from its start on are applied again, by key: the
last one of a row counts. Tables without a key, and statements, get a gap if they lie in that time.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from pyspark.sql import functions as F

from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.lake.control_tables import read_maxima, read_rows
from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.baselines import BaselineTable, baseline_tables
from cdc_pipeline.lake.tables.batches import last_decoded_batch
from cdc_pipeline.lake.tables.ddl_history import NOT_APPLIED
from cdc_pipeline.lake.writes import append_once
from cdc_pipeline.mirrors.changes.late_starts import oldest_records, partitions_without_start
from cdc_pipeline.mirrors.changes.progress import PublishedCut, StreamProgress, published_cut, read_progress
from cdc_pipeline.mirrors.changes.window import is_of_baseline
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.model.ddl_events import BASELINE_TOPIC, DEFINITION, WITH_GAP, WITHOUT_GAP, ddl_event
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder, RebuildReport
from cdc_pipeline.mirrors.operations.retention import rebuild_start
from cdc_pipeline.mysql.ddl.statements import BASELINE_EVENT
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.small_frames import small_frame

CLOCKS_MS = 60_000
"""How far the clocks of upstream, of a program that exports and of a sender may be apart."""
_SECOND = 1000
_ROOM = 1000
"""Places for as many exports of one moment, whose order is that of their adoption."""
_NO_STREAM = ("the stream",)
_SHOWN = 5


@dataclass(frozen=True)
class Adoption:
    tables: tuple[BaselineTable, ...]
    rebuilt: RebuildReport | None
    """None: the cut that passes the moment of the export begins with the tables."""


def adopt(
    rebuilder: Rebuilder,
    baseline: str,
    *,
    changefeed_start: int | None = None,
    accept_gap: bool = False,
    definitions_only: bool = False,
) -> Adoption:
    """Adopts the included tables of a loaded baseline. A second time changes nothing. Call it as the only writer.

    `changefeed_start`: the TSO from which the changefeed has sent everything. Raises LakeError if the stream may lack
    changes after the export, unless `accept_gap`: then the tables have a gap.
    """
    rebuilder.finish_begun_cut(abandon=False)  # its plan lacks the tables
    maker = rebuilder.maker
    lake, selection = maker.lake, maker.selection
    tables = _included_tables(maker, baseline)
    published = published_cut(lake)
    if definitions_only:
        places, kind = {table.name: _FIRST for table in tables}, DEFINITION
        _require_no_statements(lake, [table.name for table in tables])
    else:
        has_tsos = read_progress(lake, published).has_tsos
        places = {table.name: _place(table, has_tsos=has_tsos) for table in tables}
        first = min(place.at for place in places.values())
        kind = require_earlier_stream(lake, first, changefeed_start=changefeed_start, accept_gap=accept_gap)
    places = _behind_others(lake, baseline, places)
    _require_kept_changes(lake, places)
    passed = [table for table in tables if _has_passed(published, places[table.name])]
    # without the number of a cut, the next one looks for statements to decide
    batches: dict[TableName, tuple[int, int | None]]
    batches = dict.fromkeys((table.name for table in tables), (last_decoded_batch(lake), None))
    batches |= {table.name: (published.last_batch, published.cut_id) for table in passed}
    _append_events(lake, tables, places, batches, maker.run_id, kind)
    if not passed:
        return Adoption(tables, None)
    names = [glob.escape(str(selection.mirror_name(table.name))) for table in passed]
    return Adoption(tables, rebuilder.rebuild(names))


def require_earlier_stream(
    lake: Lake, at: int, *, changefeed_start: int | None = None, accept_gap: bool = False
) -> str:
    """Raises LakeError if the stream may have begun after `at`, unless `accept_gap`. Returns the `type` of the events."""
    if not lake.exists("ddl_history"):
        raise lake.error("no batch is decoded yet: run the ingest first")
    if changefeed_start is not None and changefeed_start <= at:
        return WITHOUT_GAP
    streams = read_progress(lake, published_cut(lake))
    holes = _later_streams(lake, at, streams)
    if holes and not accept_gap:
        raise lake.error(
            f"the stream may lack changes after {_moment(at)}, from which the export needs them: "
            f"{', '.join(holes[:_SHOWN])} has no {'watermark' if streams.has_tsos else 'change'} at or before it. Set "
            "changefeed_start to the TSO from which the changefeed sends (its start-ts; ms since 1970 << 18 for other "
            "senders), or repeat the export now, or set accept_gap: true"
        )
    return WITH_GAP if holes else WITHOUT_GAP


def _included_tables(maker: CutMaker, baseline: str) -> tuple[BaselineTable, ...]:
    """The tables of the baseline that the pipeline includes. Raises LakeError if they cannot be adopted."""
    lake, selection = maker.lake, maker.selection
    tables = tuple(table for table in baseline_tables(lake, baseline) if selection.includes(table.name))
    if not tables:
        raise lake.error(f"the baseline {baseline} has no table that is included")
    if merged := [str(table.name) for table in tables if selection.merges(table.name)]:
        raise lake.error(
            f"{', '.join(merged[:_SHOWN])}: a table that a route merges with others cannot begin with an export: leave it "
            "out of snapshot.tables"
        )
    names = {selection.key(table.name): table.name for table in tables}
    if same := [
        f"{table.name} and {other}" for table in tables if (other := names[selection.key(table.name)]) != table.name
    ]:
        raise lake.error(
            f"{', '.join(same[:_SHOWN])} differ in case only and would be one mirror: set case_sensitive: true, or leave "
            "one out of snapshot.tables"
        )
    return tables


def _behind_others(lake: Lake, baseline: str, places: Mapping[TableName, _Place]) -> dict[TableName, _Place]:
    """The places, each behind those of other baselines of the table at about the same one: the last adopted one counts.

    Raises LakeError for two exports of one TSO.
    """
    columns = ["topic", "database", "table", "at"]
    events = read_rows(lake, "ddl_history", ("kind", "=", BASELINE_EVENT), columns=columns)
    taken = {
        (TableName(event["database"], event["table"]), event["at"])
        for event in events
        if event["topic"] != f"{BASELINE_TOPIC}{baseline}"
    }
    found = {}
    for name, place in places.items():
        while (name, place.at) in taken:
            if place.is_exact:
                raise lake.error(
                    f"{name}: another export of the same TSO was adopted, and one of them may be incomplete. Repeat the "
                    "export, or leave the table out of snapshot.tables"
                )
            place = replace(place, at=place.at + 1)
        found[name] = place
    return found


@dataclass(frozen=True)
class _Place:
    """Where a baseline lies in the stream: its rows come after all changes up to `at`."""

    at: int
    """On the clock of the streams (`dialects.unified`)."""
    is_exact: bool
    """Whether it has no change after `at`. Else the stream brings those again that it has, which changes nothing in a table
    with a key."""
    until: int | None = None
    """If it is not exact: the `es` (ms) up to which it may have changes."""


def _place(table: BaselineTable, *, has_tsos: bool) -> _Place:
    if table.tso is not None and has_tsos:
        return _Place(table.tso, is_exact=True)
    if table.tso is not None:  # the changefeed has TiDB's milliseconds only
        ms = table.tso >> TSO_SHIFT
        return _Place((ms << TSO_SHIFT) - _ROOM, is_exact=False, until=ms)
    started, finished = table.started or 0, table.finished or 0  # both are known without a TSO
    return _Place(place_of_start(started), is_exact=False, until=finished + CLOCKS_MS)


def place_of_start(started_ms: int) -> int:
    """From where on the clock of the streams an export that began at this time needs all changes."""
    first = (started_ms - CLOCKS_MS) // _SECOND * _SECOND
    return (first << TSO_SHIFT) - _ROOM


_FIRST = _Place(1, is_exact=False)
"""Before all changes."""


def _has_passed(published: PublishedCut, place: _Place) -> bool:
    """Whether the cuts have changes after the baseline."""
    return bool(published.ends) or (published.resolved_tso is not None and place.at < published.resolved_tso)


def _require_kept_changes(lake: Lake, places: Mapping[TableName, _Place]) -> None:
    """Raises LakeError if rebuilds begin after one of the places."""
    start = rebuild_start(lake)
    late = [] if start is None else sorted(name for name, place in places.items() if _has_passed(start.cut, place))
    if late:
        raise lake.error(
            f"{', '.join(map(str, late[:_SHOWN]))}: changes after the export have left the lake (keep_raw_days, "
            "keep_change_log_days). Export the tables again"
        )


def _require_no_statements(lake: Lake, names: Sequence[TableName]) -> None:
    """Raises LakeError if the stream has statements about one of the tables: the definition may be newer than them."""
    events = map(ddl_event, lake.read("ddl_history").where(~is_of_baseline()).collect())
    changed = {name for event in events for name in event.names()}.intersection(names)
    if changed:
        raise lake.error(
            f"{', '.join(map(str, sorted(changed)[:_SHOWN]))}: the stream has statements about them, which the export may "
            "have already. With definitions_only leave them out of snapshot.tables"
        )


def _moment(at: int) -> str:
    """A place on the clock of the streams as text."""
    moment = datetime.fromtimestamp((at >> TSO_SHIFT) / 1000, timezone.utc)
    return f"{moment.isoformat(timespec='milliseconds')} ({at})"


def is_adopted(lake: Lake, baseline: str) -> bool:
    """Whether a table of the baseline has its event."""
    return bool(read_rows(lake, "ddl_history", ("topic", "=", f"{BASELINE_TOPIC}{baseline}"), columns=["topic"]))


def _later_streams(lake: Lake, at: int, streams: StreamProgress) -> tuple[str, ...]:
    """The streams that may have begun after `at`: partitions without a watermark at or before it, or, without watermarks,
    topics without a change at or before it, and partitions whose older records have expired. Without any: the stream."""
    if not streams.has_tsos:
        records = oldest_records(lake)
        begun = {topic for (topic, _), first in records.items() if first <= at}
        holes = {topic for topic, _ in records} - begun
        expired = {place for place in partitions_without_start(lake) if records.get(place, 0) > at}
        holes |= {f"{topic}/{number}" for topic, number in expired if topic in begun}
        return tuple(sorted(holes)) if records else _NO_STREAM
    by = ("topic", "partition")
    known, early = (
        read_maxima(lake, "watermarks", by, "watermark_ts", *where) for where in ((), [("watermark_ts", "<=", at)])
    )
    later = {f"{topic}/{number}" for topic, number in known.keys() - early.keys()}
    return tuple(sorted(later.union(streams.without_watermark))) if known else _NO_STREAM


def _append_events(
    lake: Lake,
    tables: Sequence[BaselineTable],
    places: Mapping[TableName, _Place],
    batches: Mapping[TableName, tuple[int, int | None]],
    run_id: str,
    kind: str,
) -> None:
    """Appends an event per table, unless the table has it already. `batches`: the `batch_id` and `cut_id` of each; `kind`:
    the `type` of all."""
    history = lake.read("ddl_history")
    topic = f"{BASELINE_TOPIC}{tables[0].baseline}"
    known = {row["partition"] for row in history.where(F.col("topic") == topic).select("partition").collect()}
    rows = []
    for table in tables:
        if table.number not in known:
            place, (batch_id, cut_id) = places[table.name], batches[table.name]
            values = {
                "batch_id": batch_id,
                "cut_id": cut_id,
                "topic": topic,
                "partition": table.number,
                "offset": 0,
                "kind": BASELINE_EVENT,
                "database": table.name.database,
                "table": table.name.table,
                "sql": table.create,
                "type": kind,
                "dialect": "",
                "commit_ts": place.at,
                "at": place.at,
                "exact_ts": place.is_exact,
                "es": place.at >> TSO_SHIFT,
                "ts": place.until,
                "status": NOT_APPLIED,
                "changes": [f"load {table.name}"],
            }
            rows.append(tuple(values.get(name) for name in history.columns))
    if rows:
        note = {"run_id": run_id, "baseline": tables[0].baseline}
        commit = Commit(f"{lake.paths.app_id('ddl_history')}:{topic}", len(known) + 1, note)
        append_once(small_frame(lake.spark, rows, history.schema), lake.paths.table("ddl_history"), commit)
