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
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.merge.default_values import default_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column as SparkColumn

    from cdc_pipeline.mysql.model.table import TableSchema
    from cdc_pipeline.mysql.types.typed_cells import Wires


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
