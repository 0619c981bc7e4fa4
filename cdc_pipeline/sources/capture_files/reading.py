"""Reads capture files: `*.jsonl` or `*.jsonl.gz`, each line one record as `kcat -C -J` prints it.

A line has `topic`, `partition`, `offset`, `ts` (ms), `key`, `payload` and `headers` (a flat list: name, value, name, …).
Bytes that are not UTF-8 are in `payload_base64` or `key_base64` instead. Files whose first line is not a record, such as
expected tables beside a capture, are skipped and reported by name. A file that mixes records with other lines fails the
whole run before anything is written.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import zlib
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.contracts.json_text import END_MARK, OPTIONS, has_unpaired_surrogate, with_end_mark
from cdc_pipeline.errors import SourceError
from cdc_pipeline.lake.paths import escape_glob
from cdc_pipeline.sources.codecs import MAX_VALUE_BYTES
from cdc_pipeline.sources.records import RECORD, timestamp_columns
from cdc_pipeline.sources.source import SourceFile, digest

_LINE_SCHEMA = (
    "topic STRING, partition INT, offset BIGINT, ts BIGINT, key STRING, key_base64 STRING, payload STRING, "
    f"payload_base64 STRING, headers ARRAY<STRING>, {END_MARK} BOOLEAN, _unreadable STRING"
)
# A payload or key that is neither a string nor null: the parser would serialize it again, 1.50 as 1.5.
_NOT_A_STRING = r'"(?:payload|key)"\s*:\s*[^"n\s]'
_MAX_FIRST_LINE = 1 << 26  # a file with a longer first line is read as a capture
_CHUNK = 1 << 20
_MAX_GZIP_RATIO = 1032  # deflate encodes 258 bytes in at least two bits
MAX_LINE_BYTES = 2 * MAX_VALUE_BYTES
"""Maximum length of a line. Spark holds a line in one array: a value of `codecs.MAX_VALUE_BYTES`, with escapes or base64."""


@dataclass(frozen=True)
class FolderListing:
    """The files of a capture folder."""

    files: tuple[SourceFile, ...]
    """Capture files, ordered by name."""
    skipped: tuple[str, ...]
    """Names of files whose first line is not a record."""

    @property
    def digest(self) -> str:
        """A hash of the files' paths, sizes and times: equal while the folder is unchanged."""
        return digest(*(f"{file.path} {file.size} {file.modified_ms}" for file in self.files))


