"""Selects the files of a listing that must be read, and splits them into batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.errors import SourceError
from cdc_pipeline.sources.storage.layout import FILE
from cdc_pipeline.sources.storage.reading import blocks_by_path, read_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.sources.storage.layout import StorageFile
    from cdc_pipeline.sources.storage.progress import Progress

MAX_FILES = 5000
"""Maximum number of files per batch: the commit's note contains their names, and Spark lists each of them."""


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
