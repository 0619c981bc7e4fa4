"""Detects messages that may have `id` 0 and no `_tidb`, by a search of their bytes.

TiCDC without the TiDB extension writes such messages, and so do other services (`dialects.senders`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column


def may_have_zero_id(value: Column) -> Column:
    """Whether a binary value contains `"id":0`, with or without a space, and not `"_tidb"`. Never null."""
    has_zero = F.contains(value, F.lit(b'"id":0')) | F.contains(value, F.lit(b'"id": 0'))
    return F.coalesce(has_zero & ~F.contains(value, F.lit(b'"_tidb"')), F.lit(False))
