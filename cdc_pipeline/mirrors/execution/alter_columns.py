"""ALTER TABLE on a mirror: a metadata commit where Delta can read the old files, else a rewrite of all rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from pyspark.sql import Column
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
from cdc_pipeline.lake.delta import TableState, commit_metadata, is_committed, table_state
from cdc_pipeline.lake.writes import overwrite_once
from cdc_pipeline.mirrors.execution.backfill import backfill_columns, columns_to_generate
from cdc_pipeline.mirrors.merge.computed_values import (
    columns_to_recompute,
    computed_fields,
    drops_computed,
    recompute_columns,
)
from cdc_pipeline.mirrors.merge.masked_values import with_masks
from cdc_pipeline.mirrors.merge.soft_deletes import deleted_cell, live_rows
from cdc_pipeline.mirrors.merge.step_context import StepContext, found_in
from cdc_pipeline.mirrors.model.computed_columns import NTZ
from cdc_pipeline.mirrors.model.masks import HASH, Mask
from cdc_pipeline.mirrors.model.state import row_gaps_after_alter
from cdc_pipeline.mirrors.model.steps import ChangeColumns
from cdc_pipeline.mysql.expressions.conversions import adds_labels, conversion_doubt, converted_value
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import ColumnOrigin, TableSchema, names_after
from cdc_pipeline.mysql.types.spark_types import parse_value, spark_type

MAPPING = "delta.columnMapping.mode"
NTZ_FEATURE = {"delta.feature.timestampNtz": "supported"}
"""The property that a table needs before it can have a TIMESTAMP_NTZ column."""
_BEFORE_ROWS, _ROWS, _METADATA = 0, 1, 2
"""Parts of the step (`StepCommits`). The parts of `backfill_columns` follow."""
_NOT_IN_PARQUET = frozenset(" ,;{}()\n\t=")


def needs_mapping(names: Iterable[str]) -> bool:
    """Whether Parquet cannot store one of the column names, so that the table needs column mapping."""
    return any(set(name) & _NOT_IN_PARQUET for name in names)


def missing_features(table: TableState, *, mapped: bool, ntz: bool) -> dict[str, str]:
    """The properties that the table lacks for column mapping and for its first TIMESTAMP_NTZ.

    They need a metadata commit of their own: files store column names until mapping is on, and an overwrite enables
    no feature.
    """
    missing = {MAPPING: "name"} if mapped and table.properties.get(MAPPING) != "name" else {}
    return missing | NTZ_FEATURE if ntz and NTZ not in table.schema.simpleString() else missing


_INTEGERS: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)


def widens(old: DataType, new: DataType) -> bool:
    """Whether Delta type widening covers the change, so that no row is rewritten."""
    if isinstance(old, _INTEGERS) and isinstance(new, _INTEGERS):
        return _INTEGERS.index(type(old)) < _INTEGERS.index(type(new))
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        more_scale = new.scale - old.scale
        return more_scale >= 0 and new.precision - old.precision >= more_scale and new != old
    return isinstance(old, FloatType) and isinstance(new, DoubleType)


def change_columns(context: StepContext, step: ChangeColumns) -> None:
    """Runs the step in a few commits: rewrite, metadata, backfill, computed columns.

    A resumed run skips the commits that the table already contains.
    """
    spark, path, commits = context.spark, context.path, context.commits
    kept = [origin for origin in step.origins if origin.before is not None]
    has_datetime = _has_datetime(step)
    features = dict(NTZ_FEATURE) if has_datetime else {}
    rewritten = {origin.after.name for origin in kept if _needs_rewrite(origin, step, context.time_zone)}
    changed = rewritten | columns_to_generate(step, rewritten)
    computed = columns_to_recompute(step, lambda origin: origin.after.name in changed)
    mapped = needs_mapping(step.state.spark_schema().names) or (not rewritten and _loses_names(step, kept))
    table = table_state(spark, path)
    if table is not None and (first := missing_features(table, mapped=mapped, ntz=bool(rewritten) and has_datetime)):
        commit_metadata(spark, path, commits(_BEFORE_ROWS), properties=first)
        table = table_state(spark, path)
    assert table is not None
    if rewritten:
        _rewrite_rows(context, step, {column.name for column in computed})
        schema = None
    else:
        schema = _new_schema(table, step)
        types = [(origin.before, origin.after) for origin in kept]
        if any(old is not None and step.before.column_type(old) != step.state.column_type(new) for old, new in types):
            features["delta.enableTypeWidening"] = "true"
    row_gaps = row_gaps_after_alter(table, names_after(step.before.schema, step.origins))
    properties = {**step.state.properties(), **features, **row_gaps}
    commit_metadata(spark, path, commits(_METADATA), schema=schema, properties=properties)
    backfill_columns(context, step, rewritten)
    if computed:
        recompute_columns(spark, path, step.state, computed, commits(commits.last - 1))


def _loses_names(step: ChangeColumns, kept: Sequence[ColumnOrigin]) -> bool:
    """Whether a column of the files has no column of the same name after the step."""
    own = {field.name for field in step.state.own_fields}
    drops = len(kept) < len(step.before.schema.columns) or not {field.name for field in step.before.own_fields} <= own
    is_renamed = any(origin.before is not None and origin.before.name != origin.after.name for origin in kept)
    return drops or is_renamed or drops_computed(step)


def _needs_rewrite(origin: ColumnOrigin, step: ChangeColumns, time_zone: str) -> bool:
    """Whether a kept column gets other values, or a type that cannot read its files. Masked values do not change."""
    assert origin.before is not None
    before, after = _masks(origin, step)
    if before is None and after is None:
        return conversion(origin, step.before.schema, time_zone) is not None
    return before != after or (after != HASH and not _reads_old_files(origin))


def _masks(origin: ColumnOrigin, step: ChangeColumns) -> tuple[Mask | None, Mask | None]:
    """The column's mask before and after the step."""
    before = None if origin.before is None else dict(step.before.masks).get(origin.before.name)
    return before, dict(step.state.masks).get(origin.after.name)


