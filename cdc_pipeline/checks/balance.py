"""Nothing is lost, nothing is invented: records in = what they became, for every batch (DESIGN §2, promise 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.dialects.change_tables import DecodedBatch

BALANCE = "balance"


def balance_result(batches: Sequence[DecodedBatch], key: dg.AssetKey) -> dg.AssetCheckResult:
    """Fails, and stops what comes after, where a batch's records and what became of them differ in number."""
    wrong = [batch for batch in batches if not batch.counts.balanced]
    sums = {
        f"batch {batch.batch_id}": f"{batch.counts.records} records = "
        + " + ".join(f"{count} {kind}" for kind, count in batch.counts.by_kind.items())
        for batch in batches
    }
    return dg.AssetCheckResult(
        check_name=BALANCE,
        asset_key=key,
        passed=not wrong,
        description=None if not wrong else f"batches {[batch.batch_id for batch in wrong]} do not balance",
        metadata={**sums},
    )
