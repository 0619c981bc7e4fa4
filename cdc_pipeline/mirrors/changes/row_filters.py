"""Filters on row changes by table."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.mirrors.model.source_tables import SOURCE_OF_CHANGE, SourceTableName
from cdc_pipeline.spark.jvm import balanced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column

    from cdc_pipeline.mysql.model.table import TableName


def is_in_table(name: TableName | SourceTableName) -> Column:
    """Whether a row change is of the table."""
    if isinstance(name, SourceTableName):
        database, table = SOURCE_OF_CHANGE
        return (
            is_in_table(name.mirror) & (F.col(database) == name.source.database) & (F.col(table) == name.source.table)
        )
    return (F.col("database") == name.database) & (F.col("table") == name.table)


def is_in_tables(names: Iterable[TableName | SourceTableName]) -> Column:
    """Whether a row change is of one of the tables."""
    return balanced(operator.or_, [is_in_table(name) for name in names], F.lit(False))
