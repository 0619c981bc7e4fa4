"""What a check of a contract says, in three tongues: Pandera runs it, Spark routes by it, people read it.

A field's checks are Pandera's own (`isin`, `in_range`, …). A rule over several fields is a SQL condition, made a
check of the whole frame by `rule`. Both must be known here: `condition` turns them into the SQL by which records are
routed, and refuses a check that it does not know, so that no rule can stand in a model and be passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandera.pyspark as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame


_SHOWN = 60


class ContractError(Exception):
    """A model has a check that cannot be made an expression: a mistake in the model, found at import."""


def rule(
    name: str,
    expected: str,
    sql: str,
    *,
    clause: str = "",
    field: str | None = None,
    found: str | None = None,
    warn: bool = False,
) -> Any:
    """A rule over several fields, or one of a field that Pandera has no check for, to be set in a model's body under its
    own name.

    `sql` is true where a row keeps the rule, false or null where it breaks it; `expected` says so in words. `clause` is
    where a document says it. `field` is the field that it speaks of, None where it speaks of several. `found` is SQL of a
    text that says what is there in a row that breaks it. `warn`: a row that breaks it goes on, and is counted.
    """

    def check(_model: type, frame: DataFrame) -> bool:
        return frame.filter(f"NOT coalesce({sql}, false)").limit(1).count() == 0

    check.__name__ = name
    said = {"sql": sql, "clause": clause, "field": field, "found": found, "warn": warn}
    return pa.dataframe_check(check, statistics=said, error=expected)


def warning(name: str, expected: str, sql: str, clause: str, field: str | None = None, found: str | None = None) -> Any:
    """A `rule` whose breach is counted, and no dead letter."""
    return rule(name, expected, sql, clause=clause, field=field, found=found, warn=True)


def at_most(name: str, what: str, size: str, most: int, unit: str, *, clause: str, field: str) -> Any:
    """A `rule` that `size`, SQL of a number, is no larger than `most`, or null. `what` has so many of the `unit`."""
    return rule(
        name,
        f"{what} has at most {most:,} {unit}",
        f"coalesce({size} <= {most}, true)",
        clause=clause,
        field=field,
        found=f"concat(format_number({size}, 0), ' {unit}')",
    )


def _equal_to(column: str, value: str | bool) -> str:
    return f"{column} = {_literal(value)}"


def _isin(column: str, allowed_values: list[str]) -> str:
    return f"{column} IN ({', '.join(_literal(value) for value in allowed_values)})"


def _in_range(column: str, min_value: int, max_value: int, include_min: bool, include_max: bool) -> str:
    return f"{column} >{'=' * include_min} {min_value} AND {column} <{'=' * include_max} {max_value}"


def _at_least(column: str, min_value: int) -> str:
    return f"{column} >= {min_value}"


def _str_length(column: str, min_value: int | None, max_value: int | None, exact_value: int | None) -> str:
    bounds = {">=": min_value, "<=": max_value, "=": exact_value}
    return " AND ".join(f"length({column}) {sign} {size}" for sign, size in bounds.items() if size is not None)


# check → the condition that a value keeps; null where the value is null, which Pandera takes for kept
_CONDITIONS: dict[str, Callable[..., str]] = {
    "equal_to": _equal_to,
    "isin": _isin,
    "in_range": _in_range,
    "greater_than_or_equal_to": _at_least,
    "str_length": _str_length,
}


def _literal(value: str | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if "'" in value or "\\" in value:
        raise ContractError(f"{value!r}: an allowed value with quotes or backslashes is not provided for")
    return f"'{value}'"


def condition(check: Any, column: str) -> str:
    """The SQL condition of a field's check. Raises ContractError for a check that is not known here."""
    make = _CONDITIONS.get(check.name)
    if make is None:
        raise ContractError(f"check {check.name!r} of field {column!r} has no SQL: add it to contracts.checks")
    return f"coalesce({make(f'`{column}`', **check.statistics)}, true)"


def frame_condition(check: Any) -> str:
    """The SQL condition of a rule over several fields. Raises ContractError for a check that `rule` did not make."""
    sql = (check.statistics or {}).get("sql")
    if sql is None:
        raise ContractError(f"check {check.name!r} of a whole frame is no rule(…): it has no SQL to route by")
    return f"coalesce({sql}, false)"


def sizes(check: Any, column: str) -> str | None:
    """SQL of a text that says how large a value is which breaks a limit; None for a check that is no limit."""
    if check.name != "str_length" or check.statistics["max_value"] is None:
        return None
    return length_of(column)


def length_of(column: str) -> str:
    """SQL of a text that says how long a field's value is, and how it begins."""
    return f"concat(format_number(length(`{column}`), 0), ' characters: ', left(`{column}`, {_SHOWN}))"


def in_words(name: str, statistics: Mapping[str, Any]) -> str:
    """What a field's check expects, as the end of a sentence that begins with the field."""
    if name == "isin":
        values = [str(value) for value in statistics["allowed_values"]]
        return f"is {values[0]}" if len(values) == 1 else f"is one of {', '.join(values)}"
    if name == "equal_to":
        return f"is {str(statistics['value']).lower()}"
    if name == "in_range":
        return f"is between {statistics['min_value']} and {statistics['max_value']}"
    if name == "greater_than_or_equal_to":
        return f"is at least {statistics['min_value']}"
    if name == "str_length":
        least, most = statistics["min_value"], statistics["max_value"]
        if most is None:
            return "is not empty"
        return f"has {least or 0} to {most:,} characters"
    raise ContractError(f"check {name!r} has no words: add it to contracts.checks")
