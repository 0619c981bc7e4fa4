"""Which row changes are of certain tables."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.mirrors.model.shards import SOURCE_OF_CHANGE, ShardName
from cdc_pipeline.spark.folded import folded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column

    from cdc_pipeline.mysql.model.table import TableName


def of_table(name: TableName | ShardName) -> Column:
    """Whether a row change is of the table."""
    if isinstance(name, ShardName):
        database, table = SOURCE_OF_CHANGE
        return of_table(name.mirror) & (F.col(database) == name.source.database) & (F.col(table) == name.source.table)
    return (F.col("database") == name.database) & (F.col("table") == name.table)


def of_tables(names: Iterable[TableName | ShardName]) -> Column:
    """Whether a row change is of one of the tables."""
    return folded(operator.or_, [of_table(name) for name in names], F.lit(False))
