"""Parses PARTITION BY, and the definitions of partitions: names and values.

A partitioning that cannot be parsed becomes an unknown one, not an error, so that the columns stay usable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

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

# Options of a partition, each followed by one word or string. None of them moves rows.
_OPTIONS: tuple[tuple[str, ...], ...] = (
    ("STORAGE", "ENGINE"),
    ("ENGINE",),
    ("STORAGE",),
    ("COMMENT",),
    ("DATA", "DIRECTORY"),
    ("INDEX", "DIRECTORY"),
    ("MAX_ROWS",),
    ("MIN_ROWS",),
    ("TABLESPACE",),
    ("NODEGROUP",),
    ("PLACEMENT", "POLICY"),
)
_KEYWORDS = frozenset({MAXVALUE, NULL, DEFAULT})


def read_partitions(cursor: Cursor) -> tuple[Partition, ...]:
    """Reads definitions of partitions in brackets. Raises DdlSyntaxError for unknown words."""
    partitions: list[Partition] = []
    cursor.expect("(")
    while True:
        cursor.expect("PARTITION")
        partitions.append(_read_partition(cursor))
        if len(partitions) > MAX_PARTITIONS:
            raise cursor.error(limit_message("partitions", len(partitions), MAX_PARTITIONS))
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return tuple(partitions)


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
    name = read_partition_name(cursor)
    less_than: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
    if cursor.accept("VALUES", "LESS", "THAN"):
        less_than = (MAXVALUE,)
        if not cursor.accept(MAXVALUE):
            cursor.expect("(")
            less_than = _read_values(cursor)
    elif cursor.accept("VALUES", "IN"):
        values = _read_tuples(cursor)
    elif cursor.accept(DEFAULT):
        values = ((DEFAULT,),)
    _accept_options(cursor)
    if cursor.at("(", "SUBPARTITION"):
        cursor.read_group()  # they divide the rows of this partition only
    return Partition(name, less_than, values)


def _accept_options(cursor: Cursor) -> None:
    while any(cursor.accept(*words) for words in _OPTIONS):
        cursor.accept("=")
        cursor.take(Kind.WORD, Kind.QUOTED, Kind.STRING, Kind.NUMBER, what="the value of an option")


def _read_tuples(cursor: Cursor) -> tuple[tuple[str, ...], ...]:
    """Reads an IN list: values, or tuples of values in brackets."""
    items: list[tuple[str, ...]] = []
    cursor.expect("(")
    while True:
        before = cursor.index
        item = _read_values(cursor) if cursor.accept("(") else ()
        if len(item) < 2 or not cursor.at_any(",", ")"):
            # the brackets belong to an expression
            cursor.index = before
            item = (_read_value(cursor),)
        items.append(item)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return tuple(items)


def _read_values(cursor: Cursor) -> tuple[str, ...]:
    """Reads values and the closing bracket."""
    values = [_read_value(cursor)]
    while cursor.accept(","):
        values.append(_read_value(cursor))
    cursor.expect(")")
    return tuple(values)


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


def read_partitioning(cursor: Cursor, may_follow: Callable[[Cursor], bool]) -> Partitioning:
    """Reads a partitioning from PARTITION BY on; an unknown one if it cannot be parsed.

    `may_follow` returns whether the cursor is at the next part of the statement, where an unknown partitioning ends.
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
        cursor.skip_item()
    return cursor.text_since(start)


def _read(cursor: Cursor) -> Partitioning:
    cursor.expect("PARTITION", "BY")
    if cursor.at_any("KEY", "LINEAR"):
        raise UnknownPartitionsError("partitions by KEY or LINEAR HASH: their functions are not computed")
    if cursor.accept("HASH"):
        return _read_hash_partitioning(cursor, cursor.read_group())
    word = cursor.accept_any("RANGE", "LIST")
    if word is None:
        raise cursor.error("RANGE, LIST, HASH or KEY expected")
    with_columns = cursor.accept("COLUMNS")
    expression, columns = ("", _read_names(cursor)) if with_columns else (cursor.read_group(), ())
    count = cursor.read_integer() if cursor.accept("PARTITIONS") else None
    _accept_subpartitioning(cursor)
    if not cursor.at("("):
        raise cursor.error("definitions of partitions expected")
    partitions = read_partitions(cursor)
    _accept_indexes(cursor)
    if count is not None and count != len(partitions):
        raise UnknownPartitionsError(f"PARTITIONS {count} with {len(partitions)} definitions")
    width = len(columns) or 1
    for part in partitions:
        items = (part.less_than,) if word == "RANGE" else part.values
        if not items or any(len(item) != width and item != (DEFAULT,) for item in items):
            raise UnknownPartitionsError(f"partition {part.name!r} has no value for each column")
    method_name = cast("Method", word.lower() + (" columns" if with_columns else ""))
    return Partitioning(method_name, expression, columns, partitions)


def _read_hash_partitioning(cursor: Cursor, expression: str) -> Partitioning:
    count = cursor.read_integer() if cursor.accept("PARTITIONS") else None
    partitions = read_partitions(cursor) if cursor.at("(") else ()
    _accept_indexes(cursor)
    if any(part.less_than or part.values for part in partitions):
        raise UnknownPartitionsError("partitions by HASH with values")
    if partitions and count is not None and count != len(partitions):
        raise UnknownPartitionsError(f"PARTITIONS {count} with {len(partitions)} definitions")
    partitions = partitions or numbered_partitions(0, 1 if count is None else count)
    return Partitioning("hash", expression, partitions=partitions)


def numbered_partitions(first: int, count: int) -> tuple[Partition, ...]:
    """Partitions by HASH with MySQL's names. Raises UnknownPartitionsError for an impossible count."""
    if not 0 < count <= MAX_PARTITIONS:
        raise UnknownPartitionsError(f"{count} partitions: expected 1 to {MAX_PARTITIONS:,}")
    return tuple(Partition(f"p{number}") for number in range(first, first + count))


def _accept_subpartitioning(cursor: Cursor) -> None:
    """Moves past SUBPARTITION BY …, which decides only where the rows of a partition are stored."""
    if not cursor.accept("SUBPARTITION", "BY"):
        return
    cursor.accept("LINEAR")
    if not cursor.accept("HASH"):
        cursor.expect("KEY")
        if cursor.accept("ALGORITHM"):
            cursor.expect("=")
            cursor.read_integer()
    cursor.read_group()
    if cursor.accept("SUBPARTITIONS"):
        cursor.read_integer()


def _read_names(cursor: Cursor) -> tuple[str, ...]:
    """Reads columns in brackets."""
    names: list[str] = []
    cursor.expect("(")
    while True:
        names.append(cursor.read_name("a column name"))
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return tuple(names)


def _accept_indexes(cursor: Cursor) -> None:
    """Moves past TiDB's UPDATE INDEXES (index GLOBAL, …)."""
    if cursor.accept("UPDATE", "INDEXES"):
        cursor.read_group()
