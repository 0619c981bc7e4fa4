"""The source `capture_files`: a folder of `*.jsonl` (also `.gz`), each line one record as `kcat -C -J` prints it.

A line has `topic`, `partition`, `offset`, `ts` (ms), `key`, `payload`, `headers` (a flat list: name, value, name, …),
and for bytes that are not UTF-8 `payload_base64` / `key_base64` in their place. The same (topic, partition, offset)
twice is one record. Files that hold no records at all, such as expected tables beside a capture, are passed over by
name; a file that mixes records with other lines is refused as a whole, before anything is written.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_pipeline.contracts.json_text import END_MARK, OPTIONS, has_half_a_character, with_end_mark
from cdc_pipeline.errors import SourceError
from cdc_pipeline.lake.paths import no_pattern
from cdc_pipeline.sources.codecs import MOST_BYTES
from cdc_pipeline.sources.records import RECORD
from cdc_pipeline.sources.source import CaptureFile

if TYPE_CHECKING:
    import io

    from pyspark.sql import DataFrame, SparkSession

_LINE_SCHEMA = (
    "topic STRING, partition INT, offset BIGINT, ts BIGINT, key STRING, key_base64 STRING, payload STRING, "
    f"payload_base64 STRING, headers ARRAY<STRING>, {END_MARK} BOOLEAN, _unreadable STRING"
)
# A payload or key that is neither text nor null has no bytes of its own: the parser would write it anew, 1.50 as 1.5.
_NO_TEXT = r'"(?:payload|key)"\s*:\s*[^"n\s]'
_LONGEST_LINE = 1 << 26  # of a file that may be passed over: one with a longer first line is read as a capture
_CHUNK = 1 << 20
_MOST_GZIP_RATIO = 1032  # of deflate: 258 bytes are two bits at least
MOST_LINE_BYTES = 2 * MOST_BYTES
"""Of a record's line. Spark holds a line in one piece: a value of `codecs.MOST_BYTES`, and what escapes or base64 add."""


@dataclass(frozen=True)
class FolderListing:
    """The capture files of a folder in name order, and the files beside them that hold no records."""

    files: tuple[CaptureFile, ...]
    passed_over: tuple[str, ...]


