"""SQL text that makes a TIME or a DECIMAL beyond 38 digits of another value, rounded as MySQL does (`text_values`)."""

from __future__ import annotations

from cdc_pipeline.mysql.expressions.values import bound, quoted
from cdc_pipeline.mysql.types.text_values import MOST_DIGITS, MOST_TIME, NUMBER, TIME_PARTS


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
        return f"CASE WHEN abs({x}) <= {MOST_TIME}000000 THEN concat({', '.join(parts)}) END"

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

        number = f"length({x}) <= {MOST_DIGITS} AND {x} RLIKE {quoted(NUMBER)}"
        return f"CASE WHEN {number} THEN {bound(made, printed)} END"

    return bound(text, shown)
