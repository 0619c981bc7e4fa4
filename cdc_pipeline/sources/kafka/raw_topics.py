"""Records of Kafka on their way into `raw_topic_snapshot`: one append per batch, straight from the broker, which carries the
offset at which each partition goes on."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from cdc_pipeline.errors import SourceError, TransientError, without
from cdc_pipeline.lake.delta import Commit, append_once, is_conflict, progress
from cdc_pipeline.lake.paths import first_line
from cdc_pipeline.sources.kafka.positions import Positions, by_topic
from cdc_pipeline.sources.raw_batches import newest_note, newest_note_by_spark, raw_app_id
from cdc_pipeline.sources.records import RECORD
from cdc_pipeline.spark.few_rows import for_rows
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.sources.kafka.client_settings import ClientSettings
    from cdc_pipeline.sources.kafka.reading_plan import Stretch
    from cdc_pipeline.sources.source import RunContext

_REFUSED = re.compile(r"Authentication|Authorization|ConfigException")
"""Java's exceptions that no repetition cures."""


@dataclass(frozen=True)
class RawTopics:
    """`raw_topic_snapshot` as records of Kafka come into it. `ended` are topics of the lake that get nothing more."""

    spark: SparkSession
    paths: LakePaths
    client: ClientSettings
    run: RunContext
    ended: frozenset[str]

    @property
    def _path(self) -> str:
        return self.paths.table("raw_topic_snapshot")

    def positions(self, *, exists: bool) -> Positions | None:
        """How far the lake is: what the newest note says, else what the records themselves say; None for an empty lake."""
        note = newest_note(self.paths) or newest_note_by_spark(self.spark, self.paths)
        found = Positions.of_note(note)
        if found is not None or not exists:
            return found
        # records that came from files, or so long ago that Delta's log has no note of theirs any more
        raw = self.spark.read.format("delta").load(self._path)
        ends = raw.groupBy("topic", "partition").agg(F.max("offset").alias("last"))
        return Positions({(row["topic"], row["partition"]): row["last"] + 1 for row in ends.collect()})

    def append(
        self, number: int, batch: tuple[Stretch, ...], positions: Positions, lost: tuple[tuple[str, int, int, int], ...]
    ) -> None:
        """One batch, with what it makes of the positions, in one commit."""
        note = {"batch": number, **self._note(positions, lost)}
        frame = self._records(batch).select(F.lit(number).cast("bigint").alias("batch_id"), *RECORD.names)
        most = sum(stretch.end - stretch.first for stretch in batch)
        try:
            with for_rows(self.spark, most):
                append_once(frame, self._path, Commit(raw_app_id(self.paths), number, note))
        except (PySparkException, Py4JJavaError) as error:
            told = _chain(error)
            if is_conflict(error) or not any("kafka" in text.lower() for text in told):
                raise  # it is the lake that could not be written
            raise self._failure(told, batch) from None

    def keep(self, positions: Positions) -> None:
        """The positions alone, where they are news without a record: a start at the end must not move on with the end."""
        app_id = f"cdc:{self.paths.pipeline}:positions"
        number = (progress(self.spark, self._path, app_id) or 0) + 1
        nothing = small_frame(self.spark, [], RECORD).select(F.lit(0).cast("bigint").alias("batch_id"), "*")
        append_once(nothing, self._path, Commit(app_id, number, self._note(positions, ())))

    def _note(self, positions: Positions, lost: tuple[tuple[str, int, int, int], ...]) -> dict[str, Any]:
        return {"run_id": self.run.run_id, **positions.as_note(), "ended": sorted(self.ended), "lost": lost}

    def _records(self, batch: tuple[Stretch, ...]) -> DataFrame:
        """The records of the stretches, as `RECORD`; topics by their names in the lake."""
        if not batch:
            return small_frame(self.spark, [], RECORD)
        first = {(stretch.source, stretch.partition): stretch.first for stretch in batch}
        end = {(stretch.source, stretch.partition): stretch.end for stretch in batch}
        assigned = {topic: sorted(map(int, found)) for topic, found in by_topic(first).items()}
        frame = (
            self.spark.read.format("kafka")
            .options(**{f"kafka.{name}": value for name, value in self.client.java().items()})
            .option("assign", json.dumps(assigned))
            .option("startingOffsets", json.dumps(by_topic(first)))
            .option("endingOffsets", json.dumps(by_topic(end)))
            .option("includeHeaders", "true")
            .option("failOnDataLoss", "true")
            .option("minPartitions", str(self.spark.sparkContext.defaultParallelism))
            .load()
        )
        names = {stretch.source: stretch.topic for stretch in batch if stretch.source != stretch.topic}
        topic = F.col("topic")
        for source, name in names.items():
            topic = F.when(F.col("topic") == source, F.lit(name)).otherwise(topic)
        return frame.withColumn("topic", topic).select(
            *(F.col(column.name).cast(column.dataType).alias(column.name) for column in RECORD)
        )

    def _failure(self, told: list[str], batch: tuple[Stretch, ...]) -> SourceError | TransientError:
        """A read that broke off. The next try asks the broker what it has now, and says so where records are gone."""
        said = without(told[-1], self.client.secrets)
        places = ", ".join(f"{s.source}/{s.partition} {s.first} to {s.end - 1}" for s in batch[:3])
        more = f" and {len(batch) - 3} more" if len(batch) > 3 else ""
        kind = SourceError if any(_REFUSED.search(text) for text in told) else TransientError
        return kind(
            f"{places}{more} could not be read from the Kafka broker {self.client.bootstrap_servers}: {said}. "
            "Nothing of this batch was taken in"
        )


def _chain(error: BaseException) -> list[str]:
    """The first line of each of Java's causes, the innermost last: Spark's own exception says only that a job failed."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    found = []
    while java is not None:
        found.append((str(java.toString()).strip().splitlines() or [""])[0])
        java = java.getCause()
    return found or [first_line(error)]
