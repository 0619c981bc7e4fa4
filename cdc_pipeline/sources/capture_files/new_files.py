"""Taking new records into `raw_topic_snapshot`: one Delta append per batch, which carries the batch's own progress.

A row is one record, byte for byte (`sources.records`), with the number of the batch that took it in. The commit's
note has the run, the files and the offsets; nothing else says what is in, so that a killed run cannot leave the two
apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from cdc_pipeline.errors import SourceError, TransientError
from cdc_pipeline.lake.delta import Commit, append_once, table_state
from cdc_pipeline.lake.faults import lake_fault
from cdc_pipeline.lake.paths import first_line
from cdc_pipeline.sources.capture_files.reading import (
    MOST_LINE_BYTES,
    FolderListing,
    listed,
    overlong_line,
    records,
    unfinished_gzip,
)
from cdc_pipeline.sources.intake import (
    OffsetRange,
    distinct_records,
    not_yet_in,
    offset_ranges,
    ranges_and_plain,
    require_readable,
)
from cdc_pipeline.sources.raw_batches import newest_batch, raw_app_id
from cdc_pipeline.sources.source import CaptureFile, Intake, digest
from cdc_pipeline.spark.few_rows import for_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.paths import LakePaths

_SHORT_LINE = 200
"""Bytes of a record's line that few are shorter than."""
_GZIP_RATIO = 20


def take_in_new_files(spark: SparkSession, paths: LakePaths, folder: str, run_id: str) -> Intake:
    """Takes in the records of `folder` that the lake does not have, as one batch.

    Raises SourceError where the folder or a file is not what it is declared to be, LakeError where the lake cannot be
    written; in both cases the lake is as it was.
    """
    paths.require_writable(spark)
    listing = listed(folder)
    before = newest_batch(spark, paths)
    new = _new_files(spark, paths, listing)
    if not new:
        if before == 0:
            raise SourceError(
                f"the capture folder {folder!r} has no records: files named *.jsonl or *.jsonl.gz, each line one "
                f"record as kcat -C -J prints it, are expected{_beside(listing)}"
            )
        return Intake((), (), (), listing.passed_over)
    if (found := overlong_line(new)) is not None:
        raise SourceError(
            f"line {found[1]} of {found[0]} in {folder!r} is longer than {MOST_LINE_BYTES} bytes; a line is one record as "
            "kcat -C -J prints it. Nothing was taken in"
        )
    frame = records(spark, new).persist()
    try:
        with for_rows(spark, _most_records(new)):
            fresh, ranges, plain = _read(spark, paths, frame, folder, new, exists=before > 0)
            note = {
                "batch": before + 1,
                "run_id": run_id,
                "files": [[file.path, file.size, file.modified_ms] for file in new],
                "listing": listing_digest(listing),
                "plain": plain,
                "offsets": [[span.topic, span.partition, span.first, span.last, span.records] for span in ranges],
            }
            batch = fresh.select(F.lit(before + 1).cast("bigint").alias("batch_id"), "*")
            append_once(batch, paths.table("raw_topic_snapshot"), Commit(raw_app_id(paths), before + 1, note))
    finally:
        frame.unpersist()
    return Intake((before + 1,), new, ranges, listing.passed_over)


def _most_records(files: tuple[CaptureFile, ...]) -> int:
    """More than these files are likely to have."""
    return sum(file.size * (_GZIP_RATIO if file.path.endswith(".gz") else 1) for file in files) // _SHORT_LINE


def listing_digest(listing: FolderListing) -> str:
    """Equal for a folder whose files are as they were."""
    return digest(*(f"{file.path} {file.size} {file.modified_ms}" for file in listing.files))


def _new_files(spark: SparkSession, paths: LakePaths, listing: FolderListing) -> tuple[CaptureFile, ...]:
    """The files that no batch has read as they are now. A file that grew is read again; its old records are known."""
    if table_state(spark, paths.table("batches")) is None:
        return listing.files
    read = spark.read.format("delta").load(paths.table("batches")).select(F.explode("files").alias("file"))
    known = {CaptureFile(row["path"], row["size"], row["modified_ms"]) for row in read.select("file.*").collect()}
    return tuple(file for file in listing.files if file not in known)


def _read(
    spark: SparkSession,
    paths: LakePaths,
    frame: DataFrame,
    folder: str,
    files: tuple[CaptureFile, ...],
    *,
    exists: bool,
) -> tuple[DataFrame, tuple[OffsetRange, ...], bool]:
    """`_fresh`, with Spark's errors as what they say of the source. It reads every file to its end, into the cache."""
    try:
        return _fresh(spark, paths, frame, folder, exists=exists)
    except (PySparkException, Py4JJavaError) as error:
        if isinstance(fault := lake_fault(error), TransientError):
            raise fault from error
        if torn := unfinished_gzip(files):
            raise SourceError(
                f"{torn} in {folder!r} is cut short or damaged: its gzip data ends early. Nothing was taken in"
            ) from error
        raise SourceError(f"the files of {folder!r} cannot be read: {first_line(error)}") from error


def _fresh(
    spark: SparkSession, paths: LakePaths, frame: DataFrame, folder: str, *, exists: bool
) -> tuple[DataFrame, tuple[OffsetRange, ...], bool]:
    """The records that the lake does not have, their ranges, and whether all values are plain (`ranges_and_plain`)."""
    require_readable(frame, f"the capture folder {folder!r}")
    ranges, plain = ranges_and_plain(frame)
    fresh = distinct_records(frame)
    if not exists or not ranges:
        return fresh, ranges, plain
    raw = spark.read.format("delta").load(paths.table("raw_topic_snapshot"))
    fresh = not_yet_in(fresh, raw, ranges)
    return fresh, offset_ranges(fresh), plain


def _beside(listing: FolderListing) -> str:
    if not listing.passed_over:
        return ""
    return f" (passed over, since their lines are no records: {', '.join(listing.passed_over)})"
