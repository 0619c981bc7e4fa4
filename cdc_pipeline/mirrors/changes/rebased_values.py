"""Values of rows that come after a MODIFY which they precede.

A text with more digits than its column has now is rounded, half away from zero: that is what MySQL made of it, as of any
value that it assigns. Where the column has become one of another kind, the text may mean something else (`text_stays`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.mysql.expressions.conversions import BLOBS, INTEGERS
from cdc_pipeline.mysql.expressions.text_conversions import decimal_text_sql, time_micros_sql, time_text_sql
from cdc_pipeline.mysql.model.table import TEXT_TYPES

if TYPE_CHECKING:
    from cdc_pipeline.mysql.model.table import MySqlType

_MOMENTS = frozenset({"datetime", "timestamp"})
ROUNDED = _MOMENTS | {"time", "decimal"}
"""The types of which a narrower one rounds."""


_INTEGERS = INTEGERS | {"bit"}
_KEPT = {
    # the text of each of these is the text of the value that MySQL makes of it for those
    **dict.fromkeys(_INTEGERS, _INTEGERS | {"decimal", "float", "double"}),
    **dict.fromkeys(INTEGERS, _INTEGERS | {"decimal", "float", "double"} | TEXT_TYPES),
    **dict.fromkeys(TEXT_TYPES, TEXT_TYPES),
    **dict.fromkeys(BLOBS, BLOBS),
    "decimal": frozenset({"decimal"}),
    "date": frozenset({"datetime"}),
}


def text_stays(old: MySqlType, new: MySqlType) -> bool:
    """Whether a value's text in messages, rounded if it is too long, is a text of what MySQL makes of it in the new type."""
    return old.base == new.base or new.base in _KEPT.get(old.base, ())


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
