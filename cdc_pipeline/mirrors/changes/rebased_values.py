"""Values of rows that arrive after a MODIFY which they precede.

MySQL rounds half away from zero when a column gets fewer fractional digits; `rounded_sql` does the same to a text. If the
type changes to another kind, the text may no longer be the text of the converted value (`text_stays`).
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
"""The types that round values when they get fewer fractional digits."""
_INTEGERS = INTEGERS | {"bit"}
_KEPT = {
    # old type → new types for which the text of a value stays the text of the converted value
    **dict.fromkeys(_INTEGERS, _INTEGERS | {"decimal", "float", "double"}),
    **dict.fromkeys(INTEGERS, _INTEGERS | {"decimal", "float", "double"} | TEXT_TYPES),
    **dict.fromkeys(TEXT_TYPES, TEXT_TYPES),
    **dict.fromkeys(BLOBS, BLOBS),
    "decimal": frozenset({"decimal"}),
    "date": frozenset({"datetime"}),
}


def text_stays(old: MySqlType, new: MySqlType) -> bool:
    """Whether the text of a value, rounded if it is too long, is also a text of the value converted to the new type."""
    return old.base == new.base or new.base in _KEPT.get(old.base, ())


def rounded_sql(text: str, kind: MySqlType) -> str:
    """SQL that rounds the expression `text` to the type, one of `ROUNDED`. Texts that fit, or are no such value, stay."""
    if kind.base == "decimal":
        digits, scale = (*kind.params, *(10, 0)[len(kind.params) :])
        return _where_longer(text, scale, decimal_text_sql(text, digits, scale))
    digits = kind.params[0] if kind.params else 0
    if kind.base == "time":
        return _where_longer(text, digits, time_text_sql(time_micros_sql(text), digits))
    half = 5 * 10 ** (5 - digits) if digits < 6 else 0
    raised = f"try_cast({text} AS TIMESTAMP_NTZ) + make_dt_interval(0, 0, 0, {half} / 1000000BD)"
    shortened = f"substring(date_format({raised}, 'yyyy-MM-dd HH:mm:ss.SSSSSS'), 1, {20 + digits if digits else 19})"
    return _where_longer(text, digits, shortened)


def _where_longer(text: str, digits: int, rounded: str) -> str:
    longer = f"length(regexp_extract({text}, '\\\\.(\\\\d+)$', 1)) > {digits}"
    return f"CASE WHEN {longer} THEN coalesce({rounded}, {text}) ELSE {text} END"
