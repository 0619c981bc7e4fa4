"""Rows whose image lacks columns: an absent column is not NULL.

An UPDATE without a column leaves it unchanged (binlog_row_image NOBLOB, MINIMAL). A Canal INSERT without a column means
the column's default, because MINIMAL logs only what the statement set (canal-facts 16). In other cases, such as an UPDATE
that moves the row to another key, the value is unknown: the mirror stores NULL and gets a gap.

A TiCDC row that is too large for a message is sent with its handle key only (ticdc-facts §7). The mirror keeps the earlier
values of its absent columns and gets a gap, unless a copy of the change or a later change of the cut has all columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait, has_trait
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.merge.default_values import default_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column as SparkColumn

    from cdc_pipeline.mysql.model.table import TableSchema
    from cdc_pipeline.mysql.types.wire_values import Encodings


def absent_defaults(
    schema: TableSchema, lacking: Sequence[str], time_zone: str, wires: Encodings
) -> tuple[dict[str, SparkColumn | None], tuple[Gap, ...]]:
    """The default of each absent column (None: unknown or NULL), and gaps for unknown ones.

    `wires` are the dialects of the rows. Without one whose INSERTs omit defaults, all are None.
    """
    defaults: dict[str, SparkColumn | None] = dict.fromkeys(lacking)
    gaps: list[Gap] = []
    if not any(dialect_has_trait(dialect, Trait.ABSENT_IS_DEFAULT) for dialect, _ in wires):
        return defaults, ()
    for name in lacking:
        column = schema.find(name)
        assert column is not None
        try:
            defaults[name] = default_value(column, schema, time_zone)[0] if column.has_constant_default else None
        except ValueError as error:
            gaps.append(Gap(GapKind.ABSENT_DEFAULT, f"of rows that came without it is NULL: {error}", name))
    return defaults, tuple(gaps)


def with_default(cell: SparkColumn, name: str, default: SparkColumn | None) -> SparkColumn:
    """The column's cell, or its default in a Canal INSERT without the column. Uses columns of `net_changes`."""
    if default is None:
        return cell
    is_inserted = F.col("replaces_row") & ~F.col("moved")
    absent = is_inserted & has_trait(Trait.ABSENT_IS_DEFAULT) & ~F.map_contains_key("after", F.lit(name))
    return F.when(F.coalesce(absent, F.lit(False)), default).otherwise(cell)
