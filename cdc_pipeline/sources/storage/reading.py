"""Reads the files of a batch with Spark. Each line of a data file and each complete schema file is a record.

Spark splits large files into blocks, combines small files into one task, and does not keep their order. The number of a line
is therefore computed from its block and from `row_id`, a `monotonically_increasing_id`: the lines of a block have
consecutive ids. Only counts per block are collected; they give each block its first line number and offset.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.errors import SourceError
from cdc_pipeline.lake.paths import escape_glob
from cdc_pipeline.sources.records import RECORD, timestamp_columns
from cdc_pipeline.sources.storage.layout import FILE, LINE, StorageFile
from cdc_pipeline.spark.small_frames import small_frame

_BLOCKS = (
    "uri STRING, block BIGINT, first_row_id BIGINT, lines_before BIGINT, path STRING, known BIGINT, start BIGINT, "
    "modified_ms BIGINT"
)
_EXTENSION = b'"_tidb":{'
"""Cannot occur in a column value: values are JSON strings, in which quotes are escaped."""


@dataclass(frozen=True)
class Block:
    """A part of one file that one task read."""

    start: int
    """Position in the file, in bytes."""
    first_row_id: int
    lines: int
    byte_count: int
    """Bytes of all lines; in data files plus one per line for its line feed."""
    without_tso: bool
    """Whether a row has no TiDB extension, and so no commit TSO."""
    is_complete: bool
    """False for a schema file that does not end as JSON does."""


@dataclass(frozen=True)
class ReadFile:
    """A complete file."""

    file: StorageFile
    uri: str
    """Spark's name of the file."""
    blocks: tuple[Block, ...]
    """In file order."""
    known_lines: int
    """Number of its first lines that the lake already contains."""

    @property
    def lines(self) -> int:
        return sum(block.lines for block in self.blocks)

    @property
    def new_lines(self) -> int:
        return self.lines - self.known_lines

    @property
    def without_tso(self) -> bool:
        return any(block.without_tso for block in self.blocks)


def read_lines(spark: SparkSession, root: str, files: Sequence[StorageFile]) -> DataFrame:
    """One row per line of a data file and per schema file.

    Columns: `value` (binary, without the line end), `uri`, `block`, `row_id`, and `byte_count`, `without_tso` and
    `is_complete` as in `Block`.
    """
    frames = []
    for is_schema in (True, False):
        if found := [file for file in files if file.is_schema == is_schema]:
            # recursiveFileLookup: a folder `a=1` is not a partition
            reader = spark.read.option("lineSep", "\n").option("recursiveFileLookup", "true")
            text = reader.text([escape_glob(f"{root}/{file.path}") for file in found], wholetext=is_schema)
            frames.append(_lines(text, is_schema=is_schema))
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def _lines(text: DataFrame, *, is_schema: bool) -> DataFrame:
    line = F.col("value").cast("binary")
    # the line end is CRLF by default, or LF if the changefeed is configured so
    trimmed = F.when(F.endswith(line, F.lit(b"\r")), F.substring(line, F.lit(1), F.octet_length(line) - 1))
    value = line if is_schema else F.coalesce(trimmed, line)
    ends_as_json = F.endswith(F.rtrim("value", F.lit(" \t\r\n")), F.lit("}"))
    return text.select(
        value.alias("value"),
        F.col("_metadata.file_path").alias("uri"),
        (F.lit(0).cast("bigint") if is_schema else F.col("_metadata.file_block_start")).alias("block"),
        F.monotonically_increasing_id().alias("row_id"),
        (F.octet_length(line).cast("bigint") + F.lit(0 if is_schema else 1)).alias("byte_count"),
        (F.lit(False) if is_schema else (F.octet_length(value) > 0) & ~F.contains(value, F.lit(_EXTENSION))).alias(
            "without_tso"
        ),
        (ends_as_json if is_schema else F.lit(True)).alias("is_complete"),
    )


