"""Few rows: DataFrames of driver rows, such as plans, notes and offsets, and settings for queries that read few rows.

`SparkSession.createDataFrame` of a list starts Python workers at each evaluation, which costs a tenth of a CPU-second or
more. Rows given as an Arrow table become a local relation: without workers or a job, and of a size that Spark knows. Never
used for row data of tables.

For a thousand rows, generating and compiling code and planning again after each stage is most of a query's cost.
Interpreted and planned once, the query takes two thirds of the CPU.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from cdc_pipeline.spark.jvm import has_started

MAX_SMALL_ROWS = 10_000
"""Maximum rows that a driver handles, and of a small query unless the session sets `SMALL_QUERY_ROWS`."""
SMALL_QUERY_ROWS = "spark.cdc_pipeline.smallQueryRows"
"""Setting of the session: the maximum rows of a small query."""
_ZONE: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
"""Spark 4.2 asks for the zone of times; before, it is UTC."""
_SMALL_QUERY_SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


def small_frame(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: StructType | str) -> DataFrame:
    """The rows as a DataFrame, in their order. `schema`: a type or its DDL text.

    Structs are tuples in the order of their fields, or Rows; maps are dicts; times have a time zone. Raises ValueError or
    TypeError (of pyarrow) if a value does not have its column's type.
    """
    types = struct_of(schema) if isinstance(schema, str) else schema
    return spark.createDataFrame(small_table(rows, types), types)


def small_table(rows: Iterable[Sequence[Any]], schema: StructType | str) -> pa.Table:
    """The rows as an Arrow table. Parameters and errors as of `small_frame`."""
    types = struct_of(schema) if isinstance(schema, str) else schema
    return pa.Table.from_pylist([_to_arrow(row, types) for row in rows], schema=to_arrow_schema(types, **_ZONE))


@functools.lru_cache(maxsize=128)
def struct_of(schema: str) -> StructType:
    """The struct type of a DDL text."""
    parsed = StructType.fromDDL(schema)
    assert isinstance(parsed, StructType)
    return parsed


def _to_arrow(value: Any, type_: DataType) -> Any:
    """The value as pyarrow expects it: structs as dicts, maps as lists of pairs."""
    if value is None:
        return None
    if isinstance(type_, StructType):
        if len(value) != len(type_.fields):
            raise ValueError(f"{len(value)} values, but {len(type_.fields)} columns: {', '.join(type_.names)}")
        return {field.name: _to_arrow(part, field.dataType) for field, part in zip(type_.fields, value, strict=True)}
    if isinstance(type_, ArrayType):
        return [_to_arrow(part, type_.elementType) for part in value]
    if isinstance(type_, MapType):
        return [(_to_arrow(key, type_.keyType), _to_arrow(part, type_.valueType)) for key, part in value.items()]
    return value


def totals(frame: DataFrame, *columns: Column) -> Row:
    """The one row of these aggregates over all rows."""
    (row,) = frame.agg(*columns).collect()
    return row


def is_small(rows: int) -> bool:
    return rows <= MAX_SMALL_ROWS


@contextlib.contextmanager
def small_query(spark: SparkSession, rows: int) -> Iterator[None]:
    """Within the context, runs the session's queries with the settings for small queries if `rows` is small."""
    # the settings alone are no reason to start it
    if not has_started(spark) or rows > int(str(spark.conf.get(SMALL_QUERY_ROWS, str(MAX_SMALL_ROWS)))):
        yield
        return
    previous = {name: spark.conf.get(name) for name in _SMALL_QUERY_SETTINGS}
    set_for_small_queries(spark)
    try:
        yield
    finally:
        for name, value in previous.items():
            spark.conf.set(name, str(value))


def set_for_small_queries(spark: SparkSession) -> None:
    """Sets the session for small queries, for the rest of its life."""
    for name, value in _SMALL_QUERY_SETTINGS.items():
        spark.conf.set(name, value)
