"""Decodes batches of `raw_topic_snapshot` into `change_log`, `ddl_history`, `watermarks` and `dead_letters`.

Each table gets one commit per batch, with the batch's number as its Delta transaction version. The row in `batches` is
written last. An interrupted batch is decoded again, and tables that have its commit are skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from operator import itemgetter
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from cdc_pipeline.contracts.canal_json import READ_BY
from cdc_pipeline.contracts.limits import MAX_CLOCK_SKEW_MS
from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.contents import claims_writer, inspect_values, read_raw_batches, with_contents
from cdc_pipeline.dialects.counts import BatchCounts, ObservedFrame
from cdc_pipeline.dialects.decode import DialectName, decode, decode_with_reasons, has_one_row
from cdc_pipeline.dialects.senders import topics_of_canal, with_senders
from cdc_pipeline.dialects.topic_tables import with_tables
from cdc_pipeline.dialects.traits import BY_NAME, statement_quotings
from cdc_pipeline.lake.control_tables import append_rows, read_rows
from cdc_pipeline.lake.delta import Commit, is_committed
from cdc_pipeline.lake.delta_log import require_intact_logs
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.tables.batches import BATCHES_SCHEMA, last_decoded_batch, recent_dialects, recorded_notes
from cdc_pipeline.lake.tables.ddl_history import with_empty_results
from cdc_pipeline.lake.writes import append_if, append_once
from cdc_pipeline.mysql.ddl.statements import event_changes
from cdc_pipeline.sources.intake import OffsetRange
from cdc_pipeline.sources.raw_batches import batch_note, newest_batch
from cdc_pipeline.spark.small_frames import small_frame, small_query, small_table
from cdc_pipeline.spark.threads import map_in_threads

_REMEMBERED = 20
"""After so many batches without a message of a dialect, decoding no longer expects it."""
_STATISTICS = {"delta.dataSkippingStatsColumns": "batch_id,partition,offset,commit_ts,at,es,ts"}
"""Columns of `change_log` by which readers skip files. A batch has the rows of all tables in one file: names skip none."""
OTHER_TABLES = ("watermarks", "dead_letters", "ddl_history")
"""The decoded tables other than `change_log`."""
KINDS_BY_TABLE = {
    "watermarks": (unified.WATERMARK,),
    "dead_letters": (unified.DEAD,),
    # of XA only a rollback has a row
    "ddl_history": (*unified.DDL_STATEMENTS, unified.STATEMENT, unified.XA),
}
"""Table → the kinds of records that it has rows of."""


@dataclass(frozen=True)
class DecodeSettings:
    """How the records of a pipeline are decoded."""

    dialect: DialectName = "auto"
    claim_store: str | None = None
    """Folder or Hadoop URI of TiCDC's claim-check messages, where those are read that the lake does not keep yet."""
    clock_skew_ms: int = MAX_CLOCK_SKEW_MS
    """How much later than the commit of its batch a watermark or heartbeat may be."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """Topic → `database.table` of the topics of Flink (`dialects.topic_tables`)."""


_DEFAULTS = DecodeSettings()


@dataclass(frozen=True)
class DecodedBatch:
    """A decoded batch: its number, its offsets, and its counts by kind."""

    batch_id: int
    ranges: tuple[OffsetRange, ...]
    counts: BatchCounts


def decode_batches(
    lake: Lake,
    settings: DecodeSettings = _DEFAULTS,
    up_to: int | None = None,
    decoded_before: Lake | None = None,
    notes: Mapping[int, Mapping[str, Any]] | None = None,
    decoded: Callable[[int], None] = lambda batch_id: None,
) -> list[DecodedBatch]:
    """Decodes every batch that is not decoded yet, oldest first.

    `up_to`: the last batch to decode; None for the newest. `decoded_before`: the lake that a rebuild decodes again; its
    table `batches` has what the notes of old batches said. `notes`: batch → fields that its stored note lacks
    (`Intake.notes`). `decoded` receives the number of each batch.
    Raises LakeError if the Delta log of a table of the lake is damaged.
    """
    require_intact_logs(lake.paths.own_tables)
    last = last_decoded_batch(lake)
    newest = newest_batch(lake) if up_to is None else up_to
    recorded = (notes or {}) if decoded_before is None else recorded_notes(decoded_before)
    batches = []
    for batch_id in range(last + 1, newest + 1):
        batches.append(_decode_batch(lake, batch_id, settings, recorded.get(batch_id)))
        decoded(batch_id)
    return batches


def decoded_batches(lake: Lake, first: int, last: int) -> list[DecodedBatch]:
    """The decoded batches with these numbers, oldest first, from the table `batches`."""
    if first > last:
        return []
    columns = ("batch_id", "offsets", "records", "kinds", "row_changes", "exact_ts")
    rows = read_rows(lake, "batches", ("batch_id", ">=", first), ("batch_id", "<=", last), columns=columns)
    return [
        DecodedBatch(
            row["batch_id"],
            tuple(OffsetRange(**span) for span in row["offsets"]),
            BatchCounts(row["records"], dict(row["kinds"]), row["row_changes"], row["exact_ts"]),
        )
        for row in sorted(rows, key=itemgetter("batch_id"))
    ]


def _decode_batch(
    lake: Lake, batch_id: int, settings: DecodeSettings, recorded: Mapping[str, Any] | None
) -> DecodedBatch:
    note, dialect = _raw_note(lake, batch_id, recorded), settings.dialect
    latest_ms = note["committed_ms"] + settings.clock_skew_ms
    raw = read_raw_batches(lake, batch_id, batch_id)
    values = inspect_values(lake, raw, note, settings.claim_store)
    records = sum(span.records for span in values.ranges)
    commit = _commit(lake.paths, "change_log", batch_id, note)
    begun = is_committed(lake.spark, lake.paths.table("change_log"), commit)
    claims_commit = Commit(claims_writer(lake.paths), batch_id, {"batch": batch_id, "run_id": note["run_id"]})
    raw = with_contents(lake, raw, values, claims_commit, settings.claim_store, begun=begun)
    if dialect == "auto" and values.may_have_zero_ids:
        raw = with_senders(raw, topics_of_canal(lake, raw, batch_id, values.ranges))
    raw = with_tables(raw, settings.tables)
    # the rules allow MAX_CLOCK_SKEW_MS after the time at which a record was sent
    raw = raw.withColumn(READ_BY, F.array(F.lit(latest_ms - MAX_CLOCK_SKEW_MS).cast("bigint")))
    with small_query(lake.spark, records):
        observed = _count_changes(raw, dialect) if begun else _write_changes(lake, raw, dialect, commit)
        counts = observed.counts(records, latest_ms)
        wanted = _tables_to_write(lake, counts)
        if "watermarks" in wanted:
            commit = _commit(lake.paths, "watermarks", batch_id, note)
            append_rows(lake, "watermarks", observed.watermarks(batch_id), commit)
        if others := [table for table in wanted if table != "watermarks"]:
            # the few records of other tables are decoded a second time
            frame = decode_with_reasons(observed.other_records(raw), dialect).persist()
            try:
                _write_others(lake, frame, batch_id, note, others)
            finally:
                frame.unpersist()
        _write_batch(lake, batch_id, note, values.ranges, counts)
    return DecodedBatch(batch_id, values.ranges, counts)


def _write_changes(lake: Lake, raw: DataFrame, dialect: DialectName, commit: Commit) -> ObservedFrame:
    """Writes row changes into `change_log` and counts all records, in one pass over the messages.

    With `auto` it first decodes the dialects of recent batches only, and again with all if a message has another one.
    """
    path = lake.paths.table("change_log")
    if dialect == "auto" and (expected := recent_dialects(lake, commit.version - _REMEMBERED)):
        observed = ObservedFrame(decode(raw, dialect, expected))
        changes = unified.row_changes(observed.frame, one_row=has_one_row(dialect, expected))
        if append_if(changes, path, commit, observed.is_complete) and observed.is_complete():
            return observed
    observed = ObservedFrame(decode(raw, dialect))
    append_once(unified.row_changes(observed.frame, one_row=has_one_row(dialect)), path, commit, **_STATISTICS)
    observed.wait()
    return observed


def _count_changes(raw: DataFrame, dialect: DialectName) -> ObservedFrame:
    """`_write_changes` of a batch whose changes an interrupted run has written."""
    observed = ObservedFrame(decode(raw, dialect))
    observed.frame.write.format("noop").mode("overwrite").save()
    return observed


def _tables_to_write(lake: Lake, counts: BatchCounts) -> list[str]:
    """The tables other than `change_log` that the batch has rows for, or that do not exist yet."""
    return [
        table
        for table in OTHER_TABLES
        if any(counts.by_kind[kind] for kind in KINDS_BY_TABLE[table]) or not lake.exists(table)
    ]


def _write_others(lake: Lake, frame: DataFrame, batch_id: int, note: dict[str, Any], wanted: list[str]) -> None:
    """Writes the tables in `wanted`."""
    change_log = lake.read("change_log")
    rows = {
        "dead_letters": lambda: unified.dead_letters(frame),
        "ddl_history": lambda: with_empty_results(ddl_rows(frame, change_log)),
    }

    def write(table: str) -> None:
        append_once(rows[table](), lake.paths.table(table), _commit(lake.paths, table, batch_id, note))

    map_in_threads(lake.spark, write, wanted, threads=2)


def _commit(paths: LakePaths, table: str, batch_id: int, note: dict[str, Any]) -> Commit:
    return Commit(paths.app_id(table), batch_id, {"batch": batch_id, "run_id": note["run_id"]})


def _raw_note(lake: Lake, batch_id: int, recorded: Mapping[str, Any] | None) -> dict[str, Any]:
    """The note of the batch's commit to `raw_topic_snapshot`, with `recorded` or a default for each missing field."""
    empty: dict[str, Any] = {"run_id": None, "files": [], "offsets": [], "ended": [], "lost": []}
    empty["committed_ms"] = time.time_ns() // 1_000_000
    return {**empty, **(recorded or {}), **(batch_note(lake, batch_id) or {})}


