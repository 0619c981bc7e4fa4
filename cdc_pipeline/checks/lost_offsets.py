"""The check `no_lost_offsets`. Lost records are in no table, so no mirror has a gap for them."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

import dagster as dg

from cdc_pipeline.lake.control_tables import read_rows

if TYPE_CHECKING:
    from cdc_pipeline.lake.lake import Lake


NO_LOST_OFFSETS = "no_lost_offsets"


def lost_offsets_result(lake: Lake, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns if offsets expired before they were read and `source.resume_at` skipped them."""
    batches = read_rows(lake, "batches", ("lost", "longer than", 0), columns=["batch_id", "lost"])
    rows = [{**lost, "batch_id": batch["batch_id"]} for batch in batches for lost in batch["lost"]]
    rows.sort(key=itemgetter("batch_id", "topic", "partition"))
    skipped = {
        f"{row['topic']}/{row['partition']}": f"{row['first']}–{row['next'] - 1}, skipped in batch {row['batch_id']}"
        for row in rows
    }
    return dg.AssetCheckResult(
        check_name=NO_LOST_OFFSETS,
        asset_key=key,
        passed=not rows,
        severity=dg.AssetCheckSeverity.WARN,
        description=None
        if not rows
        else f"{sum(row['next'] - row['first'] for row in rows)} offsets expired before they were read, the first in "
        f"{next(iter(skipped))}: {next(iter(skipped.values()))}. Only a new snapshot of the upstream tables has their "
        "changes. Set retention.ms of the topic above the longest downtime of the pipeline",
        metadata=dict(skipped),
    )
