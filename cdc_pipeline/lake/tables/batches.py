"""`batches`: one row per decoded batch, written in the last commit of its decoding."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from cdc_pipeline.lake.control_tables import newest_version, read_rows
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
    "heartbeats MAP<STRING, BIGINT>, "
    # lowest and highest `at` of the row changes, NULL without any
    "oldest_at BIGINT, newest_at BIGINT, "
    # of the batch's messages
    "dialects ARRAY<STRING>, "
    # row changes whose messages name no key
    "keyless BIGINT"
)


def recorded_notes(lake: Lake) -> dict[int, dict[str, Any]]:
    """Batch → what the table has of the note of its commit to `raw_topic_snapshot`, in the form of the note.

    `committed_ms` is the time of decoding, seconds later.
    """
    rows = read_rows(lake, "batches", columns=["batch_id", "run_id", "decoded_at", "files", "ended", "lost"])
    return {
        row["batch_id"]: {
            "run_id": row["run_id"],
            "committed_ms": int(row["decoded_at"].timestamp() * 1000),
            "files": [list(file.values()) for file in row["files"]],
            "ended": row["ended"],
            "lost": [list(stretch.values()) for stretch in row["lost"]],
        }
        for row in rows
    }


def recent_dialects(lake: Lake, first: int) -> tuple[str, ...]:
    """The dialects of the messages of the batches from `first` on, sorted."""
    rows = read_rows(lake, "batches", ("batch_id", ">=", first), columns=["dialects"])
    return tuple(sorted({dialect for row in rows for dialect in row["dialects"]}))


def has_keyless_rows(lake: Lake, since: int | None, last_batch: int) -> bool:
    """Whether a batch up to `last_batch` has row changes without a key and any at or above `since`, a TSO (None: any)."""
    rows = read_rows(
        lake, "batches", ("newest_at", ">=", since or 0), ("batch_id", "<=", last_batch), columns=["keyless"]
    )
    return any(row["keyless"] for row in rows)


def last_decoded_batch(lake: Lake) -> int:
    """The id of the newest decoded batch; 0 if none is."""
    return newest_version(lake, "batches", lake.paths.app_id("batches")) or 0


def first_decoding(lake: Lake) -> datetime:
    """When the first batch was decoded; now if none was."""
    rows = read_rows(lake, "batches", ("batch_id", "=", 1), columns=["decoded_at"])
    # Spark's times are local
    return min((row["decoded_at"].astimezone(timezone.utc) for row in rows), default=datetime.now(timezone.utc))
