"""How far a storage folder was read, from the lake alone: the notes of `raw_topic_snapshot`, and `batches` for those that
are decoded.

A batch's note is committed with its records, and decoding copies its files into `batches`. The two together are therefore
all files that are in, whatever was killed when.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.tables.batches import last_decoded
from cdc_pipeline.sources.raw_batches import newest_batch
from cdc_pipeline.sources.storage.layout import FILE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import Row, SparkSession

    from cdc_pipeline.lake.paths import LakePaths

_FEW_COMMITS = 100
_UNKNOWN = -1


@dataclass(frozen=True)
class KnownFile:
    """A file as it was when it was last read, and the batch that has its newest records. `size` is -1 where it is not
    known any more."""

    size: int
    modified_ms: int
    batch_id: int


@dataclass(frozen=True)
class ReadSoFar:
    """What a lake has of a folder. `without_tso`: rows have come that say only the ms of their commit."""

    batch_id: int
    next_offset: int
    checkpoint: int | None
    without_tso: bool
    files: Mapping[str, KnownFile]


def read_so_far(spark: SparkSession, paths: LakePaths, topic: str) -> ReadSoFar:
    """Costs one look into the newest commits of the raw snapshot and one at `batches`, whose rows are the batches."""
    newest = newest_batch(spark, paths)
    if newest == 0:
        return ReadSoFar(0, 0, None, False, {})
    decoded = last_decoded(spark, paths)
    notes = _notes(spark, paths, min(decoded, newest - 1))
    files, last = _of_batches(spark, paths, topic) if decoded else ({}, _UNKNOWN)
    for note in sorted(notes.values(), key=lambda note: int(note["batch"])):
        files.update(_files(note["files"], note["batch"]))
        last = max([last, *(span[3] for span in note["offsets"] if span[0] == topic)])
    note = notes.get(newest, {})
    checkpoint = note["checkpoint"] if "checkpoint" in note else _newest_watermark(spark, paths)
    return ReadSoFar(newest, last + 1, checkpoint, bool(note.get("without_tso", newest not in notes)), files)


def _notes(spark: SparkSession, paths: LakePaths, after: int) -> dict[int, dict[str, Any]]:
    """The notes of the batches after that number. Delta removes old commits, with their notes, after a month."""
    newest = newest_batch(spark, paths)
    table = DeltaTable.forPath(spark, paths.table("raw_topic_snapshot"))
    found: dict[int, dict[str, Any]] = {}
    for history in (table.history(_FEW_COMMITS), table.history()):
        rows = history.where(F.get_json_object("userMetadata", "$.batch").try_cast("bigint") > after)
        notes = [json.loads(row[0]) for row in rows.select("userMetadata").collect()]
        found = {int(note["batch"]): note for note in notes}
        if len(found) == newest - after:
            break
    return found


def _of_batches(spark: SparkSession, paths: LakePaths, topic: str) -> tuple[dict[str, KnownFile], int]:
    """The files of the decoded batches, and the last offset."""
    batches = spark.read.format("delta").load(paths.table("batches"))
    span = batches.select(F.explode("offsets").alias("span")).where(F.col("span.topic") == topic)
    last = span.agg(F.coalesce(F.max("span.last"), F.lit(_UNKNOWN))).first()
    assert last is not None
    files = {path: KnownFile(_UNKNOWN, 0, batch_id) for path, batch_id in _files_of_records(spark, paths, batches)}
    named = batches.select("batch_id", F.explode("files").alias("file")).select("batch_id", "file.*")
    columns = named.orderBy("batch_id").toArrow().to_pydict()
    for batch_id, *file in zip(*(columns[name] for name in ("batch_id", "path", "size", "modified_ms")), strict=True):
        files.update(_files([file], batch_id))
    return files, int(last[0])


def _files_of_records(spark: SparkSession, paths: LakePaths, batches: Any) -> Iterator[tuple[str, int]]:
    """The files of batches that a rebuild wrote anew when their notes were gone: their records still name them."""
    without = batches.where("size(files) = 0 AND records > 1").select("batch_id")
    if without.isEmpty():
        return
    raw = spark.read.format("delta").load(paths.table("raw_topic_snapshot")).join(F.broadcast(without), "batch_id")
    path = F.get(F.filter("headers", lambda header: header["key"] == FILE), F.lit(0))["value"].cast("string")
    rows: list[Row] = raw.groupBy(path.alias("path")).agg(F.max("batch_id").alias("batch_id")).collect()
    yield from ((row["path"], row["batch_id"]) for row in rows if row["path"] is not None)


def _files(files: list[list[Any]], batch_id: int) -> dict[str, KnownFile]:
    return {path: KnownFile(size, modified_ms, batch_id) for path, size, modified_ms in files}


def _newest_watermark(spark: SparkSession, paths: LakePaths) -> int | None:
    if table_state(spark, paths.table("watermarks")) is None:
        return None
    row = spark.read.format("delta").load(paths.table("watermarks")).agg(F.max("watermark_ts")).first()
    return None if row is None else row[0]
