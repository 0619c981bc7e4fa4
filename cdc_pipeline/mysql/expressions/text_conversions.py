"""SQL that converts values to the text of a TIME or long DECIMAL (see `text_values`), rounded as MySQL does."""

from __future__ import annotations

from cdc_pipeline.mysql.expressions.values import bind_sql, sql_string
from cdc_pipeline.mysql.types.text_values import MOST_DIGITS, MOST_TIME, NUMBER, TIME_PARTS


def time_micros_sql(text: str) -> str:
    """The microseconds of the text of a TIME; NULL for other text."""

    def micros(x: str) -> str:
        parts = [f"regexp_extract({x}, {sql_string(TIME_PARTS)}, {group})" for group in (2, 3, 4)]
        seconds = " + ".join(
            f"CAST({part} AS BIGINT) * {factor}" for part, factor in zip(parts, (3600, 60, 1), strict=True)
        )
        fraction = f"CAST(rpad(regexp_extract({x}, {sql_string(TIME_PARTS)}, 5), 6, '0') AS BIGINT)"
        sign = f"CASE WHEN {x} LIKE '-%' THEN -1 ELSE 1 END"
        return f"CASE WHEN {x} RLIKE {sql_string(TIME_PARTS)} THEN (({seconds}) * 1000000 + {fraction}) * {sign} END"

    return bind_sql(text, micros)


def rounded_micros_sql(micros: str, digits: int) -> str:
    """Microseconds rounded half away from zero to `digits` fractional digits of the second."""
    step = 10 ** (6 - digits)
    if step == 1:
        return micros
    return bind_sql(micros, lambda x: f"((abs({x}) + {step // 2}) DIV {step} * {step} * CAST(sign({x}) AS BIGINT))")


def time_text_sql(micros: str, digits: int) -> str:
    """The text of a TIME(digits) for microseconds; NULL beyond 838:59:59."""

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
        return f"CASE WHEN abs({x}) <= {MOST_TIME}000000 THEN concat({', '.join(parts)}) END"

    return bind_sql(rounded_micros_sql(micros, digits), text)


def decimal_text_sql(text: str, digits: int, scale: int) -> str:
    """The text of a DECIMAL(digits, scale) for the text of a number without exponent, rounded half away from zero.

    NULL for other text and for numbers that do not fit.
    """

    def parts(x: str) -> str:
        whole = f"regexp_extract({x}, '^[+-]?0*(\\\\d*)', 1)"
        fraction = f"rpad(regexp_extract({x}, '\\\\.(\\\\d*)', 1), {scale + 1}, '0')"
        return f"concat('0', {whole}, {fraction})"

    def round_last(all_digits: str) -> str:
        """Drops the last digit and rounds by it, which carries through preceding nines."""
        kept = f"substring({all_digits}, 1, length({all_digits}) - 1)"
        up = f"right({all_digits}, 1) >= '5'"

        def increment(k: str) -> str:
            head, digit, nines = (f"regexp_extract({k}, '^(\\\\d*?)([0-8])(9*)$', {group})" for group in (1, 2, 3))
            raised = f"CAST(CAST({digit} AS INT) + 1 AS STRING), repeat('0', length({nines}))"
            return f"CASE WHEN {up} THEN concat({head}, {raised}) ELSE {k} END"

        return bind_sql(kept, increment)

    def convert(x: str) -> str:
        rounded = bind_sql(parts(x), round_last)

        def printed(d: str) -> str:
            whole = f"regexp_replace(substring({d}, 1, length({d}) - {scale}), '^0+', '')"
            tail = f", '.', right({d}, {scale})" if scale else ""
            number = bind_sql(
                whole,
                lambda w: (
                    f"CASE WHEN length({w}) <= {digits - scale} THEN "
                    f"concat(CASE WHEN {w} = '' THEN '0' ELSE {w} END{tail}) END"
                ),
            )
            return bind_sql(
                number, lambda n: f"CASE WHEN {x} LIKE '-%' AND {n} RLIKE '[1-9]' THEN concat('-', {n}) ELSE {n} END"
            )

        number = f"length({x}) <= {MOST_DIGITS} AND {x} RLIKE {sql_string(NUMBER)}"
        return f"CASE WHEN {number} THEN {bind_sql(rounded, printed)} END"

    return bind_sql(text, convert)
