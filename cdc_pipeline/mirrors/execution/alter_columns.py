"""ALTER TABLE on a mirror: metadata alone where Delta can, a rewrite where values change."""

from __future__ import annotations

import json
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

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.delta import commit_metadata, is_in, overwrite_once, table_state
from cdc_pipeline.mirrors.execution.backfill import fill_columns
from cdc_pipeline.mirrors.merge.computed_values import computed_anew, keeps_field, loses_derived, update_derived
from cdc_pipeline.mirrors.merge.masked_values import with_masks
from cdc_pipeline.mirrors.merge.soft_deletes import deleted_cell, live_rows
from cdc_pipeline.mirrors.model.computed_columns import NTZ
from cdc_pipeline.mirrors.model.masks import HASH
from cdc_pipeline.mirrors.model.state import row_gaps_carried
from cdc_pipeline.mysql.expressions.conversions import converted, learns_labels, unsure_conversion
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.types.spark_types import spark_type, value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from cdc_pipeline.lake.delta import Commit, TableState
    from cdc_pipeline.mirrors.model.computed_columns import DerivedColumn
    from cdc_pipeline.mirrors.model.masks import Mask
    from cdc_pipeline.mirrors.model.step_commits import StepCommits
    from cdc_pipeline.mirrors.model.steps import ChangeColumns
    from cdc_pipeline.mysql.model.table import ColumnOrigin, TableSchema

MAPPING = "delta.columnMapping.mode"
_BEFORE_ROWS, _REWRITTEN, _METADATA = 0, 1, 2
"""The parts of the step; those of `fill_columns` come after them."""
NTZ_FEATURE = {"delta.feature.timestampNtz": "supported"}
"""The property without which a table cannot have a TIMESTAMP_NTZ."""
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
    spark: SparkSession,
    path: str,
    step: ChangeColumns,
    commits: StepCommits,
    time_zone: str,
    salt: str,
    note_gaps: Callable[[Sequence[Gap], Commit], None],
) -> None:
    """Carries the step out at `path` in a few commits. What each leaves unsure is noted as gaps first.

    Each commit is skipped when it is in already, so a step that was cut short goes on where it stopped. `salt` is that of
    masked values.
    """
    table = table_state(spark, path)
    assert table is not None
    kept = [origin for origin in step.origins if origin.before is not None]
    features = dict(NTZ_FEATURE) if _has_datetime(step) else {}
    rewritten = any(_is_changed(origin, step, time_zone) for origin in kept)
    mapped = needs_mapping(step.state.spark_schema().names) or (not rewritten and _loses_names(step, kept))
    # Files know columns by name until mapping is on, and an overwrite switches no feature on: metadata alone, before it.
    first = {MAPPING: "name"} if mapped and table.properties.get(MAPPING) != "name" else {}
    if rewritten and NTZ not in table.schema.simpleString():
        first |= features
    if first:
        commit_metadata(spark, path, commits(_BEFORE_ROWS), properties=first)
        table = table_state(spark, path)
        assert table is not None
    if rewritten:
        _rewritten(spark, path, step, commits, time_zone, salt, note_gaps)
        schema = None
    else:
        schema = _new_schema(table, step)
        if any(_widened(origin, step) for origin in kept):
            features["delta.enableTypeWidening"] = "true"
    healed = row_gaps_carried(table, _names_now(step, kept), dict(step.state.masks))
    properties = {**step.state.properties(), **features, **healed}
    commit_metadata(spark, path, commits(_METADATA), schema=schema, properties=properties)
    fill_columns(spark, path, step, commits, time_zone, salt, note_gaps)
    if anew := _derived_anew(step, time_zone):
        update_derived(spark, path, step.state, anew, commits(commits.last - 1))


def _loses_names(step: ChangeColumns, kept: Sequence[ColumnOrigin]) -> bool:
    """Whether a column of the files is not there any more under its name."""
    own = {field.name for field in step.state.own_fields}
    fewer = len(kept) < len(step.before.schema.columns) or any(
        field.name not in own for field in step.before.own_fields
    )
    return fewer or any(_renamed(origin) for origin in kept) or loses_derived(step)


