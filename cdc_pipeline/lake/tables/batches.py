"""`batches`: one row per decoded batch, written in the last commit of its decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.lake.control_tables import newest_version

if TYPE_CHECKING:
    from cdc_pipeline.lake.lake import Lake


BATCHES_SCHEMA = (
    "batch_id BIGINT, run_id STRING, decoded_at TIMESTAMP, "
    "files ARRAY<STRUCT<path: STRING, size: BIGINT, modified_ms: BIGINT>>, "
    "offsets ARRAY<STRUCT<topic: STRING, `partition`: INT, first: BIGINT, last: BIGINT, records: BIGINT>>, "
    "records BIGINT, kinds MAP<STRING, BIGINT>, row_changes BIGINT, exact_ts BOOLEAN, "
    # topics that no longer deliver records
    "ended ARRAY<STRING>, "
    # offset ranges that were skipped because the broker no longer has them; `next`: the offset at which reading continued
    "lost ARRAY<STRUCT<topic: STRING, `partition`: INT, first: BIGINT, next: BIGINT>>, "
    # topic → time of its newest heartbeat (ms)
    "heartbeats MAP<STRING, BIGINT>"
)


def last_decoded_batch(lake: Lake) -> int:
    """The id of the newest decoded batch; 0 if none is."""
    return newest_version(lake, "batches", lake.paths.app_id("batches")) or 0
