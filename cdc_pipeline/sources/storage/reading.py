"""Spark reads the files of a batch: each line of a data file is a record, and each schema file as a whole.

Spark splits large files and packs small ones, in an order of its own. A line is therefore numbered by where it came from:
the block of the file, and its place in the task that read the block; lines of one block are one stretch of places. Only
the blocks' counts are collected, and give each block its first line and offset.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import functions as F

from cdc_pipeline.errors import SourceError
from cdc_pipeline.lake.paths import no_pattern
from cdc_pipeline.sources.records import HEADERS, RECORD
from cdc_pipeline.sources.storage.layout import FILE, LINE
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from cdc_pipeline.sources.storage.layout import StorageFile

_PLACES = (
    "uri STRING, block BIGINT, first_place BIGINT, lines_before BIGINT, path STRING, known BIGINT, start BIGINT, "
    "modified_ms BIGINT"
)
_EXTENSION = b'"_tidb":{'
"""No value of a column can have it: those are strings, in which quotes are escaped."""


@dataclass(frozen=True)
class Block:
    """What a task read of one file in one stretch. `start` is where it begins in the file, `weight` its bytes with one
    for the line end of each line, `whole` whether a schema file ends as JSON does."""

    start: int
    first_place: int
    lines: int
    weight: int
    without_tso: bool
    whole: bool


@dataclass(frozen=True)
class ReadFile:
    """A file that was read to its end: its blocks in order, and how many of its first lines the lake has already."""

    file: StorageFile
    uri: str
    blocks: tuple[Block, ...]
    known_lines: int

    @property
    def lines(self) -> int:
        return sum(block.lines for block in self.blocks)

    @property
    def new_lines(self) -> int:
        return self.lines - self.known_lines

    @property
    def without_tso(self) -> bool:
        return any(block.without_tso for block in self.blocks)


def lines_of(spark: SparkSession, root: str, files: Sequence[StorageFile]) -> DataFrame:
    """The lines of data files and the contents of schema files: `value` as binary without its line end, `uri`, `block`,
    `place`, and what the counts need."""
    wholes = [file for file in files if file.is_schema]
    datas = [file for file in files if not file.is_schema]
    frames = []
    for found, whole in ((wholes, True), (datas, False)):
        if found:
            reader = spark.read.option("lineSep", "\n").option("recursiveFileLookup", "true")  # a=1 is no partition
            text = reader.text([no_pattern(f"{root}/{file.path}") for file in found], wholetext=whole)
            frames.append(_placed(text, whole=whole))
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def _placed(text: DataFrame, *, whole: bool) -> DataFrame:
    line = F.col("value").cast("binary")
    # CRLF by default, LF where the changefeed says so
    trimmed = F.when(F.endswith(line, F.lit(b"\r")), F.substring(line, F.lit(1), F.octet_length(line) - 1))
    value = line if whole else F.coalesce(trimmed, line)
    ends = F.endswith(F.rtrim("value", F.lit(" \t\r\n")), F.lit("}"))
    return text.select(
        value.alias("value"),
        F.col("_metadata.file_path").alias("uri"),
        (F.lit(0).cast("bigint") if whole else F.col("_metadata.file_block_start")).alias("block"),
        F.monotonically_increasing_id().alias("place"),
        (F.octet_length(line).cast("bigint") + F.lit(0 if whole else 1)).alias("weight"),
        (F.lit(False) if whole else (F.octet_length(value) > 0) & ~F.contains(value, F.lit(_EXTENSION))).alias(
            "without_tso"
        ),
        (ends if whole else F.lit(True)).alias("whole"),
    )


def blocks_by_path(lines: DataFrame, root: str) -> dict[str, tuple[str, tuple[Block, ...]]]:
    """Path below the root → the name that Spark has for the file, and its blocks."""
    rows = (
        lines.groupBy("uri", "block")
        .agg(
            F.min("place").alias("first_place"),
            F.count("*").alias("lines"),
            F.sum("weight").alias("weight"),
            F.max("without_tso").alias("without_tso"),
            F.min("whole").alias("whole"),
        )
        .collect()
    )
    by_uri: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_uri[row["uri"]].append(row)
    start = len(_plain(root)) + 1
    return {
        _plain(unquote(uri))[start:]: (
            uri,
            tuple(Block(*row[1:]) for row in sorted(found, key=lambda row: row["block"])),
        )
        for uri, found in by_uri.items()
    }


def _plain(uri: str) -> str:
    """`file:///a`, `file:/a` and `/a` are one place."""
    return re.sub(r"^file:/+", "/", uri)


def is_whole(file: StorageFile, blocks: Sequence[Block]) -> bool:
    """Whether the file was read as it was listed, and up to a line end. A torn last line is as long as if it had one."""
    return sum(block.weight for block in blocks) == file.size > 0 and all(block.whole for block in blocks)


def known_lines(lines: DataFrame, sizes: Mapping[str, int]) -> dict[str, int]:
    """URI → how many lines the file had when it was `sizes` bytes long. Raises SourceError where no line ended there."""
    if not sizes:
        return {}
    small = small_frame(lines.sparkSession, list(sizes.items()), "uri STRING, known BIGINT")
    grown = lines.join(F.broadcast(small), "uri").select("uri", "known", "block", "place", "weight")
    end = F.expr("sum(weight) OVER (PARTITION BY uri ORDER BY block, place)")
    old = grown.withColumn("line_end", end).where(F.col("line_end") <= F.col("known"))
    rows = old.groupBy("uri").agg(F.count("*"), F.max("line_end")).collect()
    counts = {row[0]: row[1] for row in rows if row[2] == sizes[row[0]]}
    for uri in sizes:
        if uri not in counts:
            raise SourceError(
                f"{unquote(uri)} was written anew: it is longer than when it was read, and other lines stand in it. TiCDC "
                "only adds files. If the folder was made anew, read it into another lake; else put the file back"
            )
    return counts


def records(lines: DataFrame, files: Sequence[ReadFile], topic: str, first_offset: int) -> DataFrame:
    """The new lines of `files` as records (`RECORD`): in their order, numbered from `first_offset`."""
    rows, offset = [], first_offset
    for read in files:
        before = 0
        for block in read.blocks:
            where = (read.uri, block.start, block.first_place, before)
            rows.append((*where, read.file.path, read.known_lines, offset, read.file.modified_ms))
            before += block.lines
        offset += read.new_lines
    small = small_frame(lines.sparkSession, rows, _PLACES)
    line = F.col("lines_before") + F.col("place") - F.col("first_place") + 1
    values = {
        "topic": F.lit(topic),
        "partition": F.lit(0),
        "offset": F.col("start") + F.col("line") - F.col("known") - 1,
        "timestamp": F.timestamp_millis("modified_ms"),
        "key": F.lit(None),
        "value": F.col("value"),
        "headers": _headers({FILE: F.col("path"), LINE: F.col("line").cast("string")}),
    }
    new = lines.join(F.broadcast(small), ["uri", "block"]).withColumn("line", line).where("line > known")
    return new.select(*(values[field.name].cast(field.dataType).alias(field.name) for field in RECORD))


def one_record(
    spark: SparkSession, topic: str, offset: int, value: bytes, modified_ms: int, headers: Mapping[str, str]
) -> DataFrame:
    """A record that is no line of a data file."""
    frame = small_frame(spark, [(bytearray(value), modified_ms)], "value BINARY, modified_ms BIGINT")
    values = {
        "topic": F.lit(topic),
        "partition": F.lit(0),
        "offset": F.lit(offset),
        "timestamp": F.timestamp_millis("modified_ms"),
        "key": F.lit(None),
        "value": F.col("value"),
        "headers": _headers({name: F.lit(text) for name, text in headers.items()}),
    }
    return frame.select(*(values[field.name].cast(field.dataType).alias(field.name) for field in RECORD))


def _headers(texts: Mapping[str, Column]) -> Column:
    pairs = [F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in texts.items()]
    return F.array(*pairs).cast(HEADERS)
