"""Parses PARTITION BY, and the definitions of partitions: names and values.

A partitioning that cannot be parsed becomes an unknown one, not an error, so that the columns stay usable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from cdc_pipeline.mysql.ddl.column_types import accept_introducer
from cdc_pipeline.mysql.ddl.tokens import Cursor, DdlSyntaxError, Kind
from cdc_pipeline.mysql.model.limits import MAX_PARTITIONS, limit_message
from cdc_pipeline.mysql.model.partitions import (
    DEFAULT,
    MAXVALUE,
    NULL,
    Method,
    Partition,
    Partitioning,
    UnknownPartitionsError,
)

# Options of a partition. None of them moves rows.
_OPTIONS = (
    *("STORAGE ENGINE", "ENGINE", "STORAGE", "COMMENT", "DATA DIRECTORY", "INDEX DIRECTORY", "MAX_ROWS", "MIN_ROWS"),
    *("TABLESPACE", "NODEGROUP", "PLACEMENT POLICY"),
)
_KEYWORDS = frozenset({MAXVALUE, NULL, DEFAULT})
_Read = TypeVar("_Read")


def read_partitions(cursor: Cursor) -> tuple[Partition, ...]:
    """Reads definitions of partitions in brackets. Raises DdlSyntaxError for unknown words."""
    if not cursor.at("("):
        raise cursor.error("definitions of partitions expected")
    partitions = tuple(cursor.read_list(_read_partition))
    if len(partitions) > MAX_PARTITIONS:
        raise cursor.error(limit_message("partitions", len(partitions), MAX_PARTITIONS))
    return partitions


def read_partition_name(cursor: Cursor) -> str:
    """Reads the name of a partition.

    TiCDC's old architecture quotes the name in EXCHANGE PARTITION twice (``p0``): two empty quoted names with the name
    between them.
    """
    opening = cursor.peek()
    name = cursor.read_name("a partition name")
    if name or opening is None or opening.kind is not Kind.QUOTED:
        return name
    while not cursor.at_kind(Kind.QUOTED):
        cursor.skip()
    closing = cursor.skip()
    if closing.text:
        cursor.index -= 1
        raise cursor.error("the second pair of backquotes expected")
    return cursor.text[opening.end : closing.start]


def _read_partition(cursor: Cursor) -> Partition:
    cursor.expect("PARTITION")
    name = read_partition_name(cursor)
    less_than: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
    if cursor.accept("VALUES LESS THAN"):
        less_than = (MAXVALUE,) if cursor.accept(MAXVALUE) else tuple(cursor.read_list(_read_value))
    elif cursor.accept("VALUES IN"):
        values = tuple(cursor.read_list(_read_tuple))
    elif cursor.accept(DEFAULT):
        values = ((DEFAULT,),)
    while cursor.accept_option(*_OPTIONS):
        pass
    if cursor.at("( SUBPARTITION"):
        cursor.read_group()  # they divide the rows of this partition only
    return Partition(name, less_than, values)


def _read_tuple(cursor: Cursor) -> tuple[str, ...]:
    """Reads an item of an IN list: a value, or several in brackets."""
    before = cursor.index
    if cursor.at("("):
        values = cursor.read_list(_read_value)
        if len(values) > 1 and cursor.at_any(",", ")"):
            return tuple(values)
        cursor.index = before  # the brackets belong to an expression
    return (_read_value(cursor),)


def _read_value(cursor: Cursor) -> str:
    start = cursor.position
    # TiDB prints all strings with an introducer, dates too
    if accept_introducer(cursor) in ("utf8mb4", "utf8mb3", "utf8"):
        start = cursor.position
    while not cursor.at_any(",", ")"):
        cursor.skip_item()
    text = cursor.text_since(start)
    if not text:
        raise cursor.error("a value expected")
    return text.upper() if text.upper() in _KEYWORDS else text


def read_partitioning(cursor: Cursor, *ends: str) -> Partitioning:
    """Reads a partitioning from PARTITION BY on; an unknown one if it cannot be parsed.

    `ends`: words of the statement that may follow.
    """
    return known_or_unknown(cursor, _read, *ends)


def known_or_unknown(cursor: Cursor, read: Callable[[Cursor], _Read], *ends: str) -> _Read | Partitioning:
    """What `read` reads before a comma, the end or one of `ends`; else an unknown partitioning up to one of `ends`."""
    before = cursor.index
    try:
        found = read(cursor)
        if cursor.at_statement_end or cursor.at_any(",", *ends):
            return found
        reason = str(cursor.error("cannot parse the partitioning"))
    except (DdlSyntaxError, UnknownPartitionsError) as error:
        reason = str(error)
    cursor.index = before
    return Partitioning.unknown(reason, cursor.skip_to(*ends))


def _read(cursor: Cursor) -> Partitioning:
    cursor.expect("PARTITION BY")
    if cursor.at_any("KEY", "LINEAR"):
        raise UnknownPartitionsError("partitions by KEY or LINEAR HASH: their functions are not computed")
    method = cursor.accept_any("RANGE COLUMNS", "LIST COLUMNS", "RANGE", "LIST", "HASH")
    if method is None:
        raise cursor.error("RANGE, LIST, HASH or KEY expected")
    by_columns = method.endswith("COLUMNS")
    expression, columns = (
        ("", tuple(cursor.read_list(Cursor.read_column_name))) if by_columns else (cursor.read_group(), ())
    )
    count = cursor.read_integer() if cursor.accept("PARTITIONS") else None
    _accept_subpartitioning(cursor)
    if method == "HASH" and not cursor.at("("):
        partitions = numbered_partitions(0, 1 if count is None else count)
    else:
        partitions = read_partitions(cursor)
    if cursor.accept("UPDATE INDEXES"):  # TiDB's UPDATE INDEXES (index GLOBAL, …)
        cursor.read_group()
    if count is not None and count != len(partitions):
        raise UnknownPartitionsError(f"PARTITIONS {count} with {len(partitions)} definitions")
    for part in partitions:
        _check_values(part, method, len(columns) or 1)
    return Partitioning(cast("Method", method.lower()), expression, columns, partitions)


def _check_values(part: Partition, method: str, width: int) -> None:
    """Raises UnknownPartitionsError unless the partition has the values that its method needs."""
    if method == "HASH":
        if part.less_than or part.values:
            raise UnknownPartitionsError("partitions by HASH with values")
        return
    items = (part.less_than,) if method.startswith("RANGE") else part.values
    if not items or any(len(item) != width and item != (DEFAULT,) for item in items):
        raise UnknownPartitionsError(f"partition {part.name!r} has no value for each column")


def numbered_partitions(first: int, count: int) -> tuple[Partition, ...]:
    """Partitions by HASH with MySQL's names. Raises UnknownPartitionsError for an impossible count."""
    if not 0 < count <= MAX_PARTITIONS:
        raise UnknownPartitionsError(f"{count} partitions: expected 1 to {MAX_PARTITIONS:,}")
    return tuple(Partition(f"p{number}") for number in range(first, first + count))


def _accept_subpartitioning(cursor: Cursor) -> None:
    """Moves past SUBPARTITION BY …, which decides only where the rows of a partition are stored."""
    if not cursor.accept("SUBPARTITION BY"):
        return
    cursor.accept("LINEAR")
    if cursor.expect("HASH", "KEY") == "KEY":
        cursor.accept_option("ALGORITHM")
    cursor.read_group()
    if cursor.accept("SUBPARTITIONS"):
        cursor.read_integer()
