"""Conditions whose numbers are not part of the code that Spark generates.

Spark writes numbers into the code of a query, so a query with other numbers is compiled again, by Janino and then by the
JVM, which runs it slowly at first. A literal of a struct is a reference instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column


def is_at_most(column: str, bound: int) -> Column:
    """`column <= bound` for a BIGINT column; NULL for NULL."""
    value, limit = (F.struct(item.cast("bigint").alias("value")) for item in (F.col(column), F.lit(bound)))
    return F.when(F.col(column).isNotNull(), value <= limit)
