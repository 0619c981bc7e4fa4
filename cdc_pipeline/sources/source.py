"""The interface of a source: ingest new records, and detect new records without Spark.

A source is an immutable value that holds only its settings. Its progress is stored in the lake, in the commit notes of
`raw_topic_snapshot` (`sources.raw_batches`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.sources.intake import OffsetSpan


@dataclass(frozen=True, order=True)
class SourceFile:
    """A file of a source. A file with another size or modification time counts as changed."""

    path: str
    size: int
    modified_ms: int

    @property
    def name(self) -> str:
        return Path(self.path).name


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction of a Kafka producer that holds back a partition: later records are read after it ends."""

    topic: str
    partition: int
    stable_offset: int
    """The last stable offset: that of the transaction's first record."""
    end_offset: int
    """The high watermark: the exclusive end of all records."""
    is_overdue: bool = False
    """Whether it has been open for longer than brokers allow by default (`transaction.max.timeout.ms`)."""

    @property
    def offsets(self) -> str:
        return f"last stable offset {self.stable_offset}, end offset {self.end_offset}"

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}: {self.offsets}"


@dataclass(frozen=True)
class Intake:
    """The result of one run of a source."""

    batches: tuple[int, ...]
    """Ids of the batches that the run committed; empty if nothing was new."""
    files: tuple[SourceFile, ...]
    """Files that were read; empty for Kafka."""
    ranges: tuple[OffsetSpan, ...]
    records: int
    """Number of records in the batches. Kafka: without control records and records of aborted transactions."""
    skipped_files: tuple[str, ...] = ()
    """Names of files that were skipped because they contain no records."""
    lost: tuple[tuple[str, int, int, int], ...] = ()
    """Offsets that `resume_at` skipped, as (topic, partition, first, end); `end` is exclusive."""
    positions: Mapping[str, Any] = field(default_factory=dict)
    """Next offsets and topic ids as the newest note stores them (`Positions.to_note`); empty for file sources."""
    open_transactions: tuple[OpenTransaction, ...] = ()
    reads_uncommitted: bool = False
    """Whether records of aborted and open transactions are read, too."""
    notes: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Batch → what the run knows of it and its stored note lacks: `offsets`, `plain`, `zero_ids` (`inspect_values`)."""

    @property
    def batch_id(self) -> int | None:
        """Id of the run's newest batch; None if nothing was new."""
        return self.batches[-1] if self.batches else None


class PartitionLag(NamedTuple):
    """How many offsets of a partition the lake does not have. `topic`: its name on the broker; `end_offset` is exclusive."""

    topic: str
    partition: int
    end_offset: int
    lag: int


@dataclass(frozen=True)
class NewRecords:
    """Records of a source that the lake does not have yet."""

    summary: str
    """One line for tags and logs."""
    start_id: str
    """Equal if the records begin at the same offsets, so that they have waited since the first of these looks."""
    range_id: str
    """Equal if the records are the same, so that one run is enough for them."""
    records: int
    """Number of offsets, which is at least that of the records; for a source of files, of the files in the folder."""
    until: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Exclusive end offsets by topic and partition, for the run's configuration. Empty: the run reads to the current end."""
    topics: tuple[str, ...] | None = None
    """The topics with new records, by their names in the lake; None: unknown."""
    lags: tuple[PartitionLag, ...] = ()
    """Of all partitions; empty for a source of files."""


@dataclass(frozen=True)
class NoNewRecords:
    """The source has no new records."""

    reason: str
    """The reason, as the sensor's tick shows it."""
    lags: tuple[PartitionLag, ...] = ()
    """As `NewRecords.lags`."""


@dataclass(frozen=True)
class RunContext:
    """The run that ingests records."""

    run_id: str
    report: Callable[[str], None]
    """Callback that receives one progress line per call."""


class Source(Protocol):
    """One kind of source."""

    @property
    def location(self) -> str:
        """The location of the records, for messages and metadata; without secrets."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of what it reads, each a node of Dagster: topics, or one name for a pattern of topics or a folder."""
        return ("folder",)

    @property
    def kinds(self) -> frozenset[str]:
        """Dagster's `kinds` of the pipeline's assets; at most one."""
        return frozenset()

    @property
    def folder(self) -> str:
        """The folder or Hadoop URI from which Spark reads; empty if there is none."""
        return ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not appear in logs, metadata, the lake or an exception, in every encoding that may occur."""
        return ()

    def ingest(self, lake: Lake, run: RunContext, until: Mapping[str, Mapping[str, int]] | None = None) -> Intake:
        """Appends the records that the lake does not have to `raw_topic_snapshot`, in one or more batches.

        `until`: as `NewRecords.until`; sources of files ignore it. Raises SourceError if the source does not match its
        declaration, LakeError if the lake cannot be written, TransientError if the source does not respond. The lake then
        contains complete batches only.
        """

    def find_new_records(self, note: Mapping[str, Any] | None) -> NewRecords | NoNewRecords:
        """Compares the source with the newest note (`raw_batches.newest_note`), without Spark and in seconds.

        Raises as `ingest`.
        """


def digest(*parts: str) -> str:
    """A hash of 16 hexadecimal digits that identifies a sequence of texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def compare_listings(
    note: Mapping[str, Any] | None, listing: str, files: int, folder: str
) -> NewRecords | NoNewRecords:
    """`Source.find_new_records` of a folder with this digest of its listing: new unless the newest note has the digest."""
    seen = (note or {}).get("listing")
    if seen == listing:
        return NoNewRecords(f"nothing new: all {files} files of {folder!r} are ingested")
    # the number of records is unknown until the files are read
    return NewRecords(f"new among the {files} files of {folder!r}", str(seen), listing, files)