def listed(folder: str) -> FolderListing:
    """What is in `folder` now. Raises SourceError where it is missing, not a folder, or a file cannot be opened."""
    place = Path(folder)
    if not place.exists():
        raise SourceError(f"the capture folder {folder!r} does not exist")
    if not place.is_dir():
        raise SourceError(f"{folder!r} is a file; a folder of *.jsonl or *.jsonl.gz files is expected")
    # a name that begins with a dot is hidden, as for the shell's *.jsonl
    found = sorted(
        path
        for path in place.iterdir()
        if path.is_file() and path.name.endswith((".jsonl", ".jsonl.gz")) and not path.name.startswith(".")
    )
    captures, others = [], []
    for path in found:
        if _holds_no_records(path):
            others.append(path.name)
            continue
        if path.name.startswith("_") or ":" in path.name:
            raise SourceError(
                f"{path.name!r} in {folder!r} has a name that Spark does not read: it begins with an underscore or has "
                "a colon. Give the file another name"
            )
        stat = path.stat()
        captures.append(CaptureFile(str(path.resolve()), stat.st_size, stat.st_mtime_ns // 1_000_000))
    return FolderListing(tuple(captures), tuple(others))


def _opened(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """The bytes of the file, those that it opens to where it is compressed."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def _holds_no_records(path: Path) -> bool:
    """Whether the first line is a whole JSON object that has nothing of a record: then this is another kind of file."""
    try:
        with _opened(path) as stream:
            line = stream.readline(_LONGEST_LINE)
    except (OSError, EOFError, zlib.error):
        return False  # the reader below says what is wrong with it
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and not {"topic", "partition", "offset"} & first.keys()


def records(spark: SparkSession, files: tuple[CaptureFile, ...]) -> DataFrame:
    """The lines of `files` as records (`RECORD`), plus `_file`, and `_unreadable`: the text of a line that is none.

    A line is read as it stands: `payload` is unescaped to the very bytes that the producer sent.
    """
    lines = spark.read.option("lineSep", "\n").text([no_pattern(file.path) for file in files])
    # Neither `ts` nor headers identify a record, so a line without them is still one.
    options = {**OPTIONS, "columnNameOfCorruptRecord": "_unreadable"}
    parsed = lines.where(F.col("value").rlike(r"\S")).select(
        F.from_json(with_end_mark(F.col("value").cast("binary")), _LINE_SCHEMA, options).alias("line"),
        F.col("value").alias("_text"),
        F.col("_metadata.file_name").alias("_file"),
    )
    line, text = F.col("line"), F.col("_text")
    whole = (
        line["_unreadable"].isNull()
        & line[END_MARK].isNotNull()
        & F.is_valid_utf8(text)
        & ~has_half_a_character(text)
        & ~text.rlike(_NO_TEXT)
        & line["topic"].isNotNull()
        & (line["partition"] >= 0)
        & (line["offset"] >= 0)
        & (line["payload_base64"].isNull() | _from_base64("payload").isNotNull())
        & (line["key_base64"].isNull() | _from_base64("key").isNotNull())
    )
    record = {
        "topic": line["topic"],
        "partition": line["partition"],
        "offset": line["offset"],
        "timestamp": F.timestamp_millis(line["ts"]),
        "key": _bytes("key"),
        "value": _bytes("payload"),
        "headers": _headers(),
    }
    return parsed.select(
        *(record[field.name].cast(field.dataType).alias(field.name) for field in RECORD),
        F.col("_file"),
        F.when(F.coalesce(whole, F.lit(False)), F.lit(None))
        .otherwise(F.substring("_text", 1, 200))
        .alias("_unreadable"),
    )


def _bytes(name: str) -> Column:
    """`payload` as UTF-8, or `payload_base64` decoded; null for a tombstone or a null key."""
    return F.coalesce(F.col(f"line.{name}").cast("binary"), _from_base64(name))


def _from_base64(name: str) -> Column:
    return F.expr(f"try_to_binary(line.{name}_base64, 'base64')")


def _headers() -> Column:
    """kcat's flat list [name, value, name, value, …] as pairs."""
    return F.expr(
        "transform(filter(sequence(0, size(line.headers) - 1), i -> i % 2 = 0 AND size(line.headers) > 0), "
        "i -> named_struct('key', line.headers[i], 'value', cast(get(line.headers, i + 1) AS BINARY)))"
    )


def overlong_line(files: tuple[CaptureFile, ...], most: int = MOST_LINE_BYTES) -> tuple[str, int] | None:
    """The name of the first file with a line of more than `most` bytes, and that line's number; None where none has any.
    Memory does not grow with the line: a small file may open to one without end.

    Files that cannot be read to their end are left to the reader, which says what is wrong with them.
    """
    for file in files:
        path = Path(file.path)
        if file.size * (_MOST_GZIP_RATIO if path.suffix == ".gz" else 1) <= most:
            continue  # as a whole it is no longer
        with contextlib.suppress(OSError, EOFError, zlib.error):
            number, length = 1, 0
            with _opened(path) as stream:
                while chunk := stream.read(_CHUNK):
                    first = chunk.find(b"\n")
                    if length + (len(chunk) if first < 0 else first) > most:
                        return file.name, number
                    # lines that begin and end within a chunk are shorter than it
                    number += chunk.count(b"\n")
                    length = length + len(chunk) if first < 0 else len(chunk) - chunk.rfind(b"\n") - 1
    return None


def unfinished_gzip(files: tuple[CaptureFile, ...]) -> str | None:
    """The name of the first `.gz` file that ends before its end mark, or is damaged; None where all are whole.

    Called only after a read has failed, to name the file.
    """
    for file in files:
        if not file.path.endswith(".gz"):
            continue
        try:
            with gzip.open(file.path) as stream:
                while stream.read(_CHUNK):
                    pass
        except (OSError, EOFError, zlib.error):
            return file.name
    return None
