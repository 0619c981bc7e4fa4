"""Which files of a listing are to be read, and in what portions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.errors import SourceError
from cdc_pipeline.sources.storage.layout import FILE
from cdc_pipeline.sources.storage.reading import blocks_by_path, lines_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.sources.storage.layout import StorageFile
    from cdc_pipeline.sources.storage.progress import ReadSoFar

MOST_FILES = 5000
"""Files of a batch, however small: their names stand in the commit's note, and Spark lists each of them."""


def files_to_read(
    spark: SparkSession, paths: LakePaths, root: str, files: Sequence[StorageFile], before: ReadSoFar
) -> tuple[tuple[StorageFile, ...], tuple[StorageFile, ...]]:
    """The files that have something new, and the schema files that were written again with the same content.

    Raises SourceError for a file that is shorter than when it was read, and for a schema file with another content. A data
    file of the same size is the same, whatever its time: TiCDC never writes one anew.
    """
    new, suspects = [], []
    for file in files:
        known = before.files.get(file.path)
        if known is None:
            new.append(file)
        elif known.size < 0 or (file.size, file.modified_ms) == (known.size, known.modified_ms):
            continue
        elif file.is_schema:
            suspects.append(file)
        elif file.size < known.size:
            raise SourceError(
                f"{file.path} in {root!r} has {file.size} bytes, and had {known.size} when it was read. TiCDC only adds "
                "files: put the file back, or, if the folder was made anew, read it into another lake"
            )
        elif file.size > known.size:
            new.append(file)
    if suspects:
        _require_same_content(spark, paths, root, suspects, before)
    return tuple(new), tuple(suspects)


def _require_same_content(
    spark: SparkSession, paths: LakePaths, root: str, files: Sequence[StorageFile], before: ReadSoFar
) -> None:
    """After a restart TiCDC writes schema files again, byte for byte. Statements are few: they are compared here."""
    lines = lines_of(spark, root, files).persist()
    try:
        uris = {uri: path for path, (uri, _) in blocks_by_path(lines, root).items()}
        present = {uris[row["uri"]]: row["value"] for row in lines.select("uri", "value").collect()}
    finally:
        lines.unpersist()
    batches = sorted({before.files[file.path].batch_id for file in files})
    path = F.get(F.filter("headers", lambda header: header["key"] == FILE), F.lit(0))["value"].cast("string")
    raw = spark.read.format("delta").load(paths.table("raw_topic_snapshot"))
    # a file that was written a third time is noted with a later batch than the one that has its record
    known = raw.where(F.col("batch_id") <= batches[-1]).where(path.isin([file.path for file in files]))
    for row in known.select(path.alias("path"), "value").collect():
        if present.get(row["path"]) != row["value"]:
            raise SourceError(
                f"{row['path']} in {root!r} has another content than when it was read. A schema file never changes: put it "
                "back, or, if the folder was made anew, read it into another lake"
            )


def bounded(files: Sequence[StorageFile], max_bytes: int) -> list[tuple[StorageFile, ...]]:
    """The files in portions, in their order: each of `max_bytes` or less, or one larger file."""
    portions: list[list[StorageFile]] = []
    size = 0
    for file in files:
        if not portions or size + file.size > max_bytes or len(portions[-1]) == MOST_FILES:
            portions.append([])
            size = 0
        portions[-1].append(file)
        size += file.size
    return [tuple(portion) for portion in portions]


def checkpoint_waits_for(waiting: Sequence[StorageFile], files: Sequence[StorageFile]) -> StorageFile | None:
    """A file that is not written to its end, and whose rows the checkpoint may speak of; None where there is none.

    TiCDC moves the checkpoint on when a file is complete; but a folder that is copied may have the checkpoint first. One
    that a later file of its folder follows is what a crash has left: its rows were sent again, into that file.
    """
    newest: dict[tuple[str, str], int] = {}
    for file in files:
        newest[file.folder] = max(newest.get(file.folder, 0), file.index)
    return next((file for file in waiting if file.is_schema or file.index == newest[file.folder]), None)
