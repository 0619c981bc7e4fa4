"""The files of a folder that the lake has and those that must be read, split into batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Row
from pyspark.sql import functions as F

from cdc_pipeline.errors import SourceError
from cdc_pipeline.lake.control_tables import read_maxima
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.batches import last_decoded_batch
from cdc_pipeline.sources.raw_batches import newest_batch, notes_newest_first
from cdc_pipeline.sources.storage.layout import FILE, StorageFile
from cdc_pipeline.sources.storage.reading import blocks_by_path, read_lines

MAX_FILES = 5000
"""Maximum number of files per batch: the commit's note contains their names, and Spark lists each of them."""
_UNKNOWN = -1


@dataclass(frozen=True)
class KnownFile:
    """A file when it was last read."""

    size: int
    """-1 if it is unknown, because the batch's note is gone."""
    modified_ms: int
    batch_id: int
    """The newest batch that lists the file."""


@dataclass(frozen=True)
class Progress:
    """The part of a folder that the lake contains."""

    batch_id: int
    """The newest batch; 0 before the first."""
    next_offset: int
    checkpoint: int | None
    """TSO of the newest ingested checkpoint."""
    without_tso: bool
    """Whether a row has been read that has only the millisecond of its commit and no TSO."""
    files: Mapping[str, KnownFile]
    """By path relative to the root."""
    other_topics: frozenset[str] = frozenset()
    """Topics of the lake's records from another source, or from before the topic got another name."""


def read_progress(lake: Lake, topic: str) -> Progress:
    """The lake's progress in the folder whose records have this topic.

    The note of a batch is committed with its records, and decoding copies its files into the table `batches`. Together, the
    notes of batches that are not decoded and `batches` list all ingested files, even after a killed run.
    """
    newest = newest_batch(lake)
    if newest == 0:
        return Progress(0, 0, None, False, {})
    decoded = last_decoded_batch(lake)
    notes = _notes(lake, min(decoded, newest - 1))
    files, last_offsets = _read_batches(lake) if decoded else ({}, {})
    for note in sorted(notes.values(), key=lambda note: int(note["batch"])):
        files.update(_files(note.get("files", []), note["batch"]))
        for name, _, _, last, _ in note.get("offsets", []):
            last_offsets[name] = max(last, last_offsets.get(name, last))
    note = notes.get(newest, {})
    if "checkpoint" in note:
        checkpoint = note["checkpoint"]
    else:
        checkpoint = max(read_maxima(lake, "watermarks", ("topic",), "watermark_ts").values(), default=None)
    without_tso = bool(note.get("without_tso", newest not in notes))
    next_offset = last_offsets.get(topic, _UNKNOWN) + 1
    return Progress(newest, next_offset, checkpoint, without_tso, files, frozenset(last_offsets) - {topic})


def _notes(lake: Lake, after: int) -> dict[int, dict[str, Any]]:
    """The notes of batches later than `after`, by batch id. Delta removes commits with their notes after 30 days."""
    of_batches = ((note["batch"], note) for note in notes_newest_first(lake) if "batch" in note)
    return dict(itertools.takewhile(lambda numbered: numbered[0] > after, of_batches))


def _read_batches(lake: Lake) -> tuple[dict[str, KnownFile], dict[str, int]]:
    """The files of the decoded batches by path, and the last offset of each topic."""
    batches = lake.read("batches")
    spans = batches.select(F.explode("offsets").alias("span")).groupBy("span.topic").agg(F.max("span.last")).collect()
    files = {path: KnownFile(_UNKNOWN, 0, batch_id) for path, batch_id in _files_of_records(lake, batches)}
    by_batch = batches.select("batch_id", F.explode("files").alias("file")).select("batch_id", "file.*")
    columns = by_batch.orderBy("batch_id").toArrow().to_pydict()
    for batch_id, *file in zip(*(columns[name] for name in ("batch_id", "path", "size", "modified_ms")), strict=True):
        files.update(_files([file], batch_id))
    return files, {topic: int(last) for topic, last in spans}


