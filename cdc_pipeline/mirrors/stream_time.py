"""How far back what comes late may reach in a stream without TSOs: by `commit_ts`, and of Canal also by its clock (`ts`,
ms), because between partitions that orders, and `es` may say otherwise.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_pipeline.dialects.canal import CANAL


def canal_ts() -> Column:
    """When Canal built the message of a row change or statement; null of another dialect."""
    return F.when(F.col("dialect") == CANAL.name, F.col("ts"))


def not_older(commit_ts: int | None, ts: int | None) -> Column:
    """Whether a row change or statement is of these times or later, by either of them; None tells nothing."""
    later = F.lit(False) if commit_ts is None else F.col("commit_ts") >= commit_ts
    return later if ts is None else later | F.coalesce(canal_ts() >= ts, F.lit(False))
