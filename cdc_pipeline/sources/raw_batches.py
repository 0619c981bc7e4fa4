"""Reads the notes of `raw_topic_snapshot`: the `userMetadata` of its commits, with batch id, run id and offsets, and the
time of the commit (`committed_ms`).

A note is committed together with its records, so it is the only place that stores a source's progress.
`newest_note` reads Delta's log files without Spark: it takes milliseconds and suits a sensor.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.errors import SourceError, TransientError
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.delta import Commit, committed_version, table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.log_files import commits_newest_first
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.restored_tables import RestoredTableError
from cdc_pipeline.lake.tables.batches import last_decoded_batch
from cdc_pipeline.lake.tables.kept_cuts import removed_batches
from cdc_pipeline.lake.writes import append_once
from cdc_pipeline.sources.intake import OffsetSpan
from cdc_pipeline.sources.records import NEW_COLUMNS, RECORD
from cdc_pipeline.sources.source import NoNewRecords, Source

SETTLED_AFTER = 1.0
"""Seconds within which the records of one moment arrive in all partitions of a topic."""


def newest_note(paths: LakePaths) -> dict[str, Any] | None:
    """The newest note of `raw_topic_snapshot`; None if no commit has one or the lake is without `has_files`.

    Skips commits without a note, for example of OPTIMIZE. Delta removes commits after 30 days, so a table without newer
    records may have no note.
    """
    return next(_notes_in_files(paths), None)


def notes_newest_first(lake: Lake) -> Iterator[dict[str, Any]]:
    """The notes of `raw_topic_snapshot`, as far as its log has them: from the log files, or by Spark without `has_files`."""
    if lake.paths.has_files:
        return _notes_in_files(lake.paths)
    path = lake.paths.table("raw_topic_snapshot")
    if table_state(lake.spark, path) is None:
        return iter(())
    commits = DeltaTable.forPath(lake.spark, path).history().selectExpr("userMetadata", "unix_millis(timestamp)")
    return (note for row in commits.toLocalIterator() if (note := _parse(*row)) is not None)


def batch_note(lake: Lake, batch_id: int) -> dict[str, Any] | None:
    """The note of the batch; None if its commit is no longer in the log."""
    return next((note for note in notes_newest_first(lake) if note.get("batch") == batch_id), None)


def _notes_in_files(paths: LakePaths) -> Iterator[dict[str, Any]]:
    """The notes in the log files, newest first; none for a lake without `has_files`. Skips files that cannot be read."""
    for commit in commits_newest_first(paths.table("raw_topic_snapshot")) if paths.has_files else ():
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            # `commitInfo` is among the first lines
            infos = (action["commitInfo"] for action in commit.actions() if "commitInfo" in action)
            info: dict[str, Any] = next(infos, {})
            if (note := _parse(info.get("userMetadata"), info.get("timestamp"))) is not None:
                yield note


def _parse(text: str | None, committed_ms: int | None) -> dict[str, Any] | None:
    """The note in a commit's `userMetadata`; None if another writer wrote it."""
    try:
        note = json.loads(text or "null")
    except ValueError:
        return None
    if not isinstance(note, dict) or "run_id" not in note:
        return None
    return note if committed_ms is None else {**note, "committed_ms": committed_ms}


def raw_app_id(paths: LakePaths) -> str:
    """Delta's `txnAppId` of the writer of batches; its `txnVersion` is the newest batch id."""
    return f"cdc:{paths.pipeline}:raw"


def append_batch(lake: Lake, records: DataFrame, batch_id: int, note: Mapping[str, Any]) -> Commit:
    """Appends the records of a batch, and its note in the same commit. A batch that the lake has is not written again."""
    commit = Commit(raw_app_id(lake.paths), batch_id, {"batch": batch_id, **note})
    batch = records.select(F.lit(batch_id).cast("bigint").alias("batch_id"), *RECORD.names)
    append_once(batch, lake.paths.table("raw_topic_snapshot"), commit, **NEW_COLUMNS)
    return commit


def newest_batch(lake: Lake) -> int:
    """Id of the newest batch in `raw_topic_snapshot`; 0 before the first."""
    return committed_version(lake.spark, lake.paths.table("raw_topic_snapshot"), raw_app_id(lake.paths)) or 0


def require_decoded_batches(lake: Lake) -> None:
    """Raises RestoredTableError if `raw_topic_snapshot` lacks a decoded batch: new records would get its number, and would
    never be decoded."""
    paths = lake.paths
    in_log = committed_version(lake.spark, paths.table("change_log"), paths.app_id("change_log")) or 0
    if (decoded := max(last_decoded_batch(lake), in_log)) > newest_batch(lake):
        raise RestoredTableError(
            f"raw_topic_snapshot lacks batch {decoded}, which is decoded: it was removed, or replaced by "
            "an older copy. Nothing was changed. Put the complete folder back. Without a copy, move all folders but "
            f"raw_topic_snapshot out of {paths.home} and start a run: it reads what the source still has, and builds all "
            "tables from the raw records (`cdc-pipeline docs operations removed`)",
            pipeline=paths.pipeline,
        )


def removed_ranges(lake: Lake) -> list[OffsetSpan]:
    """The offsets of records that were removed (`lake.tables.kept_cuts`): a file that is read again may have them."""
    last, _ = removed_batches(lake, "raw_topic_snapshot")
    if not last:
        return []
    batches = read_rows(lake, "batches", ("batch_id", "<=", last), columns=["offsets"])
    spans = sorted(
        (span["topic"], span["partition"], span["first"], span["last"]) for row in batches for span in row["offsets"]
    )
    found: list[OffsetSpan] = []
    for topic, partition, first, end in spans:
        before = found[-1] if found else None
        if before is not None and (before.topic, before.partition) == (topic, partition) and first <= before.last + 1:
            found[-1] = OffsetSpan(topic, partition, before.first, max(end, before.last))
        else:
            found.append(OffsetSpan(topic, partition, first, end))
    return found


def unread_topics(source: Source, lake: Lake) -> Collection[str] | None:
    """The topics of a source with records that the lake lacks, a second after its newest batch; None if that is unknown."""
    note = next(notes_newest_first(lake), None)
    if note is None:
        return None
    time.sleep(min(max(note["committed_ms"] / 1000 + SETTLED_AFTER - time.time(), 0), SETTLED_AFTER))
    try:
        found = source.find_new_records(note)
    except (SourceError, TransientError):
        return None  # the run that reads them reports it
    return () if isinstance(found, NoNewRecords) else found.topics
