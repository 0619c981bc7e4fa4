"""Filters on row changes by table."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.spark.folded import balanced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column

    from cdc_pipeline.mysql.model.table import TableName


def is_in_table(name: TableName) -> Column:
    """Whether a row change is of the table."""
    return (F.col("database") == name.database) & (F.col("table") == name.table)


def is_in_tables(names: Iterable[TableName]) -> Column:
    """Whether a row change is of one of the tables."""
    return balanced(operator.or_, [is_in_table(name) for name in names], F.lit(False))
