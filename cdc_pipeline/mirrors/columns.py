"""ALTER TABLE on a mirror: metadata alone where Delta can, a rewrite where values change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from cdc_pipeline.mirrors.defaults import default_value
from cdc_pipeline.mirrors.rows import quoted
from cdc_pipeline.mirrors.state import TRACE, row_gaps
from cdc_pipeline.resources.delta import commit_metadata, overwrite_once, progress, session_for, table_state
from cdc_pipeline.schemas.spark_types import spark_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import Column, SparkSession

    from cdc_pipeline.mirrors.steps import ChangeColumns, ColumnOrigin
    from cdc_pipeline.resources.delta import Commit, TableState

MAPPING = "delta.columnMapping.mode"
_NOT_IN_PARQUET = frozenset(" ,;{}()\n\t=")


def needs_mapping(names: Iterable[str]) -> bool:
    """Whether Parquet cannot hold one of the names, so that files must know columns by others."""
    return any(set(name) & _NOT_IN_PARQUET for name in names)


_INTEGERS: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)


def widens(old: DataType, new: DataType) -> bool:
    """Whether Delta can read old files as the new type, so that no row is rewritten (type widening)."""
    if isinstance(old, _INTEGERS) and isinstance(new, _INTEGERS):
        return _INTEGERS.index(type(old)) < _INTEGERS.index(type(new))
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        more_scale = new.scale - old.scale
        return more_scale >= 0 and new.precision - old.precision >= more_scale and new != old
    return isinstance(old, FloatType) and isinstance(new, DoubleType)


def change_columns(
    spark: SparkSession, path: str, step: ChangeColumns, commit: Callable[[int], Commit], time_zone: str
) -> tuple[str, ...]:
    """Carries the step out at `path` in up to three commits, numbered from 0 by `commit`. Returns gaps that it leaves.

    Each commit is skipped when it is in already, so a step that was cut short goes on where it stopped.
    """
    table = table_state(spark, path)
    assert table is not None
    if needs_mapping(step.state.schema.column_names) and table.properties.get(MAPPING) != "name":
        commit_metadata(spark, path, commit(0), properties={MAPPING: "name"})
        table = table_state(spark, path)
        assert table is not None
    kept = [origin for origin in step.origins if origin.before is not None]
    rewritten = [origin for origin in kept if not _same_files(origin)]
    if rewritten:
        _rewrite(spark, path, step, commit(1))
        commit_metadata(spark, path, commit(2), properties=step.state.properties())
        return _with_defaults(spark, path, step, commit(3), time_zone)
    if any(_renamed(origin) for origin in kept) or len(kept) < len(step.before.schema.columns):
        # Files know columns by name until mapping is on; switching it on writes metadata only.
        commit_metadata(spark, path, commit(1), properties={MAPPING: "name"})
        table = table_state(spark, path)
        assert table is not None
    features = {"delta.feature.timestampNtz": "supported"} if _has_datetime(step) else {}
    if any(_widened(origin) for origin in kept):
        features["delta.enableTypeWidening"] = "true"
    commit_metadata(
        spark,
        path,
        commit(2),
        schema=_new_schema(table, step),
        properties={**step.state.properties(), **features},
    )
    return _with_defaults(spark, path, step, commit(3), time_zone)


def _same_files(origin: ColumnOrigin) -> bool:
    assert origin.before is not None
    old, new = spark_type(origin.before.type), spark_type(origin.after.type)
    return old == new or widens(old, new)


def _widened(origin: ColumnOrigin) -> bool:
    return origin.before is not None and spark_type(origin.before.type) != spark_type(origin.after.type)


def _renamed(origin: ColumnOrigin) -> bool:
    return origin.before is not None and origin.before.name != origin.after.name


def _has_datetime(step: ChangeColumns) -> bool:
    return any(origin.after.type.base == "datetime" for origin in step.origins)


def _new_schema(table: TableState, step: ChangeColumns) -> StructType:
    """The new columns in their order, each kept one with the field metadata by which its files are found."""
    # Done in part before: then the table has the new names already and `commit_metadata` skips.
    fields = {field.name: field for field in table.schema.fields}
    columns = []
    for origin in step.origins:
        target = spark_type(origin.after.type)
        field = fields.get(origin.before.name) if origin.before is not None else None
        metadata = dict(field.metadata) if field is not None else {}
        if field is not None and field.dataType != target:
            change = {"fromType": _type_name(field.dataType), "toType": _type_name(target)}
            metadata["delta.typeChanges"] = [*metadata.get("delta.typeChanges", []), change]
        columns.append(StructField(origin.after.name, target, nullable=True, metadata=metadata))
    return StructType([*columns, *(fields.get(field.name, field) for field in TRACE.fields)])


def _type_name(kind: DataType) -> str:
    return str(json.loads(kind.json()))


def _rewrite(spark: SparkSession, path: str, step: ChangeColumns, commit: Commit) -> None:
    """All rows anew under the new columns; added columns are NULL until their defaults are filled in."""
    if (progress(spark, path, commit.app_id) or 0) >= commit.version:
        return
    mirror = spark.read.format("delta").load(path)
    columns = [
        (F.lit(None).cast(spark_type(origin.after.type)) if origin.before is None else _converted(origin)).alias(
            origin.after.name
        )
        for origin in step.origins
    ]
    overwrite_once(mirror.select(*columns, *TRACE.names), path, commit)


def _converted(origin: ColumnOrigin) -> Column:
    assert origin.before is not None
    column = F.col(quoted(origin.before.name))
    old, new = spark_type(origin.before.type), spark_type(origin.after.type)
    if old == new or widens(old, new):
        return column.cast(new)
    if isinstance(new, StringType):
        return column.cast("string")
    return column.cast("string").try_cast(new)


def _with_defaults(
    spark: SparkSession, path: str, step: ChangeColumns, commit: Commit, time_zone: str
) -> tuple[str, ...]:
    """Fills added columns of the rows that are there, as MySQL does without sending a row (ticdc-facts §10)."""
    values: dict[str, str | Column] = {}
    gaps = []
    for origin in step.origins:
        if origin.before is not None:
            continue
        if origin.after.generated is not None:
            gaps.append(
                f"column {origin.after.name} of older rows is NULL: upstream computes {origin.after.expression}"
            )
            continue
        try:
            filled = default_value(origin.after, step.commit_ms, time_zone)
        except ValueError as error:
            gaps.append(f"column {origin.after.name} of older rows is NULL: {error}")
            continue
        if filled is not None:
            values[quoted(origin.after.name)] = filled
    if values:
        from delta.tables import DeltaTable

        DeltaTable.forPath(session_for(spark, commit), path).update(set=values)
    if gaps:
        table = table_state(spark, path)
        assert table is not None
        commit_metadata(spark, path, replace(commit, version=commit.version + 1), properties=row_gaps(table, *gaps))
    return tuple(gaps)