def _reads_old_files(origin: ColumnOrigin) -> bool:
    assert origin.before is not None
    old, new = spark_type(origin.before.type), spark_type(origin.after.type)
    return old == new or widens(old, new)


def _has_datetime(step: ChangeColumns) -> bool:
    computed = any(NTZ in column.type for column in step.state.computed_shown)
    return computed or any(origin.after.type.base == "datetime" for origin in step.origins)


def _new_schema(table: TableState, step: ChangeColumns) -> StructType:
    """The new columns in order. A kept column keeps the field metadata by which Delta finds it in the files."""
    # after an interrupted run the table may have the new names already: then `commit_metadata` skips
    fields = {field.name: field for field in table.schema.fields}
    columns = []
    for origin in step.origins:
        target = step.state.column_type(origin.after)
        field = fields.get(origin.before.name) if origin.before is not None else None
        metadata = dict(field.metadata) if field is not None else {}
        if field is not None and field.dataType != target:
            change = {"fromType": field.dataType.jsonValue(), "toType": target.jsonValue()}
            metadata["delta.typeChanges"] = [*metadata.get("delta.typeChanges", []), change]
        columns.append(StructField(origin.after.name, target, nullable=True, metadata=metadata))
    for old, new in _kept_names(step):
        if (field := fields.get(old)) is not None:
            columns.append(StructField(new, field.dataType, nullable=True, metadata=dict(field.metadata)))
    had = computed_fields(step.before)
    for computed, field in zip(step.state.computed_shown, step.state.computed_fields, strict=True):
        columns.append(fields.get(field.name, field) if (computed.name, computed.type) in had else field)
    # a field of this name that was not ours before was upstream's: ours is a new column
    before = {field.name for field in step.before.own_fields}
    own = [fields.get(field.name, field) if field.name in before else field for field in step.state.own_fields]
    return StructType([*columns, *own])


def _kept_names(step: ChangeColumns) -> list[tuple[str, str]]:
    """The columns that upstream dropped and the mirror keeps: (name before the step, name after it)."""
    return [*((name, name) for name in step.before.kept_columns), *step.kept_columns]


def _rewrite_rows(context: StepContext, step: ChangeColumns, recomputed: Set[str]) -> None:
    """Overwrites all rows under the new columns. Added columns are NULL until the backfill, and the computed columns in
    `recomputed` until they are computed: the columns they read may be masked now."""
    commit = context.commits(_ROWS)
    if is_committed(context.spark, context.path, commit):
        return
    mirror = context.mirror()
    columns, doubts, masked = [], {}, {}
    for origin in step.origins:
        before, after = _masks(origin, step)
        kind = step.state.column_type(origin.after)
        if origin.before is None or (before is not None and before != HASH):
            columns.append(F.lit(None).cast(kind).alias(origin.after.name))
            continue
        if before is not None:
            columns.append(F.col(quoted(origin.before.name)).alias(origin.after.name))
            continue
        old, value_type = F.col(quoted(origin.before.name)), spark_type(origin.after.type)
        new = old.cast(value_type)
        if (converted := conversion(origin, step.before.schema, context.time_zone)) is not None:
            new, doubts[origin.after.name] = converted
        columns.append(new.alias(origin.after.name))
        if after is not None:
            masked[origin.after.name] = (value_type, after)
    kept = [F.col(quoted(old)).alias(new) for old, new in _kept_names(step)]
    computed = [
        F.lit(None).cast(field.dataType).alias(field.name) if field.name in recomputed else F.col(quoted(field.name))
        for field in step.state.computed_fields
    ]
    deleted = [deleted_cell(keeps_deleted=step.before.has_soft_delete)] if step.state.has_soft_delete else []
    found = found_in(live_rows(mirror, keeps_deleted=step.before.has_soft_delete), doubts)
    types = {origin.after.name: origin.after.type for origin in step.origins}
    details = {
        name: f"{n} value(s) may differ from upstream after the conversion to {types[name]}" for name, n in found
    }
    gaps = [Gap(GapKind.NO_EXACT_EQUIVALENT, detail, name) for name, detail in details.items()]
    rows = with_masks(mirror.select(*columns, *kept, *computed, *step.state.metadata, *deleted), masked, context.salt)
    context.add_gaps(gaps, context.commits.for_gaps(_ROWS))
    overwrite_once(rows, context.path, commit)


def conversion(origin: ColumnOrigin, schema: TableSchema, time_zone: str) -> tuple[Column, Column] | None:
    """The value of a kept column after the change, and a boolean that is true if the value may differ from upstream's. None
    if the value is the same, in a type that can read the old files.

    `schema`: the table's definition before the change.
    """
    before, after = origin.before, origin.after
    assert before is not None
    old, doubtful = F.col(quoted(before.name)), F.lit(False)
    unsure = conversion_doubt(before.type, after.type) is not None
    if adds_labels(before.type, after.type):
        new = parse_value(old, after.type, time_zone)
    elif unsure and (expression := converted_value(before, after, schema, time_zone)) is not None:
        new = F.expr(expression.sql)
        if expression.doubtful is not None:
            doubtful = F.coalesce(F.expr(expression.doubtful), doubtful)
    elif _reads_old_files(origin):
        return None
    else:
        text, kind = old.cast("string"), spark_type(after.type)
        new = text if isinstance(kind, StringType) else text.try_cast(kind)
    return new, (old.isNotNull() & new.isNull()) | doubtful
