"""Checks of the contracts in three forms: Pandera runs them, Spark routes records by their SQL, people read their text.

A check of one field is Pandera's own (`isin`, `in_range`, …). A rule over several fields is a SQL condition that `rule`
registers as a Pandera check of the whole frame. `field_condition` and `frame_condition` return the SQL of each check. They
fail for a check without SQL, so that every rule of a model is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandera.pyspark as pa
from pyspark.sql import DataFrame

_SHOWN_CHARACTERS = 60


class ContractError(Exception):
    """A model has a check without SQL or without text: a mistake in the model, raised at import."""


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
    """A rule over several fields, or over one field if Pandera has no such check. Assign it in a model's body under `name`.

    `expected`: the rule as text.
    `sql`: true if a row keeps the rule; false or null breaks it.
    `clause`: clause of the format document.
    `field`: the field that the rule checks; None for several.
    `found`: SQL that describes what a row has instead.
    `warn`: a row that breaks the rule is counted and decoded; without it the record becomes a dead letter.
    """

    def check(_model: type, frame: DataFrame) -> bool:
        return frame.filter(f"NOT coalesce({sql}, false)").limit(1).count() == 0

    check.__name__ = name
    statistics = {"sql": sql, "clause": clause, "field": field, "found": found, "warn": warn}
    return pa.dataframe_check(check, statistics=statistics, error=expected)


def warning(name: str, expected: str, sql: str, clause: str, field: str | None = None, found: str | None = None) -> Any:
    """A `rule` that only warns."""
    return rule(name, expected, sql, clause=clause, field=field, found=found, warn=True)


def at_most(name: str, what: str, size: str, most: int, unit: str, *, clause: str, field: str) -> Any:
    """A `rule` that `what` has at most `most` of `unit`. `size`: SQL of the number; null keeps the rule."""
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


_CONDITIONS: dict[str, Callable[..., str]] = {
    "equal_to": _equal_to,
    "isin": _isin,
    "in_range": _in_range,
    "greater_than_or_equal_to": _at_least,
    "str_length": _str_length,
}
"""Pandera check → SQL that is true if a value keeps it. Null for a null value, which keeps every check in Pandera too."""


def _literal(value: str | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if "'" in value or "\\" in value:
        raise ContractError(f"{value!r}: allowed values with quotes or backslashes are not supported")
    return f"'{value}'"


def field_condition(check: Any, column: str) -> str:
    """SQL of a field's check: true if a row keeps it, else false. Raises ContractError for an unknown check."""
    to_sql = _CONDITIONS.get(check.name)
    if to_sql is None:
        raise ContractError(f"check {check.name!r} of field {column!r} has no SQL: add it to contracts.checks")
    return f"coalesce({to_sql(f'`{column}`', **check.statistics)}, true)"


def frame_condition(check: Any) -> str:
    """SQL of a check of the whole frame: true if a row keeps it, else false. Raises ContractError if `rule` did not make
    the check."""
    sql = (check.statistics or {}).get("sql")
    if sql is None:
        raise ContractError(f"check {check.name!r} of a whole frame has no SQL: declare it with rule(…)")
    return f"coalesce({sql}, false)"


def found_length(check: Any, column: str) -> str | None:
    """`length_text` for a check that limits the length of a text; None for any other check."""
    if check.name != "str_length" or check.statistics["max_value"] is None:
        return None
    return length_text(column)


def length_text(column: str) -> str:
    """SQL of a text with the length of a field's value and its first 60 characters."""
    return f"concat(format_number(length(`{column}`), 0), ' characters: ', left(`{column}`, {_SHOWN_CHARACTERS}))"


def check_text(name: str, statistics: Mapping[str, Any]) -> str:
    """What a field's check expects, as a predicate for the field's name: `is one of a, B`.

    Raises ContractError for an unknown check.
    """
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
    raise ContractError(f"check {name!r} has no text: add it to contracts.checks")
