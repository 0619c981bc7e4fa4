"""Changes the rows of one source table in a merged mirror, as ALTER TABLE or RENAME changes them without a message."""

from __future__ import annotations

from delta.tables import DeltaTable
from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.delta import commit_session, is_committed
from cdc_pipeline.mirrors.execution.alter_columns import conversion
from cdc_pipeline.mirrors.merge.default_values import default_value
from cdc_pipeline.mirrors.merge.step_context import StepContext, found_in
from cdc_pipeline.mirrors.model.masks import NULL, Mask
from cdc_pipeline.mirrors.model.source_tables import SOURCE_NAMES, source_rows
from cdc_pipeline.mirrors.model.steps import ChangeSourceRows
from cdc_pipeline.mysql.ddl.tokens import words_in
from cdc_pipeline.mysql.expressions.translation import Now
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import Column as UpstreamColumn
from cdc_pipeline.mysql.model.table import ColumnOrigin

_ROWS = 1


def change_source_rows(context: StepContext, step: ChangeSourceRows) -> None:
    """Updates the rows of the source table in one commit, skipped if the mirror already contains it."""
    commit = context.commits(_ROWS)
    if is_committed(context.spark, context.path, commit):
        return
    mirror = context.mirror()
    types = {field.name: field.dataType for field in mirror.schema}
    gaps: list[Gap] = []
    values: dict[str, Column] = {_own(step, name).name: F.lit(None) for name in step.cleared}
    doubts: dict[str, Column] = {}
    for origin in step.origins:
        name = _own(step, origin.after.name).name
        values[name], doubtful = _value(step, origin, context.time_zone, gaps)
        if doubtful is not None:
            doubts[name] = doubtful
    if step.renamed is not None:
        values |= dict(zip(SOURCE_NAMES, map(F.lit, (step.renamed.database, step.renamed.table)), strict=True))
    rows = source_rows(step.source_table).sql
    gaps += [
        Gap(GapKind.NO_EXACT_EQUIVALENT, f"{count} older row(s) of {step.source_table} may differ from upstream", name)
        for name, count in found_in(mirror.where(rows), doubts)
    ]
    context.add_gaps(gaps, context.commits.for_gaps(_ROWS))
    update: dict[str, str | Column] = {quoted(name): value.cast(types[name]) for name, value in values.items()}
    DeltaTable.forPath(commit_session(context.spark, commit), context.path).update(condition=rows, set=update)


def _own(step: ChangeSourceRows, name: str) -> UpstreamColumn:
    """The mirror's column of that name."""
    found = step.state.schema.find(name)
    assert found is not None
    return found


def _value(
    step: ChangeSourceRows, origin: ColumnOrigin, time_zone: str, gaps: list[Gap]
) -> tuple[Column, Column | None]:
    """The column's value, and a boolean that is true if it may differ from upstream's.

    NULL, with a gap, if the value is unknown.
    """
    masks, after = dict(step.state.masks), origin.after
    mask = masks.get(_own(step, after.name).name)
    try:
        if origin.before is None:
            return (F.lit(None), None) if mask == NULL else _default(step, after, mask, time_zone)
        before = _own(step, origin.before.name)
        if masks.get(before.name) != mask:
            raise ValueError(f"{before.name} has another mask")
    except ValueError as error:
        detail = f"is NULL in older rows of {step.source_table}: {error}"
        gaps.append(Gap(GapKind.NULL_IN_OLDER_ROWS, detail, after.name))
        return F.lit(None), None
    converted = None if mask else conversion(ColumnOrigin(after, before), step.state.schema, time_zone)
    return (F.col(quoted(before.name)), None) if converted is None else converted


def _default(
    step: ChangeSourceRows, column: UpstreamColumn, mask: Mask | None, time_zone: str
) -> tuple[Column, Column | None]:
    if mask is not None:
        raise ValueError("its default is masked")
    default = column.default
    if default is not None and default.kind == "expression":
        changed = {name.casefold() for name in (*(origin.after.name for origin in step.origins), *step.cleared)}
        read = (changed - {column.name.casefold()}) & words_in(default.value or "")
        if read:
            raise ValueError(f"its default reads {', '.join(sorted(read))}, which the statement changes too")
    now = Now(step.commit_ms, step.is_start)
    # alone: the TIMESTAMP of another source table is not the first one of this table
    alone = step.state.schema.with_columns((column,))
    value, doubtful = default_value(column, alone, time_zone, now, step.state.shown_schema)
    return F.lit(None) if value is None else value, doubtful
