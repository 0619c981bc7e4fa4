"""A few rows of the driver as a DataFrame: plans, notes and places, never row data of tables.

`SparkSession.createDataFrame` of a list starts Python workers to read the rows back, each time it is evaluated, which
costs a tenth of a CPU-second and more. Rows that come as Arrow are a local relation: no worker, no job, and Spark knows
how few they are.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession


def small_frame(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: StructType | str) -> DataFrame:
    """The rows, each a value per column of `schema` (a type, or its DDL text), in their order.

    Structs may be tuples in the order of their fields, or Rows; maps are dicts; times carry their time zone. Raises
    pyarrow's ArrowInvalid or ArrowTypeError, both ValueError or TypeError, where a value is not of its column's type.
    """
    types = struct_of(schema) if isinstance(schema, str) else schema
    named = [_plain(row, types) for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(named, schema=to_arrow_schema(types)), types)


@functools.lru_cache(maxsize=128)
def struct_of(schema: str) -> StructType:
    """The type of rows that Spark's DDL text describes."""
    parsed = StructType.fromDDL(schema)
    assert isinstance(parsed, StructType)
    return parsed


def _plain(value: Any, type_: DataType) -> Any:
    """The value as pyarrow takes it: structs by field name, since tuples in order are no structs to it."""
    if value is None:
        return None
    if isinstance(type_, StructType):
        if len(value) != len(type_.fields):
            raise ValueError(f"{len(value)} values, but {len(type_.fields)} columns: {', '.join(type_.names)}")
        return {field.name: _plain(part, field.dataType) for field, part in zip(type_.fields, value, strict=True)}
    if isinstance(type_, ArrayType):
        return [_plain(part, type_.elementType) for part in value]
    if isinstance(type_, MapType):
        return [(_plain(key, type_.keyType), _plain(part, type_.valueType)) for key, part in value.items()]
    return value
