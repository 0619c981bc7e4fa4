"""A hash of a table's rows, whatever their order and their files."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from cdc_pipeline.mysql.model.quoted_names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SUM = "DECIMAL(38,0)"


def content_hash(frame: DataFrame, without: frozenset[str] = frozenset()) -> str:
    """`rows:schema:sum`: the row count, a hash of column names and types, and the sum of a 64-bit hash of each row.

    Equal for two frames with the same columns in the same order, apart from those of `without`, and the same multiset of
    rows. The order of rows and of map entries does not matter.
    """
    fields = [field for field in frame.schema.fields if field.name not in without]
    cells = [cell for field in fields for cell in _cells(F.col(quoted(field.name)), field.dataType)]
    row = F.xxhash64(*cells) if cells else F.lit(0)
    totals = frame.agg(F.count("*").alias("rows"), F.sum(row.cast(_SUM)).alias("sum")).first()
    assert totals is not None
    schema = "|".join(f"{field.name}:{field.dataType.simpleString()}" for field in fields)
    return f"{totals['rows']}:{hashlib.sha256(schema.encode()).hexdigest()[:16]}:{totals['sum'] or 0}"


def _cells(cell: Column, kind: DataType) -> list[Column]:
    """The values to hash for a cell. A flag marks NULL, which xxhash64 skips."""
    if _has_map(kind):
        # with this option JSON distinguishes a NULL in an array or map from an absent value
        return [cell.isNull(), F.to_json(_without_maps(cell, kind), {"ignoreNullFields": "false"})]
    return [cell.isNull(), cell]


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    return isinstance(kind, MapType)


def _without_maps(cell: Column, kind: DataType) -> Column:
    """The cell in a struct for `to_json`, a map as its sorted entries. Nested maps keep their own order."""
    value = F.array_sort(F.map_entries(cell)) if isinstance(kind, MapType) else cell
    return F.struct(value.alias("v"))