def _names_now(step: ChangeColumns, kept: Sequence[ColumnOrigin]) -> dict[str, str | None]:
    """The new name of each column, None of one that is gone."""
    now = {origin.before.name: origin.after.name for origin in kept if origin.before is not None}
    return {column.name: now.get(column.name) for column in step.before.schema.columns}


def is_rewritten(origin: ColumnOrigin, schema: TableSchema, time_zone: str) -> bool:
    """Whether the values of a kept column become others, or of a type that its files cannot be read as. `schema` is the
    table's before."""
    before, after = origin.before, origin.after
    assert before is not None
    if not _same_files(origin) or learns_labels(before.type, after.type):
        return True
    return (
        unsure_conversion(before.type, after.type) is not None
        and converted(before, after, schema, time_zone) is not None
    )


def _is_changed(origin: ColumnOrigin, step: ChangeColumns, time_zone: str) -> bool:
    """`is_rewritten` in a mirror that does not show all of its values: what is masked stays as it is."""
    assert origin.before is not None
    before, after = _masks(origin, step)
    if before is None and after is None:
        return is_rewritten(origin, step.before.schema, time_zone)
    return before != after or (after != HASH and not _same_files(origin))


def _masks(origin: ColumnOrigin, step: ChangeColumns) -> tuple[Mask | None, Mask | None]:
    """How the column was masked before the step, and how it is after it."""
    before = None if origin.before is None else dict(step.before.masks).get(origin.before.name)
    return before, dict(step.state.masks).get(origin.after.name)


def _same_files(origin: ColumnOrigin) -> bool:
    assert origin.before is not None
    old, new = spark_type(origin.before.type), spark_type(origin.after.type)
    return old == new or widens(old, new)


def _widened(origin: ColumnOrigin, step: ChangeColumns) -> bool:
    return origin.before is not None and step.before.column_type(origin.before) != step.state.column_type(origin.after)


def _renamed(origin: ColumnOrigin) -> bool:
    return origin.before is not None and origin.before.name != origin.after.name


def _derived_anew(step: ChangeColumns, time_zone: str) -> list[DerivedColumn]:
    return computed_anew(step, lambda origin: _is_changed(origin, step, time_zone))


def _has_datetime(step: ChangeColumns) -> bool:
    derived = any(NTZ in column.type for column in step.state.derived_shown)
    return derived or any(origin.after.type.base == "datetime" for origin in step.origins)


def _new_schema(table: TableState, step: ChangeColumns) -> StructType:
    """The new columns in their order, each kept one with the field metadata by which its files are found."""
    # Done in part before: then the table has the new names already and `commit_metadata` skips.
    fields = {field.name: field for field in table.schema.fields}
    columns = []
    for origin in step.origins:
        target = step.state.column_type(origin.after)
        field = fields.get(origin.before.name) if origin.before is not None else None
        metadata = dict(field.metadata) if field is not None else {}
        if field is not None and field.dataType != target:
            change = {"fromType": _type_name(field.dataType), "toType": _type_name(target)}
            metadata["delta.typeChanges"] = [*metadata.get("delta.typeChanges", []), change]
        columns.append(StructField(origin.after.name, target, nullable=True, metadata=metadata))
    for old, new in kept_names(step):
        if (field := fields.get(old)) is not None:
            columns.append(StructField(new, field.dataType, nullable=True, metadata=dict(field.metadata)))
    for derived, field in zip(step.state.derived_shown, step.state.derived_fields, strict=True):
        columns.append(fields.get(field.name, field) if keeps_field(step, derived) else field)
    # upstream may have its own column of the name from now on
    before = {field.name for field in step.before.own_fields}
    own = [fields.get(field.name, field) if field.name in before else field for field in step.state.own_fields]
    return StructType([*columns, *own])


def kept_names(step: ChangeColumns) -> list[tuple[str, str]]:
    """The columns that stand beside upstream's: the name of each before the step and after it."""
    return [*((name, name) for name in step.before.kept), *step.kept]


def _type_name(kind: DataType) -> str:
    return str(json.loads(kind.json()))


