"""Parses the definitions of partitions: names and values."""

from __future__ import annotations

from cdc_pipeline.mysql.ddl.column_types import accept_introducer
from cdc_pipeline.mysql.ddl.tokens import Cursor, Kind
from cdc_pipeline.mysql.model.limits import MAX_PARTITIONS, limit_message
from cdc_pipeline.mysql.model.partitions import DEFAULT, MAXVALUE, NULL, Partition

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
        if cursor.at("("):
            cursor.read_group()
        else:
            cursor.skip()
    text = cursor.text_since(start)
    if not text:
        raise cursor.error("a value expected")
    return text.upper() if text.upper() in _KEYWORDS else text
