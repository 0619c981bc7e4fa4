"""Which rows of a mirror lie in partitions of its table.

Upstream removes the rows of a partition without a message for each, so that they are to be found by the partition's
definition. The conditions are built as MySQL's and translated by `expressions`, which knows types and collations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_pipeline.mysql.ddl.partition_evolution import partitions_before
from cdc_pipeline.mysql.ddl.tokens import Cursor, Kind
from cdc_pipeline.mysql.expressions.translation import ExpressionError, boolean
from cdc_pipeline.mysql.model.partitions import DEFAULT, MAXVALUE, NULL, Partitioning, UnknownPartitionsError
from cdc_pipeline.mysql.model.quoted_names import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.mysql.model.table import TableSchema

_PLAIN = re.compile(r"[+-]?[\w.]+|'[^'\\]*'|`[^`]+`")
_YEAR_ZERO = re.compile(r"['\"]0000-")
_MAX_SIGNED, _MAX_UNSIGNED = 2**63 - 1, 2**64 - 1


class PartitionError(ValueError):
    """Rows of partitions that cannot be told from others; the message says why."""


@dataclass(frozen=True, slots=True)
class SparkCondition:
    """Spark SQL text that is TRUE for the rows meant and FALSE for all others, never NULL.

    `doubtful`, where it is not None, is TRUE for the rows of which `sql` is not sure, and never NULL either.
    """

    sql: str
    doubtful: str | None = None


_ALL, _NONE = SparkCondition("TRUE"), SparkCondition("FALSE")


def rows_of_partitions(
    schema: TableSchema,
    names: tuple[str, ...],
    time_zone: str,
    *,
    missing_ok: bool = False,
    tidb: bool | None = None,
) -> SparkCondition:
    """The rows that lie in these partitions; in all of them where there are no names.

    `time_zone` is that of the upstream sessions. With `missing_ok` names that no partition has are left out. `tidb` is
    whether upstream is TiDB, which has LINEAR HASH as HASH and NULL of HASH in the first partition; where it is None
    the rows on which MySQL and TiDB differ are doubtful.

    Raises PartitionError for what has no condition: KEY, a partitioning or a name that is not known, the name of a
    subpartition, a function that Spark has no equal of.
    """
    if not names:
        return _ALL
    partitioning = schema.partitioning
    if partitioning is None:
        raise PartitionError("the table is not known to have partitions")
    if not partitioning.known:
        raise PartitionError(f"the table's partitioning is not known: {partitioning.reason}")
    wanted = _positions(partitioning, names, missing_ok)
    if not wanted:
        return _NONE
    if len(wanted) == len(partitioning.partitions):
        return _ALL
    if partitioning.method.endswith("key"):
        raise PartitionError("partitions by KEY: the server's own hash of the values is not known here")
    translate = _Translation(schema, time_zone)
    if partitioning.method in ("hash", "linear hash"):
        return _rows_by_hash(translate, partitioning, wanted, tidb)
    if partitioning.method.startswith("range"):
        return translate.rows(_in_ranges(partitioning, wanted))
    return translate.rows(_in_lists(partitioning, wanted))


def rows_below(schema: TableSchema, bound: str, time_zone: str) -> SparkCondition:
    """The rows that TiDB's FIRST PARTITION LESS THAN (bound) removes: those of the partitions before the one with that
    bound, which itself stays. Raises PartitionError as `rows_of_partitions` does.
    """
    if schema.partitioning is None:
        raise PartitionError("the table is not known to have partitions")
    if not schema.partitioning.known:
        raise PartitionError(f"the table's partitioning is not known: {schema.partitioning.reason}")
    try:
        dropped = partitions_before(bound, schema.partitioning)
    except UnknownPartitionsError as error:
        raise PartitionError(str(error)) from error
    return rows_of_partitions(schema, tuple(part.name for part in dropped), time_zone) if dropped else _NONE


def _positions(partitioning: Partitioning, names: tuple[str, ...], missing_ok: bool) -> list[int]:
    found: set[int] = set()
    subpartitions = {name.casefold() for name in partitioning.subpartition_names()}
    for name in names:
        place = partitioning.position(name)
        if place is not None:
            found.add(place)
        elif name.casefold() in subpartitions:
            raise PartitionError(f"{name!r} is a subpartition, of which the rows are not known")
        elif not missing_ok:
            raise PartitionError(f"no partition {name!r} is known")
    return sorted(found)


class _Translation:
    """MySQL's conditions over a table's columns as Spark's."""

    def __init__(self, schema: TableSchema, time_zone: str) -> None:
        self.schema = schema
        self._time_zone = time_zone

    def rows(self, condition: str) -> SparkCondition:
        """The rows for which MySQL's condition is true; NULL is not."""
        try:
            found = boolean(condition, self.schema, self._time_zone)
        except ExpressionError as error:
            raise PartitionError(f"the partitions' expressions have no equal in Spark: {error}") from error
        return SparkCondition(f"coalesce({found.sql}, false)", found.doubtful)


def _keys(partitioning: Partitioning) -> tuple[str, ...]:
    """What rows are divided by, as MySQL expressions."""
    if partitioning.expression:
        return (_in_brackets(partitioning.expression),)
    return tuple(quoted(name) for name in partitioning.columns)


def _in_brackets(expression: str) -> str:
    return expression if _PLAIN.fullmatch(expression) else f"({expression})"


def _any(conditions: Sequence[str]) -> str:
    """Whether one of these is true; brackets in brackets, as a chain of hundreds is too deep for parsers."""
    if len(conditions) == 1:
        return f"({conditions[0]})"
    half = len(conditions) // 2
    return f"({_any(conditions[:half])} OR {_any(conditions[half:])})"


# ---- RANGE