def _files_of_records(lake: Lake, batches: Any) -> Iterator[tuple[str, int]]:
    """Path and batch id of the files of batches that a rebuild rewrote after their notes had been removed.

    The headers of their records still contain the paths.
    """
    without = batches.where("size(files) = 0 AND records > 1").select("batch_id")
    if without.isEmpty():
        return
    raw = lake.read("raw_topic_snapshot").join(F.broadcast(without), "batch_id")
    path = F.get(F.filter("headers", lambda header: header["key"] == FILE), F.lit(0))["value"].cast("string")
    rows: list[Row] = raw.groupBy(path.alias("path")).agg(F.max("batch_id").alias("batch_id")).collect()
    yield from ((row["path"], row["batch_id"]) for row in rows if row["path"] is not None)


def _files(files: list[list[Any]], batch_id: int) -> dict[str, KnownFile]:
    return {path: KnownFile(size, modified_ms, batch_id) for path, size, modified_ms in files}


def files_to_read(
    lake: Lake, root: str, files: Sequence[StorageFile], before: Progress
) -> tuple[tuple[StorageFile, ...], tuple[StorageFile, ...]]:
    """New or grown files, and schema files that were rewritten with the same content.

    A data file of the same size is unchanged, even with another modification time: TiCDC does not rewrite data files.
    Raises SourceError if a data file has shrunk or the content of a schema file has changed.
    """
    new, rewritten = [], []
    for file in files:
        known = before.files.get(file.path)
        if known is None:
            new.append(file)
        elif known.size < 0 or (file.size, file.modified_ms) == (known.size, known.modified_ms):
            continue
        elif file.is_schema:
            rewritten.append(file)
        elif file.size < known.size:
            raise SourceError(
                f"{file.path} in {root!r} has {file.size} bytes, and had {known.size} when it was read. TiCDC never "
                "shortens files: restore the file or, if the folder was recreated, read it into another lake"
            )
        elif file.size > known.size:
            new.append(file)
    if rewritten:
        _require_same_content(lake, root, rewritten, before)
    return tuple(new), tuple(rewritten)


def _require_same_content(lake: Lake, root: str, files: Sequence[StorageFile], before: Progress) -> None:
    """Raises SourceError if a schema file differs from its record. After a restart TiCDC writes identical files again.

    Collects the files: statements are few.
    """
    lines = read_lines(lake.spark, root, files).persist()
    try:
        uris = {uri: path for path, (uri, _) in blocks_by_path(lines, root).items()}
        present = {uris[row["uri"]]: row["value"] for row in lines.select("uri", "value").collect()}
    finally:
        lines.unpersist()
    batches = sorted({before.files[file.path].batch_id for file in files})
    path = F.get(F.filter("headers", lambda header: header["key"] == FILE), F.lit(0))["value"].cast("string")
    raw = lake.read("raw_topic_snapshot")
    # after a second rewrite `batch_id` is later than the batch that contains the file's record
    known = raw.where(F.col("batch_id") <= batches[-1]).where(path.isin([file.path for file in files]))
    for row in known.select(path.alias("path"), "value").collect():
        if present.get(row["path"]) != row["value"]:
            raise SourceError(
                f"the content of {row['path']} in {root!r} has changed since it was read. TiCDC never changes a schema "
                "file: restore it or, if the folder was recreated, read it into another lake"
            )


def split_files(files: Sequence[StorageFile], max_bytes: int) -> list[tuple[StorageFile, ...]]:
    """The files in order, split into batches of at most `max_bytes` and `MAX_FILES`. A larger file is a batch of its own."""
    batches: list[list[StorageFile]] = []
    size = 0
    for file in files:
        if not batches or size + file.size > max_bytes or len(batches[-1]) == MAX_FILES:
            batches.append([])
            size = 0
        batches[-1].append(file)
        size += file.size
    return [tuple(batch) for batch in batches]


def file_blocking_checkpoint(incomplete: Sequence[StorageFile], files: Sequence[StorageFile]) -> StorageFile | None:
    """The first incomplete file that may contain changes up to the checkpoint; None if there is none.

    TiCDC advances the checkpoint only after the files are complete, but a folder that is being copied may get its checkpoint
    first. An incomplete data file followed by a later file of its folder does not block: TiCDC abandoned it in a crash and
    wrote its rows again to the later file.
    """
    newest: dict[tuple[str, str], int] = {}
    for file in files:
        newest[file.folder] = max(newest.get(file.folder, 0), file.index)
    return next((file for file in incomplete if file.is_schema or file.index == newest[file.folder]), None)
