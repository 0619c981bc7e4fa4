"""Rows whose image lacks columns: absent is not NULL.

An UPDATE without a column leaves it as it is (binlog_row_image NOBLOB, MINIMAL). A Canal INSERT without a column means
the column's default, because MINIMAL logs what the statement gave (canal-facts 16). In all other cases the value is not
known: the mirror has NULL there, and is marked.

A row of TiCDC that was too large for a message comes with its handle key only (ticdc-facts §7): absent is unknown. What was
known of the row stays as it was, and the mirror is marked, unless the same change came whole as well, or a later one of
the same cut says what the row is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait, trait_of
from cdc_pipeline.mirrors.changes.defaults import default_value
from cdc_pipeline.schemas.model.gaps import Gap, GapKind
from cdc_pipeline.schemas.mysql_expressions.expressions import ExpressionError, assigned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column as SparkColumn

    from cdc_pipeline.mirrors.changes.row_groups import RowGroup
    from cdc_pipeline.mirrors.changes.typed_cells import Wires
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.schemas.model.table import Column, TableSchema


def partial_columns(schema: TableSchema, key: Sequence[str], groups: Sequence[RowGroup]) -> list[Column]:
    """Columns of the table that some of the rows lack: the merge keeps them where the row is only changed. `key` is what
    identifies a row of the mirror."""
    if not key:
        return []  # a row without a key is known by all of its columns
    return [column for column in _not_brought(schema, groups) if column.generated != "virtual"]


def unknown_columns(state: MirrorState, key: Sequence[str], groups: Sequence[RowGroup]) -> list[Column]:
    """Columns of the table whose values some rows leave unknown. Rows with their handle key only are told of when they are
    merged: then it is known whether others say more of them."""
    if not key:
        return _not_brought(state.schema, groups)
    inserts = [group for group in groups if group.inserts and not group.only_key]
    told = [group for group in inserts if trait_of(group.dialect, Trait.ABSENT_IS_DEFAULT) and not state.inferred]
    untold = [group for group in inserts if group not in told]
    virtual = [column for column in _not_brought(state.schema, groups) if column.generated == "virtual"]
    others = [column for column in _not_brought(state.schema, told) if not column.has_constant_default]
    missing = {*virtual, *others, *_not_brought(state.schema, untold)}
    return [column for column in state.schema.columns if column in missing]


def computed_columns(schema: TableSchema, unknown: Sequence[Column], time_zone: str) -> tuple[Column, ...]:
    """Those of the unknown columns that upstream generates of others by a formula which has its equal here."""
    return tuple(column for column in unknown if _is_computable(column, schema, time_zone))


def _is_computable(column: Column, schema: TableSchema, time_zone: str) -> bool:
    if column.expression is None:
        return False
    try:
        assigned(column.expression, column, schema, time_zone)
    except ExpressionError:
        return False
    return True


def absent_defaults(
    schema: TableSchema, lacking: Sequence[str], time_zone: str, wires: Wires
) -> tuple[dict[str, SparkColumn | None], tuple[Gap, ...]]:
    """What each of these columns is in a row that a Canal INSERT brought without it, and gaps for those not known.

    `wires` tells of which dialects the rows are.
    """
    found: dict[str, SparkColumn | None] = dict.fromkeys(lacking)
    gaps: list[Gap] = []
    if not any(trait_of(dialect, Trait.ABSENT_IS_DEFAULT) for dialect, _ in wires):
        return found, ()
    for name in lacking:
        column = schema.find(name)
        assert column is not None
        try:
            found[name] = default_value(column, 0, time_zone, schema) if column.has_constant_default else None
        except ValueError as error:
            gaps.append(Gap(GapKind.ABSENT_DEFAULT, f"of rows that came without it is NULL: {error}", name))
    return found, tuple(gaps)


def with_default(cell: SparkColumn, name: str, default: SparkColumn | None) -> SparkColumn:
    """The column's cell, with its default where a Canal INSERT came without it. Over `whole`, `dialect` and `after`."""
    if default is None:
        return cell
    absent = F.col("whole") & has_trait(Trait.ABSENT_IS_DEFAULT) & ~F.map_contains_key("after", F.lit(name))
    return F.when(F.coalesce(absent, F.lit(False)), default).otherwise(cell)


def _not_brought(schema: TableSchema, groups: Sequence[RowGroup]) -> list[Column]:
    brought = [{name.casefold() for name in group.columns} for group in groups if group.images]
    return [column for column in schema.columns if any(column.name.casefold() not in names for names in brought)]
