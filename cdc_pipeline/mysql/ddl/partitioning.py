"""Parses PARTITION BY.

A partitioning that cannot be parsed becomes an unknown one, not an error, so that the columns stay usable.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from cdc_pipeline.mysql.ddl.interval_partitions import UNITS
from cdc_pipeline.mysql.ddl.partition_definitions import read_bound, read_partitions
from cdc_pipeline.mysql.ddl.tokens import Cursor, DdlSyntaxError
from cdc_pipeline.mysql.model.limits import MAX_PARTITIONS
from cdc_pipeline.mysql.model.partitions import (
    DEFAULT,
    Interval,
    Partition,
    Partitioning,
    Subpartitioning,
    UnknownPartitionsError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc_pipeline.mysql.model.partitions import HashMethod, Method


def read_partitioning(cursor: Cursor, may_follow: Callable[[Cursor], bool]) -> Partitioning:
    """Reads a partitioning from PARTITION BY on; an unknown one if it cannot be parsed.

    `may_follow` returns whether the cursor is at the next part of the statement, where an unknown partitioning ends.
    `with_interval_partitions` adds the partitions of an INTERVAL.
    """
    before, start = cursor.index, cursor.position
    try:
        partitioning = _read(cursor)
        if at_statement_end(cursor) or may_follow(cursor):
            return partitioning
        reason = str(cursor.error("cannot parse the partitioning"))
    except (DdlSyntaxError, UnknownPartitionsError) as error:
        reason = str(error)
    cursor.index = before
    return Partitioning.unknown(reason, read_to_clause(cursor, start, may_follow))


def at_statement_end(cursor: Cursor) -> bool:
    """Whether the statement ends at the cursor."""
    return cursor.at_end or cursor.at(";")


def read_to_clause(cursor: Cursor, start: int, may_follow: Callable[[Cursor], bool]) -> str:
    """Moves to the end of the statement, or to `may_follow` outside brackets. Returns the text from `start` on."""
    while not at_statement_end(cursor) and not may_follow(cursor):
        if cursor.at("("):
            cursor.read_group()
        else:
            cursor.skip()
    return cursor.text_since(start)


def _read(cursor: Cursor) -> Partitioning:
    cursor.expect("PARTITION", "BY")
    linear = cursor.accept("LINEAR")
    if linear or cursor.at_any("HASH", "KEY"):
        method, expression, columns = _read_hash_method(cursor, linear)
        return _read_hash_partitioning(cursor, method, expression, columns)
    word = cursor.accept_any("RANGE", "LIST")
    if word is None:
        raise cursor.error("RANGE, LIST, HASH or KEY expected")
    with_columns = cursor.accept("COLUMNS")
    expression, columns = ("", _read_names(cursor)) if with_columns else (cursor.read_group(), ())
    interval = _read_interval(cursor)
    count = cursor.read_integer() if cursor.accept("PARTITIONS") else None
    subpartitioning = _read_subpartitioning(cursor)
    partitions = read_partitions(cursor) if cursor.at("(") else ()
    _accept_indexes(cursor)
    if subpartitioning is not None and partitions and partitions[0].subpartitions:
        subpartitioning = replace(subpartitioning, count=len(partitions[0].subpartitions))
    if not partitions and interval is None:
        raise cursor.error("definitions of partitions expected")
    if count is not None and partitions and count != len(partitions):
        raise UnknownPartitionsError(f"PARTITIONS {count} with {len(partitions)} definitions")
    width = len(columns) or 1
    for part in partitions:
        items = (part.less_than,) if word == "RANGE" else part.values
        if not items or any(len(item) != width and item != (DEFAULT,) for item in items):
            raise UnknownPartitionsError(f"partition {part.name!r} has no value for each column")
    method_name = cast("Method", word.lower() + (" columns" if with_columns else ""))
    return Partitioning(method_name, expression, columns, partitions, subpartitioning, interval)


def _read_hash_method(cursor: Cursor, linear: bool) -> tuple[HashMethod, str, tuple[str, ...]]:
    prefix = "linear " if linear else ""
    if cursor.accept("HASH"):
        return cast("HashMethod", f"{prefix}hash"), cursor.read_group(), ()
    cursor.expect("KEY")
    if cursor.accept("ALGORITHM"):
        cursor.expect("=")
        cursor.read_integer()
    return cast("HashMethod", f"{prefix}key"), "", _read_names(cursor)


def _read_hash_partitioning(
    cursor: Cursor, method: HashMethod, expression: str, columns: tuple[str, ...]
) -> Partitioning:
    count = cursor.read_integer() if cursor.accept("PARTITIONS") else None
    partitions = read_partitions(cursor) if cursor.at("(") else ()
    _accept_indexes(cursor)
    if any(part.less_than or part.values for part in partitions):
        raise UnknownPartitionsError(f"partitions by {method.upper()} with values")
    if partitions and count is not None and count != len(partitions):
        raise UnknownPartitionsError(f"PARTITIONS {count} with {len(partitions)} definitions")
    return Partitioning(
        method, expression, columns, partitions or numbered_partitions(0, 1 if count is None else count)
    )


def numbered_partitions(first: int, count: int) -> tuple[Partition, ...]:
    """Partitions by HASH or KEY with MySQL's names. Raises UnknownPartitionsError for an impossible count."""
    if not 0 < count <= MAX_PARTITIONS:
        raise UnknownPartitionsError(f"{count} partitions: expected 1 to {MAX_PARTITIONS:,}")
    return tuple(Partition(f"p{number}") for number in range(first, first + count))


def _read_subpartitioning(cursor: Cursor) -> Subpartitioning | None:
    if not cursor.accept("SUBPARTITION", "BY"):
        return None
    method, expression, columns = _read_hash_method(cursor, cursor.accept("LINEAR"))
    return Subpartitioning(method, expression, columns, cursor.read_integer() if cursor.accept("SUBPARTITIONS") else 1)


def _read_names(cursor: Cursor) -> tuple[str, ...]:
    """Reads columns in brackets. KEY () has none and uses the primary key."""
    names: list[str] = []
    cursor.expect("(")
    while not cursor.at(")"):
        names.append(cursor.read_name("a column name"))
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return tuple(names)


def _read_interval(cursor: Cursor) -> Interval | None:
    if not cursor.accept("INTERVAL"):
        return None
    cursor.expect("(")
    amount = cursor.read_integer()
    unit = cursor.accept_any(*UNITS) or ""
    cursor.expect(")")
    cursor.expect("FIRST", "PARTITION")
    first = read_bound(cursor)
    cursor.expect("LAST", "PARTITION")
    last = read_bound(cursor)
    null_partition = cursor.accept("NULL", "PARTITION")
    return Interval(amount, unit, first, last, null_partition, cursor.accept("MAXVALUE", "PARTITION"))


def _accept_indexes(cursor: Cursor) -> None:
    """Moves past TiDB's UPDATE INDEXES (index GLOBAL, …)."""
    if cursor.accept("UPDATE", "INDEXES"):
        cursor.read_group()
