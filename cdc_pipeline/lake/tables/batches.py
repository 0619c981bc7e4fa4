"""`batches`: one row for each batch that is decoded, the last commit of its decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.lake.delta import progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths

BATCHES_SCHEMA = (
    "batch_id BIGINT, run_id STRING, decoded_at TIMESTAMP, "
    "files ARRAY<STRUCT<path: STRING, size: BIGINT, modified_ms: BIGINT>>, "
    "offsets ARRAY<STRUCT<topic: STRING, `partition`: INT, first: BIGINT, last: BIGINT, records: BIGINT>>, "
    "records BIGINT, kinds MAP<STRING, BIGINT>, row_changes BIGINT, exact_ts BOOLEAN, "
    # topics from which nothing comes any more, and offsets that were given up (`next` is where it goes on)
    "ended ARRAY<STRING>, "
    "lost ARRAY<STRUCT<topic: STRING, `partition`: INT, first: BIGINT, next: BIGINT>>, "
    # topic → the time of its newest heartbeat, in ms
    "heartbeats MAP<STRING, BIGINT>"
)


def last_decoded(spark: SparkSession, paths: LakePaths) -> int:
    """The newest batch that is decoded; 0 before there is one."""
    return progress(spark, paths.table("batches"), paths.writer("batches")) or 0
