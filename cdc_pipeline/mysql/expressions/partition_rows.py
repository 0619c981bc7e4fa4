"""Conditions that find the rows of table partitions in a mirror.

Upstream removes the rows of a partition without a message per row, so the mirror finds them by the definition of the
partition. This module builds MySQL conditions; `translation` translates them by the types and collations of the columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cdc_pipeline.mysql.ddl.tokens import Cursor, Kind
from cdc_pipeline.mysql.expressions.translation import ExpressionError, translate_condition
from cdc_pipeline.mysql.model.partitions import DEFAULT, MAXVALUE, NULL, Partitioning
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import TableSchema

_PLAIN = re.compile(r"[+-]?[\w.]+|'[^'\\]*'|`[^`]+`")
_YEAR_ZERO = re.compile(r"['\"]0000-")
_MAX_SIGNED, _MAX_UNSIGNED = 2**63 - 1, 2**64 - 1


class PartitionError(ValueError):
    """The rows of a partition cannot be identified. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class SparkCondition:
    """A Spark boolean that selects rows."""

    sql: str
    """True for the selected rows, false for all others, never NULL."""
    doubtful: str | None = None
    """True for rows for which `sql` is uncertain, never NULL. None if it is certain for all rows."""


_ALL, _NONE = SparkCondition("TRUE"), SparkCondition("FALSE")


def rows_of_partitions(
    schema: TableSchema, names: tuple[str, ...], time_zone: str, *, missing_ok: bool = False, tidb: bool
) -> SparkCondition:
    """The condition for the rows in the named partitions; without names, for all rows.

    `time_zone`: IANA zone of the upstream sessions.
    `missing_ok`: ignores names of unknown partitions.
    `tidb`: whether upstream is TiDB, which stores NULL of HASH in the first partition.

    Raises PartitionError for an unknown partitioning, an unknown name of a partition, as of a subpartition, and partition
    expressions without an exact equivalent in Spark SQL.
    """
    if not names:
        return _ALL
    partitioning = schema.partitioning
    if partitioning is None:
        raise PartitionError("the table has no known partitions")
    if not partitioning.is_known:
        raise PartitionError(f"the partitioning of the table is not known: {partitioning.reason}")
    wanted = _partition_indexes(partitioning, names, missing_ok)
    if not wanted:
        return _NONE
    if len(wanted) == len(partitioning.partitions):
        return _ALL
    if partitioning.method == "hash":
        condition = _hash_condition(partitioning, wanted, schema, tidb)
    elif partitioning.method.startswith("range"):
        condition = _range_condition(partitioning, wanted)
    else:
        condition = _list_condition(partitioning, wanted)
    return _translated(condition, schema, time_zone)


def _partition_indexes(partitioning: Partitioning, names: tuple[str, ...], missing_ok: bool) -> list[int]:
    indexes: set[int] = set()
    for name in names:
        index = partitioning.index_of(name)
        if index is not None:
            indexes.add(index)
        elif not missing_ok:
            raise PartitionError(f"the table has no known partition {name!r}")
    return sorted(indexes)


def _translated(condition: str, schema: TableSchema, time_zone: str) -> SparkCondition:
    """The rows for which the MySQL condition is true (not NULL). Raises PartitionError if it cannot be translated."""
    try:
        translated = translate_condition(condition, schema, time_zone)
    except ExpressionError as error:
        raise PartitionError(f"the partition expression has no exact equivalent in Spark SQL: {error}") from error
    return SparkCondition(f"coalesce({translated.sql}, false)", translated.doubtful)


def _keys(partitioning: Partitioning) -> tuple[str, ...]:
    """The MySQL expressions by which rows are partitioned."""
    if partitioning.expression:
        return (_parenthesized(partitioning.expression),)
    return tuple(quoted(name) for name in partitioning.columns)


def _parenthesized(expression: str) -> str:
    return expression if _PLAIN.fullmatch(expression) else f"({expression})"


def _any_true(conditions: Sequence[str]) -> str:
    """An OR of the conditions as a balanced tree: a chain of hundreds would be too deep for parsers."""
    if len(conditions) == 1:
        return f"({conditions[0]})"
    half = len(conditions) // 2
    return f"({_any_true(conditions[:half])} OR {_any_true(conditions[half:])})"


# ---- RANGE