def _in_ranges(partitioning: Partitioning, wanted: Sequence[int]) -> str:
    """Runs of neighbours: below the bound of the last one, and not below the bound before the first one."""
    keys = _keys(partitioning)
    bounds = [part.less_than for part in partitioning.partitions]
    runs: list[str] = []
    for place in wanted:
        if place - 1 in wanted:
            continue
        last = place
        while last + 1 in wanted:
            last += 1
        upper = _below(keys, bounds[last])
        runs.append(f"{upper} AND NOT {_below(keys, bounds[place - 1])}" if place else upper)
    return _any(runs)


def _below(keys: tuple[str, ...], bound: tuple[str, ...]) -> str:
    """Whether a row is below a bound, compared as tuples; never NULL, for NULL is below all values."""
    condition = ""
    for key, value in reversed(list(zip(keys, bound, strict=True))):
        if value == MAXVALUE:
            condition = "1 = 1"
        else:
            parts = [f"{key} IS NULL"]
            # dates of the year 0 are NULL in a mirror, and none that it has is below one
            if not _YEAR_ZERO.match(value):
                parts.append(f"{key} < {_in_brackets(value)}")
                if condition:
                    parts.append(f"{key} = {_in_brackets(value)} AND {condition}")
            condition = _any(parts)
        condition = f"({condition})"
    return condition


# ---- LIST


def _in_lists(partitioning: Partitioning, wanted: Sequence[int]) -> str:
    keys = _keys(partitioning)
    chosen = [partitioning.partitions[place] for place in wanted]
    condition = _listed(keys, [item for part in chosen for item in part.values])
    if all((DEFAULT,) not in part.values for part in chosen):
        return condition
    # The DEFAULT partition has what no other lists. It may list values itself, which are then among the chosen ones.
    others = [part for place, part in enumerate(partitioning.partitions) if place not in wanted]
    return f"NOT ({_listed(keys, [item for part in others for item in part.values])})"


def _listed(keys: tuple[str, ...], items: list[tuple[str, ...]]) -> str:
    """Whether a row has one of these values, never NULL."""
    items = [item for item in items if item != (DEFAULT,)]
    found: list[str] = []
    if len(keys) == 1:
        values = [_in_brackets(item[0]) for item in items if item != (NULL,)]
        if values:
            found.append(f"{keys[0]} IS NOT NULL AND {keys[0]} IN ({', '.join(values)})")
        if (NULL,) in items:
            found.append(f"{keys[0]} IS NULL")
    else:
        found.extend(
            " AND ".join(
                f"{key} IS NULL" if value == NULL else f"{key} IS NOT NULL AND {key} = {_in_brackets(value)}"
                for key, value in zip(keys, item, strict=True)
            )
            for item in items
        )
    return _any(found) if found else "1 = 0"


# ---- HASH


def _rows_by_hash(
    translate: _Translation, partitioning: Partitioning, wanted: Sequence[int], tidb: bool | None
) -> SparkCondition:
    count = len(partitioning.partitions)
    key = _keys(partitioning)[0]
    in_tidb = _any([_hashed(key, count, wanted, _may_be_huge(key, translate.schema)), *_null_in(key, 0 in wanted)])
    if partitioning.method == "linear hash":
        in_mysql = _any([_hashed_linearly(key, count, wanted), *_null_in(key, 0 in wanted)])
    else:
        # MySQL's manual says that NULL counts as 0; its server takes the least of all numbers, as for RANGE.
        null_place = 2**63 % count
        values = _hashed(key, count, wanted, _may_be_huge(key, translate.schema))
        in_mysql = _any([values, *_null_in(key, null_place in wanted)])
    rows = translate.rows(in_tidb if tidb else in_mysql)
    if tidb is not None or in_tidb == in_mysql:
        return rows
    differing = f"{rows.sql} <> {translate.rows(in_tidb).sql}"
    return SparkCondition(rows.sql, differing if rows.doubtful is None else f"({rows.doubtful} OR {differing})")


def _null_in(key: str, wanted: bool) -> list[str]:
    return [f"{key} IS NULL"] if wanted else []


def _hashed(key: str, count: int, wanted: Sequence[int], may_be_huge: bool) -> str:
    """Whether ABS(MOD(key, count)) is one of the numbers wanted."""
    numbers = ", ".join(str(number) for number in wanted)
    condition = f"ABS(MOD({key}, {count})) IN ({numbers})"
    if not may_be_huge:
        return condition
    # Both servers take an unsigned number above the signed ones for a negative one: for 2^64 less.
    huge = f"MOD({_MAX_UNSIGNED} - {key} + 1, {count}) IN ({numbers})"
    return _any([f"{key} <= {_MAX_SIGNED} AND {condition}", f"{key} > {_MAX_SIGNED} AND {huge}"])


def _hashed_linearly(key: str, count: int, wanted: Sequence[int]) -> str:
    """The number is the key's lowest bits; one bit less where no partition has that number."""
    power = 1 << (count - 1).bit_length()
    lowest = [low for low in range(power) if (low if low < count else low % (power // 2)) in wanted]
    # MOD has the sign of the key; the lowest bits of a negative number are those of the sum
    return f"MOD(MOD({key}, {power}) + {power}, {power}) IN ({', '.join(str(low) for low in lowest)})"


def _may_be_huge(key: str, schema: TableSchema) -> bool:
    """Whether the expression names a BIGINT UNSIGNED, which may be above all signed numbers."""
    cursor = Cursor(key)
    names: set[str] = set()
    while not cursor.done:
        token = cursor.skip()
        if token.kind in (Kind.WORD, Kind.QUOTED):
            names.add(token.text.casefold())
    return any(
        column.name.casefold() in names and column.type.base == "bigint" and column.type.unsigned
        for column in schema.columns
    )
