"""How far back what comes late may reach in a stream without TSOs: by `commit_ts`, and of Canal also by its clock (`ts`,
ms), because between partitions that orders, and `es` may say otherwise.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait


def clock_ts() -> Column:
    """When the message of a row change or statement was built; null of a dialect whose clock orders nothing."""
    return F.when(has_trait(Trait.IN_LOG_ORDER), F.col("ts"))


def not_older(commit_ts: int | None, ts: int | None) -> Column:
    """Whether a row change or statement is of these times or later, by either of them; None tells nothing."""
    later = F.lit(False) if commit_ts is None else F.col("commit_ts") >= commit_ts
    return later if ts is None else later | F.coalesce(clock_ts() >= ts, F.lit(False))
