"""Appends Kafka records to `raw_topic_snapshot`: one commit per batch, whose note has the next offset of each partition."""

from __future__ import annotations

import functools
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.errors import SourceError, TransientError, redact
from cdc_pipeline.lake.delta import Commit, committed_version, is_conflict, own_rows
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import first_line
from cdc_pipeline.lake.writes import append_once
from cdc_pipeline.sources.intake import observe_values, value_note
from cdc_pipeline.sources.kafka.client_settings import ClientSettings
from cdc_pipeline.sources.kafka.positions import Positions, by_topic
from cdc_pipeline.sources.kafka.reading_plan import PlannedRange
from cdc_pipeline.sources.raw_batches import append_batch, notes_newest_first
from cdc_pipeline.sources.records import HEADERS, NEW_COLUMNS, RECORD, timestamp_columns
from cdc_pipeline.sources.source import RunContext
from cdc_pipeline.spark.jvm import finished_metrics, java_causes
from cdc_pipeline.spark.small_frames import is_small, small_frame, small_query

if TYPE_CHECKING:  # it needs an extra
    from cdc_pipeline.sources.kafka.broker import Broker

_PLAIN = "topic STRING, `partition` INT, `offset` BIGINT, ms BIGINT, key BINARY, value BINARY"
_GROUP_PREFIX = "spark-kafka-relation"
"""Spark's own prefix, to which brokers may grant rights."""
_NO_IDS = frozenset({"", "AAAAAAAAAAAAAAAAAAAAAA"})
"""Ids of topics on a broker that has none."""
_OVERFLOW = "java.lang.ArithmeticException: long overflow"
"""Spark's Kafka source converts ms to microseconds, and so fails at a timestamp after the year 294247."""
MOST_BY_CLIENT = 250
"""Maximum offsets of a batch that the broker's client reads, because Spark cannot."""
_REFUSED = re.compile(r"Authentication|Authorization|ConfigException")
"""Names of Java exceptions for which a retry cannot succeed."""


class TimestampOverflowError(Exception):
    """A batch has a timestamp that Spark cannot read. Nothing was written."""


@dataclass(frozen=True)
class AppendedBatch:
    records: int
    """Number of records, at most that of the batch's offsets: offsets can have gaps."""
    note: Mapping[str, Any]
    """`Intake.notes` of the batch."""


