"""Values of rows that come after a MODIFY which they precede: texts with more digits than their column has now.

What MySQL made of them then is what it makes of any value that it assigns: they are rounded, half away from zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.schemas.text_values import decimal_text_sql, time_micros_sql, time_text_sql

if TYPE_CHECKING:
    from cdc_pipeline.schemas.table import MySqlType

_MOMENTS = frozenset({"datetime", "timestamp"})
ROUNDED = _MOMENTS | {"time", "decimal"}
"""The types of which a narrower one rounds."""


def rounded_sql(text: str, kind: MySqlType) -> str:
    """`text`, an expression, as a text that a column of the type (one of `ROUNDED`) can have; as it is where it has no more
    digits than that, or is no such value."""
    if kind.base == "decimal":
        digits, scale = (*kind.params, *(10, 0)[len(kind.params) :])
        return _where_longer(text, scale, decimal_text_sql(text, digits, scale))
    digits = kind.params[0] if kind.params else 0
    if kind.base == "time":
        return _where_longer(text, digits, time_text_sql(time_micros_sql(text), digits))
    half = 5 * 10 ** (5 - digits) if digits < 6 else 0
    raised = f"try_cast({text} AS TIMESTAMP_NTZ) + make_dt_interval(0, 0, 0, {half} / 1000000BD)"
    shown = f"substring(date_format({raised}, 'yyyy-MM-dd HH:mm:ss.SSSSSS'), 1, {20 + digits if digits else 19})"
    return _where_longer(text, digits, shown)


def _where_longer(text: str, digits: int, rounded: str) -> str:
    longer = f"length(regexp_extract({text}, '\\\\.(\\\\d+)$', 1)) > {digits}"
    return f"CASE WHEN {longer} THEN coalesce({rounded}, {text}) ELSE {text} END"