def list_folder(folder: str) -> FolderListing:
    """Lists the files in `folder`. Raises SourceError if it is missing, is a file, or contains a name that Spark ignores."""
    root = Path(folder)
    if not root.exists():
        raise SourceError(f"the capture folder {folder!r} does not exist")
    if not root.is_dir():
        raise SourceError(f"{folder!r} is a file; a folder of *.jsonl or *.jsonl.gz files is expected")
    # names that begin with a dot are hidden, as in the shell's *.jsonl
    found = sorted(
        path
        for path in root.iterdir()
        if path.is_file() and path.name.endswith((".jsonl", ".jsonl.gz")) and not path.name.startswith(".")
    )
    captures, skipped = [], []
    for path in found:
        if _has_no_records(path):
            skipped.append(path.name)
            continue
        if path.name.startswith("_") or ":" in path.name:
            raise SourceError(
                f"{path.name!r} in {folder!r} has a name that Spark does not read: it begins with an underscore or "
                "contains a colon. Rename the file"
            )
        stat = path.stat()
        # Spark gets the name that was checked: it would leave out a link to a file with a hidden name
        captures.append(SourceFile(str(root.resolve() / path.name), stat.st_size, stat.st_mtime_ns // 1_000_000))
    return FolderListing(tuple(captures), tuple(skipped))


def _open(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """Opens the file and decompresses `.gz`."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def text_bytes(file: SourceFile) -> int:
    """The size of the file's text: of `.gz` as its last four bytes say, which leave out multiples of 4 GiB."""
    if not file.path.endswith(".gz"):
        return file.size
    with contextlib.suppress(OSError), Path(file.path).open("rb") as stream:
        stream.seek(-4, io.SEEK_END)
        return int.from_bytes(stream.read(4), "little")
    return file.size  # reading it reports the error


def _has_no_records(path: Path) -> bool:
    """Whether the first line is a JSON object without `topic`, `partition` and `offset`."""
    try:
        with _open(path) as stream:
            line = stream.readline(_MAX_FIRST_LINE)
    except (OSError, EOFError, zlib.error):
        return False  # reading the file reports the error
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and not {"topic", "partition", "offset"} & first.keys()


def records(spark: SparkSession, files: tuple[SourceFile, ...]) -> DataFrame:
    """One row per line that is not blank: `RECORD`, `_file` (name), and `_unreadable`.

    `_unreadable`: the first 200 characters of a line that is not a record, else null. `payload` is unescaped to the bytes
    that the producer sent.
    """
    lines = spark.read.option("lineSep", "\n").text([escape_glob(file.path) for file in files])
    # `ts` and headers do not identify a record, so they may be missing
    options = {**OPTIONS, "columnNameOfCorruptRecord": "_unreadable"}
    parsed = lines.where(F.col("value").rlike(r"\S")).select(
        F.from_json(with_end_mark(F.col("value").cast("binary")), _LINE_SCHEMA, options).alias("line"),
        F.col("value").alias("_text"),
        F.col("_metadata.file_name").alias("_file"),
    )
    line, text = F.col("line"), F.col("_text")
    is_record = (
        line["_unreadable"].isNull()
        & line[END_MARK].isNotNull()
        & F.is_valid_utf8(text)
        & ~has_unpaired_surrogate(text)
        & ~text.rlike(_NOT_A_STRING)
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
        **timestamp_columns(line["ts"]),
        "key": _bytes("key"),
        "value": _bytes("payload"),
        "headers": _headers(),
    }
    return parsed.select(
        *(record[field.name].cast(field.dataType).alias(field.name) for field in RECORD),
        F.col("_file"),
        F.when(F.coalesce(is_record, F.lit(False)), F.lit(None))
        .otherwise(F.substring("_text", 1, 200))
        .alias("_unreadable"),
    )


def _bytes(name: str) -> Column:
    """`payload` as UTF-8, or `payload_base64` decoded; null for a tombstone. The same for `key`."""
    return F.coalesce(F.col(f"line.{name}").cast("binary"), _from_base64(name))


def _from_base64(name: str) -> Column:
    return F.expr(f"try_to_binary(line.{name}_base64, 'base64')")


def _headers() -> Column:
    """kcat's flat list [name, value, name, value, …] as an array of (key, value)."""
    return F.expr(
        "transform(filter(sequence(0, size(line.headers) - 1), i -> i % 2 = 0 AND size(line.headers) > 0), "
        "i -> named_struct('key', line.headers[i], 'value', cast(get(line.headers, i + 1) AS BINARY)))"
    )


def overlong_line(files: tuple[SourceFile, ...], max_bytes: int = MAX_LINE_BYTES) -> tuple[str, int] | None:
    """Name of the first file with a line longer than `max_bytes`, and the line's number from 1; None if there is none.

    Memory does not grow with the line, because a small compressed file may contain a very long one. Skips files that cannot
    be read to their end; reading them reports the error.
    """
    for file in files:
        path = Path(file.path)
        if file.size * (_MAX_GZIP_RATIO if path.suffix == ".gz" else 1) <= max_bytes:
            continue  # the whole file is shorter
        with contextlib.suppress(OSError, EOFError, zlib.error):
            number, length = 1, 0
            with _open(path) as stream:
                while chunk := stream.read(_CHUNK):
                    first = chunk.find(b"\n")
                    if length + (len(chunk) if first < 0 else first) > max_bytes:
                        return file.name, number
                    # lines within a chunk are shorter than the chunk
                    number += chunk.count(b"\n")
                    length = length + len(chunk) if first < 0 else len(chunk) - chunk.rfind(b"\n") - 1
    return None


def damaged_gzip(files: tuple[SourceFile, ...]) -> str | None:
    """Name of the first `.gz` file that is truncated or damaged; None if all are intact.

    Reads every file, so it is called only after Spark failed to read one of them.
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