def blocks_by_path(lines: DataFrame, root: str) -> dict[str, tuple[str, tuple[Block, ...]]]:
    """Path relative to the root → Spark's name of the file, and its blocks in file order."""
    rows = (
        lines.groupBy("uri", "block")
        .agg(
            F.min("row_id").alias("first_row_id"),
            F.count("*").alias("lines"),
            F.sum("byte_count").alias("byte_count"),
            F.max("without_tso").alias("without_tso"),
            F.min("is_complete").alias("is_complete"),
        )
        .collect()
    )
    by_uri: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_uri[row["uri"]].append(row)
    start = len(_local_path(root)) + 1
    return {
        _local_path(unquote(uri))[start:]: (
            uri,
            tuple(Block(*row[1:]) for row in sorted(found, key=lambda row: row["block"])),
        )
        for uri, found in by_uri.items()
    }


def _local_path(uri: str) -> str:
    """`/a` for `file:///a`, `file:/a` and `/a`; any other URI unchanged."""
    return re.sub(r"^file:/+", "/", uri)


def is_complete(file: StorageFile, blocks: Sequence[Block]) -> bool:
    """Whether the file has its listed size, is not empty, and ends with a line feed (a schema file: as JSON does).

    A last line without line feed makes `byte_count` larger than the size.
    """
    return sum(block.byte_count for block in blocks) == file.size > 0 and all(block.is_complete for block in blocks)


def known_lines(lines: DataFrame, sizes: Mapping[str, int]) -> dict[str, int]:
    """URI → number of lines in the file's first `sizes[uri]` bytes. Raises SourceError if no line ends at that size."""
    if not sizes:
        return {}
    small = small_frame(lines.sparkSession, list(sizes.items()), "uri STRING, known BIGINT")
    grown = lines.join(F.broadcast(small), "uri").select("uri", "known", "block", "row_id", "byte_count")
    end = F.expr("sum(byte_count) OVER (PARTITION BY uri ORDER BY block, row_id)")
    old = grown.withColumn("line_end", end).where(F.col("line_end") <= F.col("known"))
    rows = old.groupBy("uri").agg(F.count("*"), F.max("line_end")).collect()
    counts = {row[0]: row[1] for row in rows if row[2] == sizes[row[0]]}
    for uri in sizes:
        if uri not in counts:
            raise SourceError(
                f"{unquote(uri)} was overwritten: it is longer than when it was read, and its lines have changed. TiCDC "
                "only appends: restore the file or, if the folder was recreated, read it into another lake"
            )
    return counts


def records(lines: DataFrame, files: Sequence[ReadFile], topic: str, first_offset: int) -> DataFrame:
    """The new lines of `files` as `RECORD`, with consecutive offsets from `first_offset` in the order of files and lines."""
    rows, offset = [], first_offset
    for read in files:
        before = 0
        for block in read.blocks:
            position = (read.uri, block.start, block.first_row_id, before)
            rows.append((*position, read.file.path, read.known_lines, offset, read.file.modified_ms))
            before += block.lines
        offset += read.new_lines
    small = small_frame(lines.sparkSession, rows, _BLOCKS)
    line = F.col("lines_before") + F.col("row_id") - F.col("first_row_id") + 1
    new = lines.join(F.broadcast(small), ["uri", "block"]).withColumn("line", line).where("line > known")
    offsets = F.col("start") + F.col("line") - F.col("known") - 1
    return _to_records(new, topic, offsets, {FILE: F.col("path"), LINE: F.col("line").cast("string")})


def one_record(
    spark: SparkSession, topic: str, offset: int, value: bytes, modified_ms: int, headers: Mapping[str, str]
) -> DataFrame:
    """A single record as `RECORD`, for the checkpoint."""
    frame = small_frame(spark, [(bytearray(value), modified_ms)], "value BINARY, modified_ms BIGINT")
    return _to_records(frame, topic, F.lit(offset), {name: F.lit(text) for name, text in headers.items()})


def _to_records(frame: DataFrame, topic: str, offset: Column, headers: Mapping[str, Column]) -> DataFrame:
    """The rows of a frame with `value` and `modified_ms` as `RECORD`. `headers`: their texts by name."""
    pairs = [F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in headers.items()]
    values = {
        "topic": F.lit(topic),
        "partition": F.lit(0),
        "offset": offset,
        **timestamp_columns(F.col("modified_ms")),
        "key": F.lit(None),
        "value": F.col("value"),
        "headers": F.array(*pairs),
    }
    return frame.select(*(values[field.name].cast(field.dataType).alias(field.name) for field in RECORD))