@dataclass(frozen=True)
class RawTopics:
    """The writer of `raw_topic_snapshot` for one run."""

    lake: Lake
    client: ClientSettings
    run: RunContext
    ended: frozenset[str]
    """`Selection.ended_in_lake`, stored in each note."""

    @property
    def _path(self) -> str:
        return self.lake.paths.table("raw_topic_snapshot")

    def positions(self, *, exists: bool) -> Positions | None:
        """The lake's positions: of the newest note, else from the stored records. None for an empty lake.

        `exists`: whether `raw_topic_snapshot` exists.
        """
        found = Positions.from_note(next(notes_newest_first(self.lake), None))
        if found is not None or not exists:
            return found
        # the records come from another source, or Delta has removed the commits with their notes
        ends = self.lake.read_path(self._path).select("topic", "partition", F.col("offset").alias("last"))
        if (batches := self.lake.read_if_exists("batches")) is not None:  # also of removed records
            spans = batches.select(F.explode("offsets").alias("span"))
            ends = ends.unionByName(spans.select("span.topic", "span.partition", "span.last"))
        ends = ends.groupBy("topic", "partition").agg(F.max("last").alias("last"))
        return Positions({(row["topic"], row["partition"]): row["last"] + 1 for row in ends.collect()})

    def append(
        self,
        number: int,
        batch: tuple[PlannedRange, ...],
        positions: Positions,
        lost: tuple[tuple[str, int, int, int], ...],
        broker: Broker | None = None,
    ) -> AppendedBatch:
        """Appends a batch and its note in one commit.

        `positions`: after the batch. `broker`: reads the records in place of Spark. Raises SourceError if the broker refuses
        the client, TransientError for another failure of Kafka, or if another run has written the batch (a lake without a
        lock), TimestampOverflowError; errors of the lake pass unchanged.
        """
        topic_ids = frozenset(positions.topic_ids.items())
        records = self.records(batch, topic_ids) if broker is None else self._records_by_client(batch, broker)
        frame, observation = observe_values(records)
        try:
            # interpreted, the few expressions of a record cost less than code that has the number of the batch
            with small_query(self.lake.spark, sum(planned.offsets for planned in batch) // 5):
                commit = append_batch(self.lake, frame, number, self._note(positions, lost))
        except (PySparkException, Py4JJavaError) as error:
            causes = _causes(error)
            if causes[-1] == _OVERFLOW:
                raise TimestampOverflowError from error
            # without paths, which may contain the word
            if is_conflict(error) or not any("kafka" in re.sub(r"\S*/\S*", "", text).lower() for text in causes):
                raise  # the lake could not be written
            _group.cache_clear()  # the next attempt opens new connections
            raise self._failure(causes, batch) from None
        count = own_rows(self.lake.spark, self._path, commit)
        if count is None:
            raise TransientError(
                f"another run has read batch {number} at the same time: this one continues after it when it is repeated",
                pipeline=self.lake.paths.pipeline,
            )
        # without gaps, the batch has each offset of its plan
        is_complete = count == sum(planned.offsets for planned in batch)
        return AppendedBatch(count, _inspected(batch, finished_metrics(observation)) if batch and is_complete else {})

    def commit_positions(self, positions: Positions) -> None:
        """Commits positions without records, so that a partition that starts at `latest` does not move with its end."""
        app_id = f"cdc:{self.lake.paths.pipeline}:positions"
        number = (committed_version(self.lake.spark, self._path, app_id) or 0) + 1
        empty = small_frame(self.lake.spark, [], RECORD).select(F.lit(0).cast("bigint").alias("batch_id"), "*")
        append_once(empty, self._path, Commit(app_id, number, self._note(positions, ())), **NEW_COLUMNS)

    def _note(self, positions: Positions, lost: tuple[tuple[str, int, int, int], ...]) -> dict[str, Any]:
        return {"run_id": self.run.run_id, **positions.to_note(), "ended": sorted(self.ended), "lost": lost}

    def records(self, batch: tuple[PlannedRange, ...], topic_ids: frozenset[tuple[str, str]]) -> DataFrame:
        """The records of the batch as `RECORD`, with the topics' names in the lake."""
        if not batch:
            return small_frame(self.lake.spark, [], RECORD)
        first = {(planned.source, planned.partition): planned.first for planned in batch}
        end = {(planned.source, planned.partition): planned.end for planned in batch}
        assigned = {topic: sorted(map(int, found)) for topic, found in by_topic(first).items()}
        parallelism = self.lake.spark.sparkContext.defaultParallelism
        settings = self.client.java()
        named = topic_ids and all(topic_id not in _NO_IDS for _, topic_id in topic_ids)
        group = {"group.id": _group(frozenset(settings.items()), topic_ids)} if named else {}
        client = {**group, **settings}
        frame = (
            self.lake.spark.read.format("kafka")
            .options(**{f"kafka.{name}": value for name, value in client.items()})
            .option("assign", json.dumps(assigned))
            .option("startingOffsets", json.dumps(by_topic(first)))
            .option("endingOffsets", json.dumps(by_topic(end)))
            .option("includeHeaders", "true")
            .option("failOnDataLoss", "true")
            .option("minPartitions", str(parallelism))
            .load()
            # each task costs some milliseconds and writes a file
            .coalesce(parallelism if is_small(sum(planned.offsets for planned in batch)) else 4 * parallelism)
        )
        names = {planned.source: planned.topic for planned in batch if planned.source != planned.topic}
        topic = F.col("topic")
        for source, name in names.items():
            topic = F.when(F.col("topic") == source, F.lit(name)).otherwise(topic)
        columns = {name: F.col(name) for name in frame.columns} | timestamp_columns(F.unix_millis("timestamp"))
        columns["topic"] = topic
        return frame.select(*(columns[column.name].cast(column.dataType).alias(column.name) for column in RECORD))

    def _records_by_client(self, batch: tuple[PlannedRange, ...], broker: Broker) -> DataFrame:
        """`records`, by the broker's client. For few."""
        rows = [
            (p.topic, p.partition, read.offset(), read.timestamp()[1], read.key(), read.value(), read.headers() or None)
            for p in batch
            for read in broker.read(p.source, p.partition, p.first, p.end)
        ]
        read = small_frame(self.lake.spark, rows, f"{_PLAIN}, headers {HEADERS.simpleString()}")
        return read.withColumns(timestamp_columns(F.col("ms"))).select(*RECORD.names)

    def _failure(self, causes: list[str], batch: tuple[PlannedRange, ...]) -> SourceError | TransientError:
        """The error for a failed read of Kafka. If records have expired, the retry's reading plan reports it."""
        cause = redact(causes[-1], self.client.secrets)
        offsets = ", ".join(f"{p.source}/{p.partition} {p.first} to {p.end - 1}" for p in batch[:3])
        more = f" and {len(batch) - 3} more" if len(batch) > 3 else ""
        kind = SourceError if any(_REFUSED.search(text) for text in causes) else TransientError
        return kind(
            f"{offsets}{more} could not be read from the Kafka broker {self.client.bootstrap_servers}: {cause}. "
            "Nothing of this batch was ingested"
        )


@functools.lru_cache(maxsize=16)
def _group(_settings: frozenset[tuple[str, str]], _topic_ids: frozenset[tuple[str, str]]) -> str:
    """The consumer group of this process for these settings and topics.

    Spark keeps a group's consumers for the next batch; by default each query has a group of its own, and connects a consumer
    per partition (30 ms). It also keeps records that they fetched ahead, so a recreated topic needs another group. Topics
    of a broker without topic ids have one for each query (`RawTopics.records`).
    """
    return f"{_GROUP_PREFIX}-{uuid.uuid4()}"


def _inspected(batch: tuple[PlannedRange, ...], found: Mapping[str, Any] | None) -> dict[str, Any]:
    """The note of a batch without gaps; empty if the metrics did not arrive."""
    if found is None:
        return {}
    offsets = [(p.topic, p.partition, p.first, p.end - 1, p.offsets) for p in batch if p.offsets]
    return {"offsets": sorted(offsets), **value_note(found)}


def _causes(error: BaseException) -> list[str]:
    """The first line of each Java exception in the chain of causes, innermost last.

    The outermost is Spark's, which says only that a job failed.
    """
    lines = [(str(java.toString()).strip().splitlines() or [""])[0] for java in java_causes(error)]
    return lines or [first_line(error)]
