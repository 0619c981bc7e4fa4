"""What a pipeline can ask of its source, whatever it is: take in what is new, and, without Spark, whether there is any.

A source is a frozen value: what the pipeline's file says of it. How far it was read is in the lake alone, in the notes of
`raw_topic_snapshot`'s commits (`sources.raw_batches`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.sources.intake import OffsetRange


@dataclass(frozen=True, order=True)
class CaptureFile:
    """A file of a capture folder, identified by what tells whether it changed since it was last read."""

    path: str
    size: int
    modified_ms: int

    @property
    def name(self) -> str:
        return Path(self.path).name


@dataclass(frozen=True)
class Intake:
    """What a run took in. `batches` are the numbers of its batches, none where nothing was new; `passed_over` are files that
    hold no records; `lost` are stretches of offsets that the pipeline's file gave up, as (topic, partition, from, to);
    `positions` is what the newest note says of how far the source was read."""

    batches: tuple[int, ...]
    files: tuple[CaptureFile, ...]
    ranges: tuple[OffsetRange, ...]
    passed_over: tuple[str, ...] = ()
    lost: tuple[tuple[str, int, int, int], ...] = ()
    positions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def batch_id(self) -> int | None:
        """The newest batch of the run."""
        return self.batches[-1] if self.batches else None

    @property
    def records(self) -> int:
        return sum(span.records for span in self.ranges)


@dataclass(frozen=True)
class News:
    """What a source has that the lake does not. `range_id` is equal for equal news, `start_id` for news that begin at the
    same place; `until` is what the run's configuration says of it, so that the run takes in just this. A source that cannot
    tell how many records there are says how many files."""

    summary: str
    start_id: str
    range_id: str
    records: int
    until: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class NoNews:
    """Why there is nothing to do, in words for the one who looks at the sensor's ticks."""

    reason: str


@dataclass(frozen=True)
class RunContext:
    """The run that takes records in. `report` is told of progress, a line at a time."""

    run_id: str
    report: Callable[[str], None]


class Source(Protocol):
    """One kind of source."""

    @property
    def place(self) -> str:
        """Where the records come from, for logs and metadata; without secrets."""

    @property
    def kinds(self) -> frozenset[str]:
        """What Dagster shows of it on every node of the pipeline: at most one name, as its kinds have it."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must appear nowhere: not in logs, metadata, the lake or an exception."""

    def take_in(
        self,
        spark: SparkSession,
        paths: LakePaths,
        run: RunContext,
        until: Mapping[str, Mapping[str, int]] | None = None,
    ) -> Intake:
        """Takes in the records that the lake does not have, in one batch or more. `until`: no further than `News.until`.

        Raises SourceError where the source is not what it is declared to be, LakeError where the lake cannot be written,
        TransientError where the source does not answer; in each case the lake has whole batches only.
        """

    def news(self, note: Mapping[str, Any] | None) -> News | NoNews:
        """Whether there is anything new beside what the newest note (`raw_batches.newest_note`) says was read; without
        Spark, in seconds. Raises as `take_in`."""


def digest(*parts: str) -> str:
    """A short name for a sequence of texts: equal for equal ones."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
