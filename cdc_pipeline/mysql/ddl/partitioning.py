"""Reads how a table is partitioned: PARTITION BY, and the definitions of partitions.

A partitioning that cannot be read is an unknown one, never an error: the columns matter more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from cdc_pipeline.mysql.ddl.interval_partitions import UNITS
from cdc_pipeline.mysql.ddl.partition_definitions import read_bound, read_partitions
from cdc_pipeline.mysql.ddl.tokens import Cursor, DdlSyntaxError
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
    """The partitioning at the cursor, which is at PARTITION BY; unknown where it cannot be read.

    `may_follow` is whether the cursor is where something else begins: there an unknown one ends. Partitions of an
    INTERVAL are left to `with_interval_partitions`.
    """
    before, start = cursor.index, cursor.position
    try:
        found = _read(cursor)
        if at_end(cursor) or may_follow(cursor):
            return found
        reason = str(cursor.error("cannot read the partitioning"))
    except (DdlSyntaxError, UnknownPartitionsError) as error:
        reason = str(error)
    cursor.index = before
    return Partitioning.unknown(reason, skipped(cursor, start, may_follow))


def at_end(cursor: Cursor) -> bool:
    """Whether the statement ends at the cursor."""
    return cursor.done or cursor.at(";")


def skipped(cursor: Cursor, start: int, may_follow: Callable[[Cursor], bool]) -> str:
    """The source text from `start` to the end of the statement, or to where something else begins outside brackets."""
    while not at_end(cursor) and not may_follow(cursor):
        if cursor.at("("):
            cursor.group()
        else:
            cursor.skip()
    return cursor.since(start)


def _read(cursor: Cursor) -> Partitioning:
    cursor.expect("PARTITION", "BY")
    linear = cursor.accept("LINEAR")
    if linear or cursor.at_any("HASH", "KEY"):
        method, expression, columns = _hash_method(cursor, linear)
        return _hash_partitioning(cursor, method, expression, columns)
    word = cursor.accept_any("RANGE", "LIST")
    if word is None:
        raise cursor.error("RANGE, LIST, HASH or KEY expected")
    with_columns = cursor.accept("COLUMNS")
    expression, columns = ("", _names(cursor)) if with_columns else (cursor.group(), ())
    interval = _interval(cursor)
    count = cursor.integer() if cursor.accept("PARTITIONS") else None
    subpartitioning = _subpartitioning(cursor)
    partitions = read_partitions(cursor) if cursor.at("(") else ()
    _accept_indexes(cursor)
    if subpartitioning is not None and partitions and partitions[0].subpartitions:
        subpartitioning = replace(subpartitioning, count=len(partitions[0].subpartitions))
    if not partitions and interval is None:
        raise cursor.error("definitions of partitions expected")
    if count is not None and partitions and count != len(partitions):
        raise UnknownPartitionsError(f"{count} partitions, and {len(partitions)} are defined")
    width = len(columns) or 1
    for part in partitions:
        items = (part.less_than,) if word == "RANGE" else part.values
        if not items or any(len(item) != width and item != (DEFAULT,) for item in items):
            raise UnknownPartitionsError(f"partition {part.name!r} has no value for each column")
    method_name = cast("Method", word.lower() + (" columns" if with_columns else ""))
    return Partitioning(method_name, expression, columns, partitions, subpartitioning, interval)


def _hash_method(cursor: Cursor, linear: bool) -> tuple[HashMethod, str, tuple[str, ...]]:
    prefix = "linear " if linear else ""
    if cursor.accept("HASH"):
        return cast("HashMethod", f"{prefix}hash"), cursor.group(), ()
    cursor.expect("KEY")
    if cursor.accept("ALGORITHM"):
        cursor.expect("=")
        cursor.integer()
    return cast("HashMethod", f"{prefix}key"), "", _names(cursor)


def _hash_partitioning(cursor: Cursor, method: HashMethod, expression: str, columns: tuple[str, ...]) -> Partitioning:
    count = cursor.integer() if cursor.accept("PARTITIONS") else None
    partitions = read_partitions(cursor) if cursor.at("(") else ()
    _accept_indexes(cursor)
    if any(part.less_than or part.values for part in partitions):
        raise UnknownPartitionsError(f"values of partitions by {method.upper()}")
    if partitions and count is not None and count != len(partitions):
        raise UnknownPartitionsError(f"{count} partitions, and {len(partitions)} are defined")
    return Partitioning(
        method, expression, columns, partitions or numbered_partitions(0, 1 if count is None else count)
    )


def numbered_partitions(first: int, count: int) -> tuple[Partition, ...]:
    """Partitions by HASH or KEY without names of their own. Raises UnknownPartitionsError for more than there can be."""
    if not 0 < count <= 8192:
        raise UnknownPartitionsError(f"{count} partitions")
    return tuple(Partition(f"p{number}") for number in range(first, first + count))


def _subpartitioning(cursor: Cursor) -> Subpartitioning | None:
    if not cursor.accept("SUBPARTITION", "BY"):
        return None
    method, expression, columns = _hash_method(cursor, cursor.accept("LINEAR"))
    return Subpartitioning(method, expression, columns, cursor.integer() if cursor.accept("SUBPARTITIONS") else 1)


def _names(cursor: Cursor) -> tuple[str, ...]:
    """The columns in the brackets at the cursor; KEY () has none, and is by the primary key."""
    names: list[str] = []
    cursor.expect("(")
    while not cursor.at(")"):
        names.append(cursor.identifier("a column name"))
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return tuple(names)


def _interval(cursor: Cursor) -> Interval | None:
    if not cursor.accept("INTERVAL"):
        return None
    cursor.expect("(")
    amount = cursor.integer()
    unit = cursor.accept_any(*UNITS) or ""
    cursor.expect(")")
    cursor.expect("FIRST", "PARTITION")
    first = read_bound(cursor)
    cursor.expect("LAST", "PARTITION")
    last = read_bound(cursor)
    null_partition = cursor.accept("NULL", "PARTITION")
    return Interval(amount, unit, first, last, null_partition, cursor.accept("MAXVALUE", "PARTITION"))


def _accept_indexes(cursor: Cursor) -> None:
    """TiDB's UPDATE INDEXES (index GLOBAL, …)."""
    if cursor.accept("UPDATE", "INDEXES"):
        cursor.group()
