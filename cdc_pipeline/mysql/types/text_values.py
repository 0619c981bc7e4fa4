"""Values that a mirror keeps as text, TIME and DECIMAL beyond 38 digits: the one spelling that each has in its column.

They are read as messages have them. What has more digits than the column is refused (NULL): then its definition is not the
one that the text was made by. Conversions, which round as MySQL does, are in `text_conversions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

MOST_DIGITS = 1000
"""Characters of a number that is read; no encoder writes as many."""
MOST_TIME = 838 * 3600 + 59 * 60 + 59
_HOURS = r"(?:\d\d|[1-7]\d\d|8[0-2]\d|83[0-8])"
_TIME = rf"^-?{_HOURS}:[0-5]\d:[0-5]\d(?:\.\d{{1,6}})?\z"
TIME_PARTS = "^(-?)(\\d{1,3}):([0-5]\\d):([0-5]\\d)(?:\\.(\\d{1,6}))?\\z"
NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)\z"
_FLOATING = r"^[+-]?(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d{1,3}))?\z"


def time_text(text: Column, digits: int | None) -> Column:
    """A TIME with so many digits of a second; as it is where the definition is not known (None). NULL for no TIME."""
    read = F.when(text.rlike(_TIME), text)
    if digits is None:
        return read
    whole = F.substring_index(read, ".", 1)
    fraction = F.when(F.contains(read, F.lit(".")), F.substring_index(read, ".", -1)).otherwise(F.lit(""))
    tail = F.concat(F.lit("."), F.rpad(fraction, digits, "0")) if digits else F.lit("")
    found = F.concat(whole, tail)
    found = F.when(found.rlike(r"^-[0:.]+\z"), F.substring(found, 2, 99)).otherwise(found)
    found = F.when(F.substring(fraction, digits + 1, 6).rlike(r"^0*\z"), found)
    usual = rf"^-?{_HOURS}:[0-5]\d:[0-5]\d" + (rf"\.\d{{{digits}}}\z" if digits else r"\z")
    return F.when(text.rlike(usual) & ~text.startswith("-0"), text).otherwise(found)


def decimal_text(text: Column, digits: int, scale: int) -> Column:
    """A DECIMAL(digits, scale) as MySQL prints it. NULL for what is no such number."""
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
    """A DECIMAL that came as a double, perhaps with an exponent: the nearest one of the scale."""
    near = text.try_cast(f"decimal(38,{scale})").cast("string")
    groups = [F.regexp_extract(F.when(F.length(text) <= MOST_DIGITS, text), _FLOATING, place) for place in (1, 2, 3)]
    written, point = (
        F.concat(groups[0], groups[1]),
        F.length(groups[0]) + F.coalesce(groups[2].try_cast("int"), F.lit(0)),
    )
    # only what is too large for 38 digits comes here: it has no fraction
    plain = F.when(point >= F.length(written), F.rpad(written, point, "0"))
    signed = F.when(text.startswith("-"), F.concat(F.lit("-"), plain)).otherwise(plain)
    return decimal_text(F.coalesce(near, signed), digits, scale)
