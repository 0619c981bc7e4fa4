"""Decoding batches of the raw snapshot into `change_log`, `ddl_history`, `watermarks` and `dead_letters`.

Each table takes a batch in one commit that carries the batch's number; the row in `batches` comes last. A batch that
was cut short is decoded again, and the commits that are in are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.contents import claims_writer, looked_at, with_contents
from cdc_pipeline.dialects.counts import BatchCounts, Observed
from cdc_pipeline.dialects.ddl_rows import ddl_rows
from cdc_pipeline.dialects.decode import DialectName, decoded, explained
from cdc_pipeline.dialects.releases import with_replacements
from cdc_pipeline.lake.delta import Commit, append_once, is_in, table_state
from cdc_pipeline.lake.delta_log import require_whole_logs
from cdc_pipeline.lake.tables.batches import BATCHES_SCHEMA, last_decoded
from cdc_pipeline.lake.tables.ddl_history import undecided
from cdc_pipeline.sources.raw_batches import batch_note, newest_batch
from cdc_pipeline.spark.few_rows import for_rows
from cdc_pipeline.spark.small_frames import small_frame
from cdc_pipeline.spark.threads import side_by_side

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.sources.intake import OffsetRange

SMALL_BATCH = 20_000
"""Records up to which a decoded batch is kept in memory while its tables are written."""
OTHERS = ("watermarks", "dead_letters", "ddl_history")
"""The tables that a batch goes into beside the change log."""
KINDS_OF = {
    "watermarks": (unified.WATERMARK,),
    "dead_letters": (unified.DEAD,),
    # an XA that is not rolled back gives no row
    "ddl_history": (*unified.DDL_STATEMENTS, unified.STATEMENT, unified.XA),
}
"""The kinds of records that give rows of these tables."""


@dataclass(frozen=True)
class DecodedBatch:
    """One batch: its number, the offsets it has, and what its records became."""

    batch_id: int
    ranges: tuple[OffsetRange, ...]
    counts: BatchCounts


def decode_batches(
    spark: SparkSession,
    paths: LakePaths,
    dialect: DialectName = "auto",
    up_to: int | None = None,
    claim_store: str | None = None,
) -> list[DecodedBatch]:
    """Decodes every batch of the raw snapshot that is not decoded yet, oldest first; `up_to` names the last one.

    `claim_store` is the folder or URI where TiCDC puts messages that are too large for the topic. Raises LakeError where
    the log of a table of the lake is damaged.
    """
    require_whole_logs(paths.own_tables)
    last = last_decoded(spark, paths)
    newest = newest_batch(spark, paths) if up_to is None else up_to
    return [_decoded_batch(spark, paths, batch_id, dialect, claim_store) for batch_id in range(last + 1, newest + 1)]


def _decoded_batch(
    spark: SparkSession, paths: LakePaths, batch_id: int, dialect: DialectName, claim_store: str | None
) -> DecodedBatch:
    raw = spark.read.format("delta").load(paths.table("raw_topic_snapshot")).where(F.col("batch_id") == batch_id)
    raw = with_replacements(spark, paths, raw)
    note = _raw_note(spark, paths, batch_id)
    look = looked_at(spark, paths, raw, note, claim_store)
    records = sum(span.records for span in look.ranges)
    begun = is_in(spark, paths.table("change_log"), _commit(paths, "change_log", batch_id, note))
    files = Commit(claims_writer(paths), batch_id, {"batch": batch_id, "run_id": note["run_id"]})
    raw = with_contents(spark, paths, raw, look, files, claim_store, begun=begun)
    # A large batch is decoded in one pass without a cache, and its few other records once more; a small one is kept,
    # because planning a second query costs more than decoding it does.
    small = records <= SMALL_BATCH
    with for_rows(spark, records):
        frame = explained(raw, dialect).persist() if small else decoded(raw, dialect)
        others = frame
        try:
            observed = Observed(frame)
            _write_changes(spark, paths, observed, batch_id, note)
            counts = observed.counts(records)
            wanted = _tables_with_rows(spark, paths, counts)
            if not small and any(table != "watermarks" for table in wanted):
                others = explained(observed.other_records(raw), dialect).persist()
            _write_others(spark, paths, others, observed, batch_id, note, wanted)
        finally:
            others.unpersist()
        _write_batch(spark, paths, batch_id, note, look.ranges, counts)
    return DecodedBatch(batch_id, look.ranges, counts)


def _write_changes(
    spark: SparkSession, paths: LakePaths, observed: Observed, batch_id: int, note: dict[str, Any]
) -> None:
    """The one pass over all messages: row changes into the change log, counts of all that there is."""
    path, commit = paths.table("change_log"), _commit(paths, "change_log", batch_id, note)
    if is_in(spark, path, commit):
        observed.frame.write.format("noop").mode("overwrite").save()  # written before a run was stopped: count only
    else:
        append_once(unified.row_changes(observed.frame), path, commit)
    observed.settle()


def _tables_with_rows(spark: SparkSession, paths: LakePaths, counts: BatchCounts) -> list[str]:
    """The tables beside the change log that the batch has rows for, or that are not there yet. A table that is there takes
    no commit for nothing."""
    return [
        table
        for table in OTHERS
        if any(counts.by_kind[kind] for kind in KINDS_OF[table]) or table_state(spark, paths.table(table)) is None
    ]


def _write_others(
    spark: SparkSession,
    paths: LakePaths,
    frame: DataFrame,
    observed: Observed,
    batch_id: int,
    note: dict[str, Any],
    wanted: list[str],
) -> None:
    """What is left, each kind into its table."""
    if not wanted:
        return
    change_log = spark.read.format("delta").load(paths.table("change_log"))
    rows_of = {
        "watermarks": lambda: observed.watermarks(spark, batch_id),
        "dead_letters": lambda: unified.dead_letters(frame),
        "ddl_history": lambda: undecided(ddl_rows(frame, change_log)),
    }

    def write(table: str) -> None:
        append_once(rows_of[table](), paths.table(table), _commit(paths, table, batch_id, note))

    side_by_side(spark, write, wanted, threads=2)


def _commit(paths: LakePaths, table: str, batch_id: int, note: dict[str, Any]) -> Commit:
    return Commit(paths.writer(table), batch_id, {"batch": batch_id, "run_id": note["run_id"]})


def _raw_note(spark: SparkSession, paths: LakePaths, batch_id: int) -> dict[str, Any]:
    """The note of the commit that took the batch in."""
    empty: dict[str, Any] = {"run_id": None, "files": [], "offsets": [], "ended": [], "lost": []}
    return {**empty, **(batch_note(spark, paths, batch_id) or {})}


def _write_batch(
    spark: SparkSession,
    paths: LakePaths,
    batch_id: int,
    note: dict[str, Any],
    ranges: tuple[OffsetRange, ...],
    counts: BatchCounts,
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
    )
    frame = small_frame(spark, [row], BATCHES_SCHEMA)
    append_once(frame, paths.table("batches"), _commit(paths, "batches", batch_id, note))
