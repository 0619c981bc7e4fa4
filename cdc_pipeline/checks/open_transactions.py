"""The check `no_open_transactions` of pipelines that read Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.checks.markdown import check_result

if TYPE_CHECKING:
    import dagster as dg

    from cdc_pipeline.sources.source import Intake

NO_OPEN_TRANSACTIONS = "no_open_transactions"
_UNCOMMITTED = (
    "source.options sets isolation.level to read_uncommitted, so the mirrors have rows of aborted and of open transactions. "
    "Remove the option; rows that are already in the lake stay"
)
_SHOWN = 200


def open_transactions_result(intake: Intake, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns if a transaction holds back a partition for too long, or if uncommitted records are read.

    The metadata has the last stable offset and the end offset of each partition that a transaction holds back.
    """
    held = intake.open_transactions
    overdue = [str(found) for found in held if found.is_overdue]
    problems = [_UNCOMMITTED] if intake.reads_uncommitted else []
    if overdue:
        problems.append(
            f"{len(overdue)} partitions are held back by a transaction that has been open for 15 minutes or more, the first "
            f"is {overdue[0]}. Records from the last stable offset on are read after the transaction ends. Check "
            "its producer; kafka-transactions.sh lists and aborts hanging transactions"
        )
    metadata = {f"{found.topic}/{found.partition}": found.offsets for found in held[:_SHOWN]}
    return check_result(NO_OPEN_TRANSACTIONS, key, problems, "", metadata)
