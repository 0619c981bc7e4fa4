"""The source `capture_files`: a folder of files with one record per line. A run ingests the new ones as one batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from cdc_pipeline.errors import LakeError, SourceError, StoreRefusesError
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.faults import to_lake_error
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import first_line
from cdc_pipeline.sources import intake
from cdc_pipeline.sources.capture_files import reading
from cdc_pipeline.sources.raw_batches import append_batch, newest_batch, removed_ranges
from cdc_pipeline.sources.source import (
    Intake,
    NewRecords,
    NoNewRecords,
    RunContext,
    Source,
    SourceFile,
    compare_listings,
)
from cdc_pipeline.spark.small_frames import small_query

_SHORT_LINE = 350
"""Bytes per line that nearly all records exceed; gives an upper estimate of a file's records."""


def ingest_new_files(lake: Lake, folder: str, run_id: str) -> Intake:
    """Appends the records of `folder` that the lake does not have, as one batch.

    The commit's note lists run, files and offsets, so a killed run cannot split records and progress. Raises SourceError if
    the folder or a file is invalid, LakeError if the lake cannot be written. The lake is then unchanged.
    """
    lake.paths.require_writable(lake.spark)
    listing = reading.list_folder(folder)
    before = newest_batch(lake)
    new = _new_files(lake, listing)
    if not new:
        if before == 0:
            raise SourceError(
                f"the capture folder {folder!r} has no records. Expected are files *.jsonl or *.jsonl.gz, in which each "
                f"line is one record as kcat -C -J prints it{_skipped(listing)}"
            )
        return Intake((), (), (), 0, listing.skipped)
    if (found := reading.overlong_line(new)) is not None:
        name, number = found
        raise SourceError(
            f"line {number} of {name} in {folder!r} is longer than {reading.MAX_LINE_BYTES} bytes. Each line must be one "
            "record as kcat -C -J prints it. Nothing was ingested"
        )
    lake.start_session()
    with small_query(lake.spark, sum(map(reading.text_bytes, new)) // _SHORT_LINE):
        frame = reading.records(lake.spark, new).persist()  # plans the query
        try:
            with _named_errors(folder, new):
                records_to_append, ranges, values = _new_records(lake, frame, folder, exists=before > 0)
            note = {
                "run_id": run_id,
                "files": [[file.path, file.size, file.modified_ms] for file in new],
                "listing": listing.digest,
                **values,
                "offsets": [[span.topic, span.partition, span.first, span.last, span.records] for span in ranges],
            }
            append_batch(lake, records_to_append, before + 1, note)
        finally:
            frame.unpersist()
    return Intake((before + 1,), new, ranges, sum(span.records for span in ranges), listing.skipped)


def _new_files(lake: Lake, listing: reading.FolderListing) -> tuple[SourceFile, ...]:
    """Files that no decoded batch has read with this size and time. A file that has grown is read again as a whole."""
    batches = read_rows(lake, "batches", columns=["files"])
    known = {SourceFile(**file) for batch in batches for file in batch["files"]}
    return tuple(file for file in listing.files if file not in known)


@contextlib.contextmanager
def _named_errors(folder: str, files: tuple[SourceFile, ...]) -> Iterator[None]:
    """Converts Spark's errors to SourceError or TransientError."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        # a damaged table would be a file of the folder
        fault = to_lake_error(error)
        if fault is not None and (not isinstance(fault, LakeError) or isinstance(fault, StoreRefusesError)):
            raise fault from error
        if name := reading.damaged_gzip(files):
            raise SourceError(
                f"{name} in {folder!r} is truncated or damaged: it is not complete gzip data. Nothing was ingested"
            ) from error
        raise SourceError(f"the files of {folder!r} cannot be read: {first_line(error)}") from error


def _new_records(
    lake: Lake, frame: DataFrame, folder: str, *, exists: bool
) -> tuple[DataFrame, tuple[intake.OffsetRange, ...], dict[str, bool]]:
    """The records that the lake does not have, their ranges, and the fields of the note (`intake.ranges_and_note`). Reads
    all files into the cache.

    `exists`: whether `raw_topic_snapshot` exists.
    """
    ranges, values = intake.ranges_and_note(frame, f"the capture folder {folder!r}")
    distinct = intake.distinct_records(frame)
    if not exists or not ranges:
        return distinct, ranges, values
    if removed := removed_ranges(lake):
        distinct = intake.records_outside(distinct, removed)
        ranges = intake.offset_ranges(distinct)
    raw = lake.read("raw_topic_snapshot")
    if not intake.has_records_in(raw, ranges):
        return distinct, ranges, values
    new = intake.new_records(distinct, raw, ranges)
    return new, intake.offset_ranges(new), values


def _skipped(listing: reading.FolderListing) -> str:
    if not listing.skipped:
        return ""
    return f". Skipped files, whose first line is not a record: {', '.join(listing.skipped)}"


@dataclass(frozen=True)
class CaptureFiles(Source):
    """The folder `path` of capture files; the format is described in `sources.capture_files.reading`."""

    path: str

    @property
    def location(self) -> str:
        return f"the capture folder {self.path!r}"

    def ingest(self, lake: Lake, run: RunContext, until: Mapping[str, Mapping[str, int]] | None = None) -> Intake:
        """Ingests all new files as one batch. Ignores `until`: the run uses the current listing, not the sensor's."""
        return ingest_new_files(lake, self.path, run.run_id)

    def find_new_records(self, note: Mapping[str, Any] | None) -> NewRecords | NoNewRecords:
        listing = reading.list_folder(self.path)
        if not listing.files:
            return NoNewRecords(f"there are no capture files in {self.path!r} yet")
        return compare_listings(note, listing.digest, len(listing.files), self.path)
