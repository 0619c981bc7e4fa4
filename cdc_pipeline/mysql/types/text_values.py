"""Normalized text of the values that a mirror stores as text: TIME and DECIMAL with more than 38 digits.

The input is the text of a message. A value with more digits than its column becomes NULL: the text was written under
another definition. Conversions that round as MySQL does are in `expressions.text_conversions`.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

MOST_DIGITS = 1000
"""Maximum characters of a number; no encoder writes as many."""
MOST_TIME = 838 * 3600 + 59 * 60 + 59
"""The maximum TIME in seconds."""
_HOURS = r"(?:\d\d|[1-7]\d\d|8[0-2]\d|83[0-8])"
_TIME = rf"^-?{_HOURS}:[0-5]\d:[0-5]\d(?:\.\d{{1,6}})?\z"
TIME_PARTS = "^(-?)(\\d{1,3}):([0-5]\\d):([0-5]\\d)(?:\\.(\\d{1,6}))?\\z"
NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)\z"
_FLOATING = r"^[+-]?(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d{1,3}))?\z"


def time_text(text: Column, digits: int | None) -> Column:
    """The text of a TIME(digits); not normalized if `digits` is None (unknown). NULL for text that is not a TIME."""
    read = F.when(text.rlike(_TIME), text)
    if digits is None:
        return read
    whole = F.substring_index(read, ".", 1)
    fraction = F.when(F.contains(read, F.lit(".")), F.substring_index(read, ".", -1)).otherwise(F.lit(""))
    tail = F.concat(F.lit("."), F.rpad(fraction, digits, "0")) if digits else F.lit("")
    normalized = F.concat(whole, tail)
    normalized = F.when(normalized.rlike(r"^-[0:.]+\z"), F.substring(normalized, 2, 99)).otherwise(normalized)
    normalized = F.when(F.substring(fraction, digits + 1, 6).rlike(r"^0*\z"), normalized)
    usual = rf"^-?{_HOURS}:[0-5]\d:[0-5]\d" + (rf"\.\d{{{digits}}}\z" if digits else r"\z")
    return F.when(text.rlike(usual) & ~text.startswith("-0"), text).otherwise(normalized)


def decimal_text(text: Column, digits: int, scale: int) -> Column:
    """The text of a DECIMAL(digits, scale) as MySQL prints it; NULL for text that is not such a number."""
    short = F.when(F.length(text) <= MOST_DIGITS, text)
    read = F.regexp_replace(F.when(short.rlike(NUMBER), short), r"^\+", "")
    whole = F.regexp_replace(F.substring_index(F.regexp_replace(read, "^-", ""), ".", 1), r"^0+", "")
    fraction = F.when(F.contains(read, F.lit(".")), F.substring_index(read, ".", -1)).otherwise(F.lit(""))
    shown = F.when(whole == "", F.lit("0")).otherwise(whole)
    if scale:
        shown = F.concat(shown, F.lit("."), F.rpad(fraction, scale, "0"))
    shown = F.when(read.startswith("-") & shown.rlike("[1-9]"), F.concat(F.lit("-"), shown)).otherwise(shown)
    fits = F.substring(fraction, scale + 1, MOST_DIGITS).rlike(r"^0*\z") & (F.length(whole) <= digits - scale)
    return F.when(fits, shown)


def decimal_text_of_double(text: Column, digits: int, scale: int) -> Column:
    """The text of the DECIMAL(digits, scale) nearest to a double, whose text may have an exponent."""
    near = text.try_cast(f"decimal(38,{scale})").cast("string")
    groups = [F.regexp_extract(F.when(F.length(text) <= MOST_DIGITS, text), _FLOATING, group) for group in (1, 2, 3)]
    written, point = (
        F.concat(groups[0], groups[1]),
        F.length(groups[0]) + F.coalesce(groups[2].try_cast("int"), F.lit(0)),
    )
    # used only for numbers of more than 38 digits, which have no fraction
    plain = F.when(point >= F.length(written), F.rpad(written, point, "0"))
    signed = F.when(text.startswith("-"), F.concat(F.lit("-"), plain)).otherwise(plain)
    return decimal_text(F.coalesce(near, signed), digits, scale)