def _range_condition(partitioning: Partitioning, wanted: Sequence[int]) -> str:
    """Each run of adjacent partitions is below the bound of its last one, and not below the bound before its first."""
    keys = _keys(partitioning)
    bounds = [part.less_than for part in partitioning.partitions]
    runs: list[str] = []
    for first in wanted:
        if first - 1 in wanted:
            continue
        last = first
        while last + 1 in wanted:
            last += 1
        upper = _below_bound(keys, bounds[last])
        runs.append(f"{upper} AND NOT {_below_bound(keys, bounds[first - 1])}" if first else upper)
    return _any_true(runs)


def _below_bound(keys: tuple[str, ...], bound: tuple[str, ...]) -> str:
    """Whether a row is below a bound, compared as tuples. NULL is below all values, so the result is never NULL."""
    condition = ""
    for key, value in reversed(list(zip(keys, bound, strict=True))):
        if value == MAXVALUE:
            condition = "1 = 1"
        else:
            parts = [f"{key} IS NULL"]
            # a mirror has no dates of the year 0 (they are NULL), so none of its dates is below one
            if not _YEAR_ZERO.match(value):
                parts.append(f"{key} < {_parenthesized(value)}")
                if condition:
                    parts.append(f"{key} = {_parenthesized(value)} AND {condition}")
            condition = _any_true(parts)
        condition = f"({condition})"
    return condition


# ---- LIST


def _list_condition(partitioning: Partitioning, wanted: Sequence[int]) -> str:
    keys = _keys(partitioning)
    chosen = [partitioning.partitions[index] for index in wanted]
    condition = _values_condition(keys, [item for part in chosen for item in part.values])
    if all((DEFAULT,) not in part.values for part in chosen):
        return condition
    # the DEFAULT partition has the values that no other partition lists, besides its own listed values
    others = [part for index, part in enumerate(partitioning.partitions) if index not in wanted]
    return f"NOT ({_values_condition(keys, [item for part in others for item in part.values])})"


def _values_condition(keys: tuple[str, ...], items: list[tuple[str, ...]]) -> str:
    """Whether a row has one of the listed values; never NULL."""
    items = [item for item in items if item != (DEFAULT,)]
    conditions: list[str] = []
    if len(keys) == 1:
        values = [_parenthesized(item[0]) for item in items if item != (NULL,)]
        if values:
            conditions.append(f"{keys[0]} IS NOT NULL AND {keys[0]} IN ({', '.join(values)})")
        if (NULL,) in items:
            conditions.append(f"{keys[0]} IS NULL")
    else:
        conditions.extend(
            " AND ".join(
                f"{key} IS NULL" if value == NULL else f"{key} IS NOT NULL AND {key} = {_parenthesized(value)}"
                for key, value in zip(keys, item, strict=True)
            )
            for item in items
        )
    return _any_true(conditions) if conditions else "1 = 0"


# ---- HASH


def _hash_condition(partitioning: Partitioning, wanted: Sequence[int], schema: TableSchema, tidb: bool) -> str:
    """Whether ABS(MOD(key, count)) is the index of a wanted partition."""
    count, key = len(partitioning.partitions), _keys(partitioning)[0]
    numbers = ", ".join(str(number) for number in wanted)
    conditions = [f"ABS(MOD({key}, {count})) IN ({numbers})"]
    if _may_be_huge(key, schema):
        # both servers read an unsigned number above the signed range as negative (minus 2^64)
        huge = f"MOD({_MAX_UNSIGNED} - {key} + 1, {count}) IN ({numbers})"
        conditions = [f"{key} <= {_MAX_SIGNED} AND {conditions[0]}", f"{key} > {_MAX_SIGNED} AND {huge}"]
    # the MySQL manual treats NULL as 0, but the server uses the minimum BIGINT, as for RANGE
    null_index = 0 if tidb else 2**63 % count
    if null_index in wanted:
        conditions.append(f"{key} IS NULL")
    return _any_true(conditions)


def _may_be_huge(key: str, schema: TableSchema) -> bool:
    """Whether the expression contains a BIGINT UNSIGNED column, whose values may exceed the signed range."""
    cursor = Cursor(key)
    names: set[str] = set()
    while not cursor.at_end:
        token = cursor.skip()
        if token.kind in (Kind.WORD, Kind.QUOTED):
            names.add(token.text.casefold())
    return any(
        column.name.casefold() in names and column.type.base == "bigint" and column.type.unsigned
        for column in schema.columns
    )