def _write_batch(
    lake: Lake, batch_id: int, note: dict[str, Any], ranges: tuple[OffsetRange, ...], counts: BatchCounts
) -> None:
    row = (
        batch_id,
        note["run_id"],
        datetime.now(timezone.utc),
        [tuple(file) for file in note["files"]],
        [(span.topic, span.partition, span.first, span.last, span.records) for span in ranges],
        counts.records,
        counts.by_kind,
        counts.row_changes,
        counts.exact_ts,
        note["ended"],
        [tuple(stretch) for stretch in note["lost"]],
        dict(counts.heartbeats),
        counts.oldest_at,
        counts.newest_at,
        counts.dialects,
        counts.keyless,
    )
    append_rows(lake, "batches", small_table([row], BATCHES_SCHEMA), _commit(lake.paths, "batches", batch_id, note))


_SEARCHED_MS = 60_000
"""Time before an XA ROLLBACK in which the rows of its transaction are searched."""


def ddl_rows(frame: DataFrame, change_log: DataFrame) -> DataFrame:
    """Rows of `ddl_history`: `unified.ddl_events` of a decoded frame, and `changes`, the parsed statement as text.

    The `sql` of a schema file without a statement (TiCDC's storage sink) is the equivalent CREATE TABLE. An XA ROLLBACK
    names no table: it gets one row per table with rows in the minute before it in `change_log`, which must have those of the
    frame.

    Collects the statements to parse them; they are few.
    """
    events = unified.ddl_events(frame)
    names = events.columns
    rows = []
    for row in events.collect():
        tables = [(row["database"], row["table"])]
        if row["kind"] == unified.XA:
            tables = _rolled_back_tables(row, change_log)
        for database, table in tables:
            sql = BY_NAME[row["dialect"]].statement(row)
            values = {**row.asDict(), "database": database, "table": table, "sql": sql}
            changes = event_changes(row["kind"], database or "", table or "", sql or "", statement_quotings(row))
            rows.append((*(values[name] for name in names), [change.description() for change in changes]))
    schema = StructType([*events.schema.fields, StructField("changes", ArrayType(StringType()))])
    return small_frame(frame.sparkSession, rows, schema)


def _rolled_back_tables(event: Row, change_log: DataFrame) -> list[tuple[str, str]]:
    """The tables with rows in the minute before an XA ROLLBACK, which names none (canal-facts 36); an unnamed one if none.

    Those of its transaction are probably among them: nothing in the stream tells its rows from those of others.
    """
    is_own = F.col("partition") == event["partition"]
    before = change_log.where(
        (F.col("topic") == event["topic"])
        & F.col("at").between(event["at"] - (_SEARCHED_MS << unified.TSO_SHIFT), event["at"])
        & (~is_own | (F.col("offset") < event["offset"]))
    )
    tables = before.select("database", "table").distinct().orderBy("database", "table")
    return [(row["database"], row["table"]) for row in tables.collect()] or [("", "")]
