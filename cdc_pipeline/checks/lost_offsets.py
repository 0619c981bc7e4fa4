"""The check `no_lost_offsets`. Lost records are in no table, so no mirror has a gap for them."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from cdc_pipeline.checks.markdown import check_result
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.positions import offsets_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import dagster as dg

    from cdc_pipeline.lake.lake import Lake


NO_LOST_OFFSETS = "no_lost_offsets"


def lost_offsets_result(lake: Lake, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns if records expired, or their topic was deleted, before they were read."""
    batches = read_rows(lake, "batches", ("lost", "longer than", 0), columns=["batch_id", "lost"])
    rows = [{**lost, "batch_id": batch["batch_id"]} for batch in batches for lost in batch["lost"]]
    rows.sort(key=itemgetter("batch_id", "topic", "partition"))
    skipped = {
        f"{row['topic']}/{row['partition']}": f"{offsets_text(row['first'], row['next'])}, skipped in batch "
        f"{row['batch_id']}"
        for row in rows
    }
    return check_result(
        NO_LOST_OFFSETS,
        key,
        [f"{_loss(rows)}, the first in {where}: {offsets}" for where, offsets in [*skipped.items()][:1]],
        "Only a new snapshot of the upstream tables has their changes. Set retention.ms of the topic above the longest "
        "downtime of the pipeline",
        skipped,
    )


def _loss(rows: Sequence[Mapping[str, int]]) -> str:
    expired = sum(row["next"] - row["first"] for row in rows)
    return (
        f"{expired} offsets expired before they were read"
        if expired
        else "a topic was deleted that may have had more records"
    )