def _rewritten(
    spark: SparkSession,
    path: str,
    step: ChangeColumns,
    commits: StepCommits,
    time_zone: str,
    salt: str,
    note_gaps: Callable[[Sequence[Gap], Commit], None],
) -> None:
    """All rows anew under the new columns; added columns are NULL until they are filled. The gaps of values that have no
    equal in the new type are noted first."""
    commit = commits(_REWRITTEN)
    if is_in(spark, path, commit):
        return
    mirror = spark.read.format("delta").load(path)
    columns, failed, masked = [], [], {}
    for origin in step.origins:
        before, after = _masks(origin, step)
        kind = step.state.column_type(origin.after)
        if origin.before is None or (before is not None and before != HASH):
            columns.append(F.lit(None).cast(kind).alias(origin.after.name))
            continue
        if before is not None:
            columns.append(F.col(quoted(origin.before.name)).alias(origin.after.name))
            continue
        new, doubtful = new_value(origin, step.before.schema, time_zone)
        columns.append(new.alias(origin.after.name))
        if after is not None:
            masked[origin.after.name] = (spark_type(origin.after.type), after)
        if is_rewritten(origin, step.before.schema, time_zone):
            old = F.col(quoted(origin.before.name))
            failed.append((origin, old.isNotNull() & (new.isNull() | doubtful), old))
    beside = [F.col(quoted(old)).alias(new) for old, new in kept_names(step)]
    # NULL until they are computed anew: what they were computed of may be masked now
    anew = {column.name for column in _derived_anew(step, time_zone)}
    derived = [
        F.lit(None).cast(field.dataType).alias(field.name) if field.name in anew else F.col(quoted(field.name))
        for field in step.state.derived_fields
    ]
    deleted = [deleted_cell(keeps_deleted=step.before.keeps_deleted)] if step.state.keeps_deleted else []
    gaps = _failed_values(live_rows(mirror, keeps_deleted=step.before.keeps_deleted), failed, masked)
    rows = with_masks(mirror.select(*columns, *beside, *derived, *step.state.trace, *deleted), masked, salt)
    note_gaps(gaps, commits.finding(_REWRITTEN))
    overwrite_once(rows, path, commit)


def _failed_values(
    mirror: DataFrame, failed: list[tuple[ColumnOrigin, Column, Column]], masked: Collection[str]
) -> list[Gap]:
    """What is said of values that the new type has no equal for: how many, and some of them where they may be shown."""
    if not failed:
        return []
    counts = [F.count(F.when(fails, 1)).alias(f"n{place}") for place, (_, fails, _) in enumerate(failed)]
    some = [
        F.slice(F.collect_set(F.when(fails, F.left(old.cast("string"), F.lit(40)))), 1, 3).alias(f"v{place}")
        for place, (_, fails, old) in enumerate(failed)
    ]
    found = mirror.agg(*counts, *some).first()
    assert found is not None
    gaps = []
    for place, (origin, _, _) in enumerate(failed):
        if found[f"n{place}"]:
            words = f"{found[f'n{place}']} value(s) have no sure equal as {origin.after.type}"
            some_of = ", ".join(map(repr, found[f"v{place}"]))
            clear = "" if origin.after.name in masked else f"{words}, such as {some_of}"
            gaps.append(Gap(GapKind.NO_SURE_EQUAL, words, origin.after.name, clear))
    return gaps


def new_value(origin: ColumnOrigin, schema: TableSchema, time_zone: str) -> tuple[Column, Column]:
    """The value of a kept column after the change, and whether it is not sure. `schema` is the table's before."""
    before, after = origin.before, origin.after
    assert before is not None
    column, sure = F.col(quoted(before.name)), F.lit(False)
    if learns_labels(before.type, after.type):
        return value(column, after.type, time_zone), sure
    new = spark_type(after.type)
    if unsure_conversion(before.type, after.type) is not None:
        found = converted(before, after, schema, time_zone)
        if found is not None:
            doubtful = sure if found.doubtful is None else F.coalesce(F.expr(found.doubtful), sure)
            return F.expr(found.sql), doubtful
    if _same_files(origin):
        return column.cast(new), sure
    return (column.cast("string") if isinstance(new, StringType) else column.cast("string").try_cast(new)), sure
