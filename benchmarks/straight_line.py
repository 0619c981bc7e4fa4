"""The straight line: the obvious Spark job from a topic to a mirror, as a yardstick for the pipeline.

Its steps, per batch, as a data engineer writes them in an afternoon:

1. raw: read the offsets from Kafka, and append the records to a Delta table.
2. decode: read the batch, parse each message with `from_json`, and append one row per changed row to a change log, with
   `before` and `after` as maps.
3. mirror: read the batch from the change log, keep the newest change of each key, cast its values, and MERGE it.

It has the writer settings of the pipeline's session, and a mirror with deletion vectors. It does not read table
definitions (the columns and the key are in the code), wait for watermarks or make cuts, keep messages that it cannot parse,
notice redeliveries or changes of a key, check its counts, or resume after a failure: a batch that is repeated is appended
twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.broker_batches import Stage, StageClock, costs_text
from benchmarks.output import log

_MESSAGE = (
    "database string, table string, type string, es bigint, ts bigint, pkNames array<string>, "
    "data array<map<string,string>>, old array<map<string,string>>, _tidb struct<commitTs bigint>"
)
_COLUMNS = {"id": "bigint", "owner": "string", "balance": "decimal(12,2)", "updated_at": "timestamp_ntz"}
_POSITION = {"_commit_ts": "bigint", "_topic": "string", "_partition": "int", "_offset": "bigint"}
_RECORD = ("batch_id", "topic", "partition", "offset", "timestamp")
_CHANGE = ("database", "table", "op", "commit_ts", "es", "ts", "key_names")


@dataclass(frozen=True)
class StraightLine:
    """The tables `raw`, `change_log` and `mirror` in `folder`, of a topic with one partition and one table."""

    spark: SparkSession
    bootstrap: str
    topic: str
    folder: Path

    def create(self) -> None:
        """Creates the empty mirror."""
        columns = ", ".join(f"{name} {kind}" for name, kind in {**_COLUMNS, **_POSITION}.items())
        empty = self.spark.createDataFrame([], columns)
        empty.write.format("delta").option("delta.enableDeletionVectors", "true").save(self._path("mirror"))

    def run_batch(self, number: int, first: int, end: int) -> tuple[Stage, ...]:
        """Runs the steps for the records from offset `first` up to `end`, exclusive."""
        clock = StageClock()
        with clock.stage("raw"):
            self._append("raw", self._records(number, first, end))
        with clock.stage("decode"):
            self._append("change_log", changes_of(self._batch("raw", number)))
        with clock.stage("mirror"):
            self._merge(newest_of(self._batch("change_log", number)))
        log(f"• straight line: {end - first:,} records in {costs_text(clock.stages)}")
        return tuple(clock.stages)

    def _path(self, table: str) -> str:
        return str(self.folder / table)

    def _append(self, table: str, rows: DataFrame) -> None:
        rows.write.format("delta").mode("append").save(self._path(table))

    def _batch(self, table: str, number: int) -> DataFrame:
        return self.spark.read.format("delta").load(self._path(table)).where(F.col("batch_id") == number)

    def _records(self, number: int, first: int, end: int) -> DataFrame:
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": json.dumps({self.topic: {"0": first}}),
            "endingOffsets": json.dumps({self.topic: {"0": end}}),
            # both cores read the one partition
            "minPartitions": "2",
        }
        records = self.spark.read.format("kafka").options(**options).load()
        return records.withColumn("batch_id", F.lit(number)).select(*_RECORD, "key", "value")

    def _merge(self, newest: DataFrame) -> None:
        columns = {name: f"s.{name}" for name in (*_COLUMNS, *_POSITION)}
        merge = DeltaTable.forPath(self.spark, self._path("mirror")).alias("t").merge(newest.alias("s"), "t.id = s.id")
        merge = merge.whenMatchedDelete("s.deleted").whenMatchedUpdate(set=dict(columns))
        merge.whenNotMatchedInsert("NOT s.deleted", values=dict(columns)).execute()


def changes_of(records: DataFrame) -> DataFrame:
    """One row of the change log per row of each message."""
    parsed = records.withColumn("m", F.from_json(F.col("value").cast("string"), _MESSAGE))
    messages = parsed.where("m.type IN ('INSERT', 'UPDATE', 'DELETE')").selectExpr(
        *_RECORD,
        *("m.database", "m.table", "m.type AS op", "m._tidb.commitTs AS commit_ts", "m.es", "m.ts"),
        *("m.pkNames AS key_names", "m.data", "m.old"),
    )
    rows = messages.selectExpr(*_RECORD, *_CHANGE, "posexplode(data) AS (row, image)", "old")
    return rows.selectExpr(
        *_RECORD,
        *_CHANGE,
        "row",
        "CASE op WHEN 'DELETE' THEN image WHEN 'UPDATE' THEN old[row] END AS before",
        "CASE WHEN op <> 'DELETE' THEN image END AS after",
    )


def newest_of(changes: DataFrame) -> DataFrame:
    """The newest change of each key as a row of the mirror, and whether it is a DELETE (`deleted`)."""
    keyed = changes.selectExpr("transform(key_names, name -> coalesce(after, before)[name]) AS key", "*")
    # a key that is deleted and inserted in one transaction exists
    order = F.expr(
        "struct(commit_ts, CASE op WHEN 'DELETE' THEN 0 WHEN 'UPDATE' THEN 1 ELSE 2 END, topic, partition, offset, row)"
    )
    last = F.max_by(F.struct("op", "commit_ts", "topic", "partition", "offset", "after"), order).alias("last")
    return (
        keyed.groupBy("database", "table", "key")
        .agg(last)
        .selectExpr(
            "CAST(key[0] AS bigint) AS id",
            *(f"CAST(last.after['{name}'] AS {kind}) AS {name}" for name, kind in _COLUMNS.items() if name != "id"),
            *(f"last.{name.removeprefix('_')} AS {name}" for name in _POSITION),
            "last.op = 'DELETE' AS deleted",
        )
    )
