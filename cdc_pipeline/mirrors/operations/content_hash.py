"""Whether two tables have the same rows, whatever their order and their files."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from cdc_pipeline.mysql.model.quoted_names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MOST = "DECIMAL(38,0)"


def content_hash(frame: DataFrame, without: frozenset[str] = frozenset()) -> str:
    """A text that is equal for frames of the same columns, types and multiset of rows: the number of rows, and the sum
    of a 64-bit hash of each. `without` names columns that are not looked at. Order of columns matters, of rows it does
    not; a map is its sorted entries."""
    fields = [field for field in frame.schema.fields if field.name not in without]
    cells = [cell for field in fields for cell in _cells(F.col(quoted(field.name)), field.dataType)]
    row = F.xxhash64(*cells) if cells else F.lit(0)
    found = frame.agg(F.count("*").alias("rows"), F.sum(row.cast(_MOST)).alias("sum")).first()
    assert found is not None
    shape = "|".join(f"{field.name}:{field.dataType.simpleString()}" for field in fields)
    return f"{found['rows']}:{hashlib.sha256(shape.encode()).hexdigest()[:16]}:{found['sum'] or 0}"


def _cells(cell: Column, kind: DataType) -> list[Column]:
    """What to hash of a cell: a hash passes over NULLs, so that each has a mark."""
    if _has_map(kind):
        # JSON keeps NULLs of arrays and maps apart from what is absent
        return [cell.isNull(), F.to_json(_without_maps(cell, kind), {"ignoreNullFields": "false"})]
    return [cell.isNull(), cell]


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    return isinstance(kind, MapType)


def _without_maps(cell: Column, kind: DataType) -> Column:
    """The cell as JSON can order it. Maps deeper than the cell itself are left to JSON, in their own order."""
    wrapped = F.array_sort(F.map_entries(cell)) if isinstance(kind, MapType) else cell
    return F.struct(wrapped.alias("v"))
