"""Values that a mirror keeps as text, TIME and DECIMAL beyond 38 digits: the one spelling that each has in its column.

The functions of columns read what messages have, and refuse (NULL) what has more digits than the column: then its definition
is not the one that the text was made by. Those of SQL text (`…_sql`) are for conversions, which round as MySQL does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.schemas.expression_values import bound, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column

MOST_DIGITS = 1000
"""Characters of a number that is read; no encoder writes as many."""
_MOST_TIME = 838 * 3600 + 59 * 60 + 59
_HOURS = r"(?:\d\d|[1-7]\d\d|8[0-2]\d|83[0-8])"
_TIME = rf"^-?{_HOURS}:[0-5]\d:[0-5]\d(?:\.\d{{1,6}})?\z"
TIME_PARTS = "^(-?)(\\d{1,3}):([0-5]\\d):([0-5]\\d)(?:\\.(\\d{1,6}))?\\z"
_NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)\z"
_FLOATING = r"^[+-]?(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d{1,3}))?\z"


# ---- what messages have


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
    read = F.regexp_replace(F.when(short.rlike(_NUMBER), short), r"^\+", "")
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


# ---- conversions


def time_micros_sql(text: str) -> str:
    """The microseconds of a TIME's text; NULL for what is none."""

    def micros(x: str) -> str:
        parts = [f"regexp_extract({x}, {quoted(TIME_PARTS)}, {group})" for group in (2, 3, 4)]
        seconds = " + ".join(
            f"CAST({part} AS BIGINT) * {factor}" for part, factor in zip(parts, (3600, 60, 1), strict=True)
        )
        fraction = f"CAST(rpad(regexp_extract({x}, {quoted(TIME_PARTS)}, 5), 6, '0') AS BIGINT)"
        sign = f"CASE WHEN {x} LIKE '-%' THEN -1 ELSE 1 END"
        return f"CASE WHEN {x} RLIKE {quoted(TIME_PARTS)} THEN (({seconds}) * 1000000 + {fraction}) * {sign} END"

    return bound(text, micros)


def rounded_micros_sql(micros: str, digits: int) -> str:
    """The microseconds rounded half away from zero to so many digits of a second."""
    step = 10 ** (6 - digits)
    if step == 1:
        return micros
    return bound(micros, lambda x: f"((abs({x}) + {step // 2}) DIV {step} * {step} * CAST(sign({x}) AS BIGINT))")


def time_text_sql(micros: str, digits: int) -> str:
    """The TIME of so many microseconds with so many digits of a second; NULL beyond 838:59:59."""

    def text(x: str) -> str:
        seconds = f"(abs({x}) DIV 1000000)"
        hours = f"CAST({seconds} DIV 3600 AS STRING)"
        parts = [
            f"CASE WHEN {x} < 0 THEN '-' ELSE '' END",
            f"CASE WHEN {seconds} < 36000 THEN '0' ELSE '' END",
            hours,
            *(f"':', lpad(CAST({seconds} DIV {unit} % 60 AS STRING), 2, '0')" for unit in (60, 1)),
        ]
        if digits:
            parts.append(f"'.', substring(lpad(CAST(abs({x}) % 1000000 AS STRING), 6, '0'), 1, {digits})")
        return f"CASE WHEN abs({x}) <= {_MOST_TIME}000000 THEN concat({', '.join(parts)}) END"

    return bound(rounded_micros_sql(micros, digits), text)


def decimal_text_sql(text: str, digits: int, scale: int) -> str:
    """The text of a number, which has no exponent, rounded half away from zero to a DECIMAL(digits, scale) as MySQL prints
    it. NULL for what is no number or does not fit."""

    def parts(x: str) -> str:
        whole = f"regexp_extract({x}, '^[+-]?0*(\\\\d*)', 1)"
        fraction = f"rpad(regexp_extract({x}, '\\\\.(\\\\d*)', 1), {scale + 1}, '0')"
        return f"concat('0', {whole}, {fraction})"

    def carried(all_digits: str) -> str:
        """One digit more than are wanted: the last one rounds, and nines before it carry."""
        kept = f"substring({all_digits}, 1, length({all_digits}) - 1)"
        up = f"right({all_digits}, 1) >= '5'"

        def more(k: str) -> str:
            head, digit, nines = (f"regexp_extract({k}, '^(\\\\d*?)([0-8])(9*)$', {group})" for group in (1, 2, 3))
            raised = f"CAST(CAST({digit} AS INT) + 1 AS STRING), repeat('0', length({nines}))"
            return f"CASE WHEN {up} THEN concat({head}, {raised}) ELSE {k} END"

        return bound(kept, more)

    def shown(x: str) -> str:
        made = bound(parts(x), carried)

        def printed(d: str) -> str:
            whole = f"regexp_replace(substring({d}, 1, length({d}) - {scale}), '^0+', '')"
            tail = f", '.', right({d}, {scale})" if scale else ""
            number = bound(
                whole,
                lambda w: (
                    f"CASE WHEN length({w}) <= {digits - scale} THEN "
                    f"concat(CASE WHEN {w} = '' THEN '0' ELSE {w} END{tail}) END"
                ),
            )
            return bound(
                number, lambda n: f"CASE WHEN {x} LIKE '-%' AND {n} RLIKE '[1-9]' THEN concat('-', {n}) ELSE {n} END"
            )

        number = f"length({x}) <= {MOST_DIGITS} AND {x} RLIKE {quoted(_NUMBER)}"
        return f"CASE WHEN {number} THEN {bound(made, printed)} END"

    return bound(text, shown)
